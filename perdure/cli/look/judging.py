"""The answer of a source to a claim: it holds, it does not, or nobody can tell."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.models.verify import Mark

Judged = tuple[Mark, str]


def yes(said: str) -> Judged:
    return Mark.VERIFIED, said


def no(problems: Iterable[str]) -> Judged:
    return Mark.CONTRADICTED, "; ".join(problems)


def unknown(why: str) -> Judged:
    return Mark.UNKNOWN, why
