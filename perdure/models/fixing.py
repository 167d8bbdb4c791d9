"""Whether another attempt at the failures makes sense: pure decisions over verdicts."""

from __future__ import annotations

from perdure.models.result import TestsStatus
from perdure.models.work import TestVerdict


def needs_a_fix(verdict: TestVerdict) -> bool:
    """Red through something new. What cannot be told from old failures is not paid for: a person has to look."""
    return verdict.status is TestsStatus.RED and not verdict.undecidable


def not_converging(left: TestVerdict | None, verdict: TestVerdict) -> str:
    """What to say when two attempts in a row left the same failures; empty when there is still hope.

    left     the verdict on what the attempt before last made; None when there was none
    verdict  on what the last attempt made

    A verdict without a fingerprint is of an older release and equal to none: a kept history goes the way it went.
    """
    if left is None or not left.fingerprint or not verdict.fingerprint:
        return ""
    if left.tree == verdict.tree:
        return f"not converging: the last fix changed nothing, and still {verdict.summary}"
    if left.fingerprint == verdict.fingerprint:
        return f"not converging: two fixes in a row left the same failures: {verdict.summary}"
    return ""
