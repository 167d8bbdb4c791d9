"""The choice of another attempt at the failures: pure decisions over verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.models.work import TestVerdict


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
