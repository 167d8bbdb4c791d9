"""History → state: what the result of each activity changes in what is known of a delivery.

The workflow takes every result in by these functions as it comes; whoever reads a history takes in the same ones by
`take`. What people decide and say comes otherwise: perdure.models.rules.inbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.models.attempts import AttemptTaken
from perdure.models.decisions import CheckedPlan
from perdure.models.landing import Landed, Rebased
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Step
from perdure.models.publishing import Captured, Pushed, Shipped
from perdure.models.result import TestsStatus
from perdure.models.rules.specialists import built
from perdure.models.specialists import Taken
from perdure.models.state import DeliveryState
from perdure.models.steps import AGENTIC
from perdure.models.turn import Ending, Outcome, TurnResult
from perdure.models.work import Closed, Committed, Inspected, Prepared, TestVerdict

ASSUMPTIONS_KEPT = 40
"""In a delivery's state and its pull request: 20 KB. An agent that assumes more has not understood the request."""


def take(
    state: DeliveryState, activity: str, given: Mapping[str, Any], result: Mapping[str, Any], *, branch: bool = False
) -> None:
    """Take in what an activity gave, as history has it: its name, its input and its result.

    branch  the delivery works on a branch that was there before it
    Raises ValidationError for a result that this release does not know.
    """
    attempt, commit = _number(given.get("attempt")), str(given.get("commit") or "")
    match activity:
        case Step.PREPARE:
            prepared(state, Prepared.model_validate(result), branch=branch)
        case Step.COMMIT:
            committed(state, Committed.model_validate(result))
        case Step.RUN_TESTS:
            tested(state, TestVerdict.model_validate(result), attempt)
        case "check_plan":
            edited(state, str(given.get("plan") or ""), CheckedPlan.model_validate(result))
        case "inspect_change":
            inspected(state, Inspected.model_validate(result), commit)
        case "capture_pages":
            captured(state, Captured.model_validate(result), commit)
        case Step.OPEN_PULL_REQUEST:
            shipped(state, Shipped.model_validate(result))
        case "push_branch":
            state.message = Pushed.model_validate(result).summary
        case Step.REBASE:
            rebased(state, Rebased.model_validate(result))
        case "take_tasks":
            tasks_taken(state, Taken.model_validate(result))
        case "take_attempt":
            attempt_taken(state, AttemptTaken.model_validate(result))
        case Step.LAND:
            landed(state, Landed.model_validate(result))
        case "close":
            closed(state, Closed.model_validate(result))
        case step if step in AGENTIC:
            given_turn = TurnResult.model_validate(result)
            turn(state, Step(step), attempt, _number(given.get("turn")), given_turn)
            if given_turn.outcome is not None and given_turn.outcome.ending is Ending.DONE:
                ended(state, Step(step), attempt, given_turn.outcome)


def prepared(state: DeliveryState, made: Prepared, *, branch: bool) -> None:
    """A workspace is there."""
    state.begin(made)
    state.head = state.head or (made.head if branch else "")


def turn(state: DeliveryState, step: Step, attempt: int, number: int, result: TurnResult) -> None:
    """A turn has ended: its checkpoint is where the next one begins."""
    state.checkpoint, state.spend = result.checkpoint, result.spend
    state.at = (step, attempt, number)
    state.usage += result.usage
    state.remember(*(said for said in state.said if said.id in result.notes))
    state.said = tuple(said for said in state.said if said.id not in result.notes)
    head = f"{step} {attempt} changed its model, "
    if result.model and not any(note.startswith(head) for note in state.notes):
        state.notes = (*state.notes, head + result.summary)[-NOTES_KEPT:]
    if result.assumption:
        state.assumptions = (*state.assumptions, result.assumption)[:ASSUMPTIONS_KEPT]
    if result.question is not None:  # by its checkpoint, so that no answer is taken for one to another question
        state.question, state.question_of = result.question, f"{step}-{attempt}-{number}-{result.checkpoint[:8]}"


def ended(state: DeliveryState, step: Step, attempt: int, outcome: Outcome) -> None:
    """An agentic step has come to its end, and this is what it gave."""
    match step:
        case Step.CLASSIFY:
            state.kind = str(outcome.data.get("kind", ""))
            if state.prepared is not None and state.kind in state.prepared.branches:
                branch = state.prepared.branches[state.kind]
                state.prepared = state.prepared.model_copy(update={"branch": branch})
        case Step.PLAN | Step.DECOMPOSE:
            state.plans += 1
            state.plan, state.title = outcome.artifact, str(outcome.data.get("title", ""))
            state.plan_words = str(outcome.data.get("words", ""))
            _planned(state, outcome.data.get("touches"))
        case Step.REVIEW:
            state.review, state.reviews, state.reviewed = outcome.artifact, attempt, state.head
            state.review_result = state.found.with_review(outcome.data)


def edited(state: DeliveryState, plan: str, checked: CheckedPlan, title: str = "") -> None:
    """A person's plan takes the place of the one that waits, if it can be worked by."""
    if not checked.problem:
        state.plan, state.title = plan, title or checked.title or state.title
        state.plan_words = checked.words
        _planned(state, checked.touches)


def _planned(state: DeliveryState, touches: object) -> None:
    """Its backlog is to be told of the files a plan names; it has none in histories of releases that told nobody."""
    if state.prepared is not None and state.prepared.landing and isinstance(touches, list | tuple):
        state.touches = tuple(map(str, touches))


def committed(state: DeliveryState, made: Committed) -> None:
    """There is a commit; none where nothing was changed."""
    state.head, state.change = made.commit or state.head, made.change or state.change


def tested(state: DeliveryState, verdict: TestVerdict, attempt: int) -> None:
    """The newest verdict of the tests."""
    state.tests, state.test_runs = verdict, attempt
    state.tested, state.change = state.head, verdict.change or state.change


def inspected(state: DeliveryState, found: Inspected, commit: str) -> None:
    """The engine's own findings in a commit."""
    state.found, state.inspected = found, commit


def captured(state: DeliveryState, taken: Captured, commit: str) -> None:
    """Pictures of a commit's pages; none where they could not be taken."""
    state.screenshots, state.captured = taken.screenshots, commit


def shipped(state: DeliveryState, made: Shipped) -> None:
    """The pull request, where the origin has a forge."""
    state.pull_request, state.message = made.pull_request, made.message


def rebased(state: DeliveryState, made: Rebased) -> None:
    """It stands on the integration branch's head now: as one commit, or as files with conflicts and none."""
    assert state.prepared is not None
    onto = {"base_sha": made.onto, "head": made.onto, "contract": made.contract}
    known = {"baseline": made.baseline, "base_red": made.base_red} if made.baseline else {}
    state.prepared = state.prepared.model_copy(update=onto | known)
    state.checkpoint, state.since = made.checkpoint, made.since
    if made.conflicts:
        state.conflicts, state.unlanded, state.head = made.conflicts, state.head, ""
    elif made.landed:
        state.landed = made.landed
        state.message = f"landed as {made.landed[:7]}"
    else:
        state.head = made.commit


def tasks_taken(state: DeliveryState, made: Taken) -> None:
    """The commits of the plan's tasks are the delivery's, and so is their cost."""
    state.tasks, state.checkpoint, state.spend = made.tasks, made.checkpoint, made.spend
    state.usage += made.tasks_usage
    state.tasks_usd = made.tasks_usage.cost_usd or 0.0
    if built(made.tasks):
        state.head = made.head


def attempt_taken(state: DeliveryState, made: AttemptTaken) -> None:
    """The files of the chosen attempt are the delivery's, to be committed, and so is what was said in its review. One
    that is not sound is no more mended than it was."""
    another = made.checkpoint != state.checkpoint
    state.attempts, state.checkpoint, state.spend = made.attempts, made.checkpoint, made.spend
    state.usage += made.usage
    state.tasks_usd += made.usage.cost_usd or 0.0
    chosen = next((one for one in made.attempts if one.chosen), None)
    if chosen is None or not another:
        return
    state.head, state.tests, state.documented = "", None, True
    state.review = (chosen.review.report or "").removeprefix("artifact:sha256:")
    state.review_result = chosen.review
    if not chosen.sound and state.prepared is not None:
        state.test_fixes, state.review_fixes = state.prepared.test_fixes, state.prepared.review_fixes


def landed(state: DeliveryState, made: Landed) -> None:
    """The integration branch holds it; it does not where somebody else was faster."""
    state.landed, state.message = made.commit, made.summary


def closed(state: DeliveryState, left: Closed) -> None:
    """The receipt, and what was paid in the end."""
    state.receipt, state.spend = left.receipt, left.spend
    state.tasks_usd = left.tasks_usd or state.tasks_usd
    if left.usage is not None and left.usage.covers(state.usage):  # not where another host has the log
        state.usage = left.usage


def verdict(state: DeliveryState, step: str, summary: str) -> str | None:
    """Return the words with which a step that ran to its end says no, None where it does not.

    step     one whose result has just been taken in
    summary  its own words
    """
    if step == Step.RUN_TESTS and state.tests is not None and state.tests.status is TestsStatus.RED:
        return summary
    if step == Step.REVIEW and state.review_result.blockers:
        return "; ".join([summary, *([state.found.summary] if state.found.blockers else [])])
    return None


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
