"""The change that the result of each activity makes in a delivery's state.

The workflow applies every result by these functions as it comes; whoever reads a history applies the same ones by
`apply_result`. What people decide and send is applied by perdure.models.rules.inbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.models.backlog.landing import LandResult, RebaseResult
from perdure.models.delivery.decisions import CheckPlanResult
from perdure.models.delivery.publishing import CaptureResult, PushResult, ShipResult
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.specialists import TakeTasksResult
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.steps import AGENTIC, FIXES
from perdure.models.delivery.turn import Ending, Outcome, TurnResult
from perdure.models.delivery.work import (
    CloseResult,
    CommitResult,
    InspectResult,
    PreparedWorkspace,
    TakeAttemptResult,
    TestVerdict,
)
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Step
from perdure.models.rules.parallel_builds import has_landed_task

ASSUMPTIONS_KEPT = 40
"""In a delivery's state and its pull request: 20 KB. An agent that assumes more has not understood the request."""


def apply_result(
    state: DeliveryState,
    activity: str,
    activity_input: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    branch: bool = False,
) -> None:
    """Apply the result of an activity, as history has it, to the state; results of activities that are not listed here
    change nothing.

    activity, activity_input, result   the activity's name, its input and its result
    branch                             the delivery works on a branch that existed before it

    Raises ValidationError for a result that this release does not know.
    """
    attempt, commit = _int_or_zero(activity_input.get("attempt")), str(activity_input.get("commit") or "")
    match activity:
        case Step.PREPARE:
            apply_prepare(state, PreparedWorkspace.model_validate(result), branch=branch)
        case Step.COMMIT:
            apply_commit(state, CommitResult.model_validate(result))
            _apply_committed_step(state, str(activity_input.get("step") or ""), attempt)
        case Step.RUN_TESTS:
            apply_verdict(state, TestVerdict.model_validate(result), attempt)
        case "check_plan":
            apply_edited_plan(state, str(activity_input.get("plan") or ""), CheckPlanResult.model_validate(result))
            state.planning.edit_count += 1
        case "inspect_change":
            apply_inspection(state, InspectResult.model_validate(result), commit)
        case "capture_pages":
            apply_screenshots(state, CaptureResult.model_validate(result), commit)
        case Step.OPEN_PULL_REQUEST:
            apply_pull_request(state, ShipResult.model_validate(result))
        case "push_branch":
            state.message = PushResult.model_validate(result).summary
        case Step.REBASE:
            apply_rebase(state, RebaseResult.model_validate(result))
        case "take_tasks":
            apply_tasks(state, TakeTasksResult.model_validate(result))
            state.building.built = state.building.built or has_landed_task(state.children.tasks)
        case "take_attempt":
            apply_attempt(state, TakeAttemptResult.model_validate(result))
        case Step.LAND:
            apply_landing(state, LandResult.model_validate(result))
        case "close":
            apply_close(state, CloseResult.model_validate(result))
        case step if step in AGENTIC:
            turn_result = TurnResult.model_validate(result)
            apply_turn(state, Step(step), attempt, _int_or_zero(activity_input.get("turn")), turn_result)
            if turn_result.outcome is not None and turn_result.outcome.ending is Ending.DONE:
                apply_step_end(state, Step(step), attempt, turn_result.outcome)


def apply_prepare(state: DeliveryState, result: PreparedWorkspace, *, branch: bool) -> None:
    """Record the workspace that was prepared and its settings. For a branch that existed before (`branch`), its tip
    becomes the head, unless there is one."""
    state.enter_workspace(result)
    state.building.head = state.building.head or (result.head if branch else "")


def apply_turn(state: DeliveryState, step: Step, attempt: int, turn_number: int, result: TurnResult) -> None:
    """Record the end of a turn: its checkpoint and position, where the next turn begins, what it cost, and what its
    agent asked or assumed.

    Messages that the turn has read move from pending to delivered. The first change of model in a step becomes a note.
    """
    state.turns.checkpoint, state.spending.spend = result.checkpoint, result.spend
    state.turns.resume_at = (step, attempt, turn_number)
    state.spending.usage += result.usage
    state.messages.add_delivered(*(message for message in state.messages.pending if message.id in result.notes))
    state.messages.pending = tuple(message for message in state.messages.pending if message.id not in result.notes)
    note_prefix = f"{step} {attempt} changed its model, "
    if result.model and not any(note.startswith(note_prefix) for note in state.notes):
        state.notes = (*state.notes, note_prefix + result.summary)[-NOTES_KEPT:]
    if result.assumption:
        state.turns.assumptions = (*state.turns.assumptions, result.assumption)[:ASSUMPTIONS_KEPT]
    if result.question is not None:  # by its checkpoint, so that no answer is taken for one to another question
        state.gates.question, state.gates.question_id = (
            result.question,
            f"{step}-{attempt}-{turn_number}-{result.checkpoint[:8]}",
        )


def apply_step_end(state: DeliveryState, step: Step, attempt: int, outcome: Outcome) -> None:
    """Record the result of an agentic step that is done: the kind of change (`classify`), the plan (`plan`,
    `decompose`) or the review (`review`).

    The kind may also decide the branch. Other steps change nothing.
    """
    match step:
        case Step.CLASSIFY:
            state.planning.kind = str(outcome.data.get("kind", ""))
            if state.prepared is not None and state.planning.kind in state.prepared.branches:
                branch = state.prepared.branches[state.planning.kind]
                state.prepared = state.prepared.model_copy(update={"branch": branch})
        case Step.PLAN | Step.DECOMPOSE:
            state.planning.plan_count += 1
            state.planning.plan, state.planning.title = outcome.artifact, str(outcome.data.get("title", ""))
            state.planning.plan_text = str(outcome.data.get("words", ""))
            _set_touches(state, outcome.data.get("touches"))
        case Step.REVIEW:
            state.reviewing.review, state.reviewing.runs, state.reviewing.reviewed_commit = (
                outcome.artifact,
                attempt,
                state.building.head,
            )
            state.reviewing.result = state.reviewing.inspection.with_review(outcome.data)


def apply_edited_plan(state: DeliveryState, plan: str, checked: CheckPlanResult, title: str = "") -> None:
    """Replace the plan that waits for approval by a person's; change nothing when the check has found a problem with
    it."""
    if not checked.problem:
        state.planning.plan, state.planning.title = plan, title or checked.title or state.planning.title
        state.planning.plan_text = checked.plan_text
        _set_touches(state, checked.touches)


def _set_touches(state: DeliveryState, touches: object) -> None:
    """Set the patterns of files that a plan names, of which the delivery's backlog is then told.

    Change nothing when the delivery lands for no backlog, or the plan comes from an older release, which has no
    patterns.
    """
    if state.prepared is not None and state.prepared.publishing.landing and isinstance(touches, list | tuple):
        state.landing.planned_touches = tuple(map(str, touches))


def apply_commit(state: DeliveryState, result: CommitResult) -> None:
    """Record the newest commit and the size of the change; a result without them leaves both as they are."""
    state.building.head, state.building.change_size = (
        result.commit or state.building.head,
        result.change or state.building.change_size,
    )


def _apply_committed_step(state: DeliveryState, step: str, attempt: int) -> None:
    """Record, for whoever reads a history, that a step with a commit is done, and the number of a fix; the workflow
    records these itself."""
    state.building.built, state.building.documented = (
        state.building.built or step == Step.IMPLEMENT,
        state.building.documented or step == Step.DOCUMENT,
    )
    state.fixing.counts = {**state.fixing.counts, step: attempt} if step in FIXES else state.fixing.counts


def apply_verdict(state: DeliveryState, verdict: TestVerdict, attempt: int) -> None:
    """Record the newest verdict of the tests, as one on the head, the size of the change, and how many times tests have
    run (`attempt`)."""
    state.testing.verdict, state.testing.runs = verdict, attempt
    state.testing.tested_commit, state.building.change_size = (
        state.building.head,
        verdict.change or state.building.change_size,
    )


def apply_inspection(state: DeliveryState, inspection: InspectResult, commit: str) -> None:
    """Record what the engine itself found in a commit."""
    state.reviewing.inspection, state.reviewing.inspected_commit = inspection, commit


def apply_screenshots(state: DeliveryState, result: CaptureResult, commit: str) -> None:
    """Record the pictures of the application's pages at a commit; an empty artifact when they could not be taken."""
    state.publishing.screenshots, state.publishing.captured_commit = result.screenshots, commit


def apply_pull_request(state: DeliveryState, result: ShipResult) -> None:
    """Record the pull request, None when the origin has no forge that Perdure speaks to, and the message about it."""
    state.publishing.pull_request, state.message = result.pull_request, result.message


def apply_rebase(state: DeliveryState, result: RebaseResult) -> None:
    """Record that the delivery now stands on the integration branch's head, under the new contract and baseline.

    It stands there as one commit, as files with conflicts and no commit, or as landed already, with a message that says
    so.
    """
    assert state.prepared is not None
    baseline = {"baseline": result.baseline, "is_red": result.base_red} if result.baseline else {}
    state.prepared = state.prepared.with_changes(
        {"base_commit": {"sha": result.onto, **baseline}}, head=result.onto, contract=result.contract
    )
    state.turns.checkpoint, state.landing.landed_changes = result.checkpoint, result.landed_changes
    if result.conflicts:
        state.landing.conflicts, state.landing.unlanded_commit, state.building.head = (
            result.conflicts,
            state.building.head,
            "",
        )
    elif result.landed:
        state.landing.landed_commit = result.landed
        state.message = f"landed as {result.landed[:7]}"
    else:
        state.building.head = result.commit


def apply_tasks(state: DeliveryState, result: TakeTasksResult) -> None:
    """Record the outcome of the plan's tasks, and that their commits and their cost are the delivery's now; when none
    has landed, the head stays."""
    state.children.tasks, state.turns.checkpoint, state.spending.spend = result.tasks, result.checkpoint, result.spend
    state.spending.usage += result.tasks_usage
    state.children.usd = result.tasks_usage.cost_usd or 0.0
    if has_landed_task(result.tasks):
        state.building.head = result.head


def apply_attempt(state: DeliveryState, result: TakeAttemptResult) -> None:
    """Record the attempts and their cost, and go on from the chosen one, unless none was chosen or it is the delivery's
    own.

    The chosen one's files are then to be committed, so that there is neither head nor verdict until then; its review
    becomes the delivery's. When it is not sound, all rounds of fixing count as used up: it is fixed no further than it
    was.
    """
    is_other = result.checkpoint != state.turns.checkpoint
    state.children.attempts, state.turns.checkpoint, state.spending.spend = (
        result.attempts,
        result.checkpoint,
        result.spend,
    )
    state.spending.usage += result.usage
    state.children.usd += result.usage.cost_usd or 0.0
    chosen = next((attempt for attempt in result.attempts if attempt.chosen), None)
    if chosen is None or not is_other:
        return
    state.building.head, state.testing.verdict, state.building.documented = "", None, True
    state.reviewing.review = (chosen.review.report or "").removeprefix("artifact:sha256:")
    state.reviewing.result = chosen.review
    if not chosen.is_sound and state.prepared is not None:
        state.fixing.test_fixes, state.fixing.review_fixes = (
            state.prepared.limits.test_fixes,
            state.prepared.limits.review_fixes,
        )


def apply_landing(state: DeliveryState, result: LandResult) -> None:
    """Record the commit that landed on the integration branch, and the message about it; empty when somebody else moved
    the branch first."""
    state.landing.landed_commit, state.message = result.commit, result.summary


def apply_close(state: DeliveryState, result: CloseResult) -> None:
    """Record the receipt, what was paid in the end, by the delivery and by its tasks, and the usage; the known usage
    stays when the result's does not cover it, as from another host."""
    state.receipt, state.spending.spend = result.receipt, result.spend
    state.children.usd = result.tasks_usd or state.children.usd
    if result.usage is not None and result.usage.covers(state.spending.usage):  # not where another host has the log
        state.spending.usage = result.usage


def negative_verdict(state: DeliveryState, step: str, summary: str) -> str | None:
    """Return the text of a negative verdict of a step that ran to its end: red tests, or blockers that the review or
    the engine found; None when the verdict is positive or the step has none.

    step     the step whose result has just been applied
    summary  its own summary
    """
    if step == Step.RUN_TESTS and state.testing.verdict is not None and state.testing.verdict.status is TestsStatus.RED:
        return summary
    if step == Step.REVIEW and state.reviewing.result.blockers:
        return "; ".join(
            [summary, *([state.reviewing.inspection.summary] if state.reviewing.inspection.blockers else [])]
        )
    return None


def _int_or_zero(value: object) -> int:
    """Return the value where it is an integer, else 0."""
    return value if isinstance(value, int) else 0
