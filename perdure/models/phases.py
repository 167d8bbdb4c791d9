"""The vocabulary of the business process: phases that a user selects, steps that the engine carries out, kinds of
request; and which selections of phases make sense."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum


class Phase(StrEnum):
    """A part of a delivery that a user can select, skip or run alone; `land` comes in the place of `ship` where it is
    part of a backlog, and is never selected."""

    PLAN = "plan"
    BUILD = "build"
    TEST = "test"
    REVIEW = "review"
    SHIP = "ship"
    LAND = "land"


class Step(StrEnum):
    """Activities of that name; an agentic step is a sequence of them, one a turn. About each: the table in `steps`."""

    PREPARE = "prepare"
    CLASSIFY = "classify"
    PLAN = "plan"
    DECOMPOSE = "decompose"
    IMPLEMENT = "implement"
    COMMIT = "commit"
    DOCUMENT = "document"
    RUN_TESTS = "run_tests"
    FIX_TESTS = "fix_tests"
    REVIEW = "review"
    FIX_REVIEW = "fix_review"
    OPEN_PULL_REQUEST = "open_pull_request"
    REBASE = "rebase"
    FIX_LANDING = "fix_landing"
    LAND = "land"


class Kind(StrEnum):
    """The sort of a request: anything else is an error, not a guess."""

    BUG = "bug"
    FEATURE = "feature"
    CHORE = "chore"


ALL_PHASES: tuple[Phase, ...] = tuple(phase for phase in Phase if phase is not Phase.LAND)


def needs_no_request(phases: tuple[Phase, ...] | None, branch: str | None, plan: str | None) -> bool:
    """Return True when a delivery with these phases needs no request in words: phases are selected, and it works on an
    existing branch, which it only tests, ships or reviews.

    A review compares the branch with something, so with a review it needs a `plan` instead.
    """
    if branch is None or not phases or Phase.PLAN in phases or Phase.BUILD in phases:
        return False
    return Phase.REVIEW not in phases or bool(plan and plan.strip())


def unreachable_gate_reason(gates: Collection[str], phases: Iterable[Phase], *, push: bool) -> str:
    """Return one sentence why nothing would ever wait at one of these gates, or an empty text when each is reached.

    Gate plan needs phase plan, gate pull_request phase ship, or `push`: new commits are pushed without it.
    """
    selected = {*phases} | ({Phase.SHIP} if push else set())
    for gate, phase in (("plan", Phase.PLAN), ("pull_request", Phase.SHIP)):
        if gate in gates and phase not in selected:
            return f"nothing would wait at {gate}: phase {phase} is not selected"
    return ""


def invalid_phases_reason(phases: tuple[Phase, ...], branch: str | None) -> str | None:
    """Return one sentence why these phases cannot be selected together, or None when they can: none is selected, `land`
    is, or testing, reviewing or shipping is selected without building or an existing branch."""
    if not phases:
        return "no phase is selected"
    if Phase.LAND in phases:
        return "land cannot be selected: it comes with a backlog, in the place of ship"
    if branch is None and Phase.BUILD not in phases:
        for phase in (Phase.TEST, Phase.REVIEW, Phase.SHIP):
            if phase in phases:
                return f"{phase} needs something to work on: select build too, or name an existing branch"
    return None
