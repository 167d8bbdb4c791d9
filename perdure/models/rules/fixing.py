"""Decisions on fixing: whether another fix is attempted, and the earlier fixes that its agent is told of; pure
decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from perdure.models.phases import Step
from perdure.models.turn import FIX_CAUSES, FixAttempt
from perdure.models.work import TestVerdict

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
    """Return the fixes made so far as material `tries` of a turn's input, in JSON; empty before the first."""
    return (
        {"tries": json.dumps([fix_attempt.model_dump(mode="json") for fix_attempt in fix_attempts])}
        if fix_attempts
        else {}
    )


def stop_test_fixing_reason(verdicts: Sequence[TestVerdict], verdict: TestVerdict, fixes: int, limit: int) -> str:
    """Return the reason why no further fix is attempted after a red verdict; empty: one is.

    verdicts      those before it, in order; the first is about what there was before any fix
    fixes, limit  fixes made, in this and earlier rounds, and allowed
    """
    if limit == 0:
        return f"tests are red: {verdict.summary}"
    if fixes >= limit:
        return f"tests are red after {_fix_count_text(fixes)}"
    return not_converging_reason(verdicts[1:], verdict)


def stop_review_fixing_reason(fixes: int, limit: int) -> str:
    """Return the reason why no further fix is attempted at a review's blockers; empty: one is."""
    if fixes < limit:
        return ""
    return f"blockers remain after {_fix_count_text(fixes)}" if fixes else "the review found blockers"


def not_converging_reason(verdicts: Sequence[TestVerdict], verdict: TestVerdict) -> str:
    """Return a reason where two fixes in a row left the same failures, or the last one changed nothing; empty: go on.

    verdicts  on what the fixes before the last one made, in order
    verdict   on what the last fix made

    A verdict without a fingerprint is of an older release and equal to none: a kept history goes the way it went.
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
