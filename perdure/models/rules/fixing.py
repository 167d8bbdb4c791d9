"""Another attempt at the failures, or none; and what it is told of those before it: pure decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from perdure.models.phases import Step
from perdure.models.turn import TRY_FOUND, Try
from perdure.models.work import TestVerdict

TRIES_KEPT = 12
"""Some 4 KB in the input of a fix's first turn: what can be learnt from more than these is in the newest ones."""


def tried(
    tries: tuple[Try, ...], step: Step, attempt: int, commits: tuple[str, str], found: Mapping[str, str]
) -> tuple[Try, ...]:
    """The tries with one more. `commits`: before it and after it; `found`: the materials it was begun with."""
    about = {name: artifact for name, artifact in found.items() if name in TRY_FOUND}
    made = Try(step=step, attempt=attempt, before=commits[0], after=commits[1], found=about)
    return (*tries, made)[-TRIES_KEPT:]


def as_material(tries: Sequence[Try]) -> dict[str, str]:
    """The form in which a turn's input carries them; nothing before the first."""
    return {"tries": json.dumps([one.model_dump(mode="json") for one in tries])} if tries else {}


def hopeless(left: Sequence[TestVerdict], verdict: TestVerdict, fixes: int, limit: int) -> str:
    """Say why no other attempt is made at a red verdict; empty when one is.

    left          the verdicts so far, in order: first on what there was before any attempt
    fixes, limit  attempts made, in this and earlier rounds, and allowed
    """
    if limit == 0:
        return f"tests are red: {verdict.summary}"
    if fixes >= limit:
        return f"tests are red after {_fixes(fixes)}"
    return not_converging(left[1:], verdict)


def given_up(fixes: int, limit: int) -> str:
    """Say why no other attempt is made at a review's blockers; empty when one is."""
    if fixes < limit:
        return ""
    return f"blockers remain after {_fixes(fixes)}" if fixes else "the review found blockers"


def not_converging(left: Sequence[TestVerdict], verdict: TestVerdict) -> str:
    """Say so when two attempts in a row left the same failures; empty when there is still hope.

    left     verdicts on what the attempts before the last one made, in order
    verdict  on what the last attempt made

    A verdict without a fingerprint is of an older release and equal to none: a kept history goes the way it went.
    """
    before = left[-1] if left else None
    if before is None or not before.fingerprint or not verdict.fingerprint:
        return ""
    if before.tree == verdict.tree:
        return f"not converging: the last fix changed nothing, and still {verdict.summary}"
    if before.fingerprint == verdict.fingerprint:
        return f"not converging: two fixes in a row left the same failures: {verdict.summary}"
    return ""


def _fixes(number: int) -> str:
    return f"{number} fix{'es' if number != 1 else ''}"
