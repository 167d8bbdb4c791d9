"""Pure decisions on the way of a delivery: which gates it has, the question at each gate, named by the exact hash of
what is decided, its answer, and whether another fix is attempted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import DecisionRecord, Gate, GateVerdict
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import ReviewStatus, TestsStatus
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.turn import FIX_CAUSES, FixAttempt
from perdure.models.delivery.work import DecisionSettings, TestVerdict
from perdure.models.duration import parse_duration
from perdure.models.phases import Phase, Step
from perdure.text import format_count

CANNOT_TELL = "new and old failures cannot be told apart"

GateQuestion = tuple[str, str, tuple[str, ...]]
"""The question at a gate: its name, the question in words, and the updates that decide it."""


def gate_settings(config: RepositoryConfig, phases: Sequence[str], request: DeliveryRequest) -> DecisionSettings:
    """Return the gates at which people decide in a delivery, and how long each waits, from configuration and request.

    Gates `plan` and `pull_request` are there when configuration or request name them and the delivery makes a plan or
    publishes something; `tests`, `deaths` and `landing` when the setting `questions` allows to ask and they can arise;
    `items` when a backlog wants the items of a large request approved. `expiry_s` is 0 when gates wait for ever.
    """
    wanted_gates = {*config.gates.before, *request.gates}
    publishes = Phase.SHIP in phases or request.push
    gates = [Gate.PLAN] if Phase.PLAN in phases and Gate.PLAN in wanted_gates else []
    gates += [Gate.TESTS] if config.delivery.questions and {Phase.TEST, Phase.SHIP} <= {*phases} else []
    gates += [Gate.DEATHS] if config.delivery.questions else []
    gates += [Gate.LANDING] if config.delivery.questions and request.landing is not None else []
    gates += [Gate.ITEMS] if request.landing is not None and request.landing.decompose == "ask" else []
    gates += [Gate.PULL_REQUEST] if publishes and Gate.PULL_REQUEST in wanted_gates else []
    return DecisionSettings(
        asks=True,
        checks_plans=True,
        gates=tuple(str(gate) for gate in gates),
        expiry_s=parse_duration(config.gates.expire) if config.gates.expire else 0.0,
    )


def gate_question(gate: Gate, state: DeliveryState) -> GateQuestion:
    """Return what is decided at this gate now: its name, the question for people, and the names of the updates that
    decide it.

    The name holds the hash of what is decided, and a count of how often that was made anew, so that the same result of
    a new round has to be decided once more.
    """
    match gate:
        case Gate.PLAN | Gate.ITEMS:
            question = f"approve the {gate}: {state.planning.title}" if state.planning.title else f"approve the {gate}"
            version = (
                state.planning.plan_count + state.planning.edit_count
                if state.planning.edit_count or state.planning.plan_count > 1
                else 0
            )
            return _target_name(state.planning.plan, version), question, ("approve", "reject", "edit_plan")
        case Gate.TESTS:
            tree, summary = (
                (state.testing.verdict.tree, state.testing.verdict.summary) if state.testing.verdict else ("", "")
            )
            question = f"{CANNOT_TELL}: {summary}; approve if none is new, reject with what to mend"
            return _target_name(tree, state.fixing.requested_fixes), question, ("approve", "reject")
        case Gate.LANDING:
            question = f"it could not land: {landing_obstacle(state)}; approve to mend it again, reject to end it"
            return (
                _target_name(state.building.head or state.landing.unlanded_commit, state.landing.fixes),
                question,
                ("approve", "reject"),
            )
        case _:
            question = f"publish {state.building.head[:7]} as {_publication_text(state)}{_changed_promises_text(state)}"
            return _target_name(state.building.head, state.fixing.rejection_rounds), question, ("approve", "reject")


def landing_obstacle(state: DeliveryState) -> str:
    """Return the reason why the change could not land, in one line: the first files in conflict, or the summary of the
    red tests."""
    if state.landing.conflicts:
        more = len(state.landing.conflicts) - 3
        return f"conflicts in {', '.join(state.landing.conflicts[:3])}" + (f" and {more} more" if more > 0 else "")
    return state.testing.verdict.summary if state.testing.verdict is not None else "tests are red"


def red_tests_approval(state: DeliveryState) -> DecisionRecord | None:
    """Return a person's approval of the red tests on this very tree, when nothing else can tell which failures are new.

    None: nobody approved, or the newest verdict itself tells which failures are new.
    """
    if state.testing.verdict is None or not state.testing.verdict.undecidable:
        return None
    target, _, _ = gate_question(Gate.TESTS, state)
    decided = state.gates.decided.get(f"{Gate.TESTS}:{target}")
    return decided if decided is not None and decided.verdict is GateVerdict.APPROVED else None


def red_tests_approval_text(state: DeliveryState) -> str:
    """Return a person's approval of red tests in one line for the result, `approved by Ada: as we said`; empty when
    there is none."""
    decided = red_tests_approval(state)
    if decided is None:
        return ""
    by = f" by {decided.by}" if decided.by else ""
    return f"approved{by}" + (f": {decided.note}" if decided.note else "")


def draft_reasons(
    tests: TestVerdict | None, review: ReviewStatus, *, allow_untested: bool, is_accepted: bool
) -> list[str]:
    """Return, as short texts, why a change can only be a draft or not land: not tested, not reviewed, red tests,
    blockers of the review. Empty when there is no reason.

    That tests or a review were not made counts only when the repository does not allow it (`allow_untested`); red tests
    do not count when a person has approved them (`is_accepted`).
    """
    reasons = []
    if not allow_untested:
        if tests is None:
            reasons.append("not tested: the test phase was not selected")
        elif tests.status is TestsStatus.NONE:
            reasons.append("not tested: the repository has no test command")
        if review is ReviewStatus.SKIPPED:
            reasons.append("not reviewed: the review phase was not selected")
    if tests is not None and tests.status is TestsStatus.RED and not is_accepted:
        reasons.append(f"{CANNOT_TELL}: {tests.summary}" if tests.undecidable else "tests are red")
    if review is ReviewStatus.BLOCKED:
        reasons.append("the review found blockers")
    return reasons


def _target_name(sha: str, version: int) -> str:
    """Return the name of what is decided: the beginning of its hash, and its version where that is not 0."""
    return f"{sha[:8]}-{version}" if version else sha[:8]


def _changed_promises_text(state: DeliveryState) -> str:
    """Return `, with 2 changed promises: test_a, test_b`, which counts and names tests of the base that fail on the
    change; empty when there are none."""
    number = state.testing.verdict.promises if state.testing.verdict else 0
    if not number:
        return ""
    names = [name.rsplit("::", 1)[-1] for name in state.testing.verdict.promised] if state.testing.verdict else []
    more = f" and {number - len(names)} more" if names and number > len(names) else ""
    names_text = f": {', '.join(names)}{more}" if names else ""
    return f", with {format_count(number, 'changed promise')}{names_text}"


def _publication_text(state: DeliveryState) -> str:
    """Return what the newest commit is published as: a pull request, or a commit of a branch that is named."""
    prepared = state.prepared
    if prepared is not None and prepared.publishing.landing:
        return f"a commit of {prepared.publishing.landing}"
    if prepared is None or Phase.SHIP in prepared.phases:
        return "a pull request"
    return f"the newest commit of {prepared.branch}"


TRIES_KEPT = 12
"""Fixes that are kept. Some 4 KB in the input of a fix's first turn: what can be learnt from more is in the newest
ones."""


def with_fix_attempt(
    fix_attempts: tuple[FixAttempt, ...],
    step: Step,
    attempt: int,
    commits: tuple[str, str],
    materials: Mapping[str, str],
) -> tuple[FixAttempt, ...]:
    """Return the fixes made so far with one more at the end, the newest TRIES_KEPT of them.

    commits    before the fix and after it
    materials  artifacts that the fix began with, by name; those in FIX_CAUSES are kept
    """
    causes = {name: artifact for name, artifact in materials.items() if name in FIX_CAUSES}
    new_attempt = FixAttempt(step=step, attempt=attempt, before=commits[0], after=commits[1], causes=causes)
    return (*fix_attempts, new_attempt)[-TRIES_KEPT:]


def fix_attempts_material(fix_attempts: Sequence[FixAttempt]) -> dict[str, str]:
    """Return the fixes made so far as material `tries` of a turn's input, in JSON; an empty dict before the first."""
    return (
        {"tries": json.dumps([fix_attempt.model_dump(mode="json") for fix_attempt in fix_attempts])}
        if fix_attempts
        else {}
    )


def stop_test_fixing_reason(verdicts: Sequence[TestVerdict], verdict: TestVerdict, fixes: int, limit: int) -> str:
    """Return the reason why no further fix is attempted after a red verdict: the limit is reached, or fixes do not
    help; empty: one is.

    verdicts      those before it, in order; the first is about the state before any fix
    fixes, limit  how many were made, in this and earlier rounds, and are allowed
    """
    if limit == 0:
        return f"tests are red: {verdict.summary}"
    if fixes >= limit:
        return f"tests are red after {_fix_count_text(fixes)}"
    return not_converging_reason(verdicts[1:], verdict)


def stop_review_fixing_reason(fixes: int, limit: int) -> str:
    """Return the reason why no further fix of a review's blockers is attempted, that `limit` is reached; empty: one
    is."""
    if fixes < limit:
        return ""
    return f"blockers remain after {_fix_count_text(fixes)}" if fixes else "the review found blockers"


def not_converging_reason(verdicts: Sequence[TestVerdict], verdict: TestVerdict) -> str:
    """Return the reason to stop when two fixes in a row left the same failures, or the last one changed nothing; empty:
    go on.

    verdicts  after the fixes before the last one, in order
    verdict   after the last fix

    A verdict without a fingerprint, from an older release, is equal to none.
    """
    previous = verdicts[-1] if verdicts else None
    if previous is None or not previous.fingerprint or not verdict.fingerprint:
        return ""
    if previous.tree == verdict.tree:
        return f"not converging: the last fix changed nothing, and still {verdict.summary}"
    if previous.fingerprint == verdict.fingerprint:
        return f"not converging: two fixes in a row left the same failures: {verdict.summary}"
    return ""


def _fix_count_text(number: int) -> str:
    """Return `1 fix`, `2 fixes`."""
    return f"{number} fix{'es' if number != 1 else ''}"
