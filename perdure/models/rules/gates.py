"""The matter put before a person at each gate, by its exact hash, and what became of it; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.models.amounts import seconds
from perdure.models.config import RepositoryConfig
from perdure.models.decisions import Decided, Gate, Verdict
from perdure.models.phases import Phase
from perdure.models.request import DeliveryRequest
from perdure.models.state import DeliveryState

CANNOT_TELL = "new and old failures cannot be told apart"

Put = tuple[str, str, tuple[str, ...]]
"""Its name, the question in words, and the updates that decide it."""


def decided_by_people(config: RepositoryConfig, phases: Sequence[str], request: DeliveryRequest) -> dict[str, Any]:
    """Return the gates and their time, as fields of Prepared; a gate before what is not done is none."""
    wanted = {*config.gates.before, *request.gates}
    publishes = Phase.SHIP in phases or request.push
    gates = [Gate.PLAN] if Phase.PLAN in phases and Gate.PLAN in wanted else []
    gates += [Gate.TESTS] if config.delivery.questions and {Phase.TEST, Phase.SHIP} <= {*phases} else []
    gates += [Gate.DEATHS] if config.delivery.questions else []
    gates += [Gate.LANDING] if config.delivery.questions and request.landing is not None else []
    gates += [Gate.ITEMS] if request.landing is not None and request.landing.decompose == "ask" else []
    gates += [Gate.PULL_REQUEST] if publishes and Gate.PULL_REQUEST in wanted else []
    return {
        "asks": True,
        "checks_plans": True,
        "gates": tuple(str(gate) for gate in gates),
        "gate_expiry_s": seconds(config.gates.expire) if config.gates.expire else 0.0,
    }


def put(gate: Gate, state: DeliveryState) -> Put:
    """At `gate`, now. What is made anew after a decision is another thing to decide, though it be the same again."""
    match gate:
        case Gate.PLAN | Gate.ITEMS:
            words = f"approve the {gate}: {state.title}" if state.title else f"approve the {gate}"
            again = state.plans + state.edits if state.edits or state.plans > 1 else 0
            return _named(state.plan, again), words, ("approve", "reject", "edit_plan")
        case Gate.TESTS:
            tree, summary = (state.tests.tree, state.tests.summary) if state.tests else ("", "")
            words = f"{CANNOT_TELL}: {summary}; approve if none is new, reject with what to mend"
            return _named(tree, state.asked_fixes), words, ("approve", "reject")
        case Gate.LANDING:
            words = f"it could not land: {in_the_way(state)}; approve to mend it again, reject to end it"
            return _named(state.head or state.unlanded, state.landing_fixes), words, ("approve", "reject")
        case _:
            words = f"publish {state.head[:7]} as {_as(state)}{_promises(state)}"
            return _named(state.head, state.mends), words, ("approve", "reject")


def in_the_way(state: DeliveryState) -> str:
    """The reason why a change could not land, in one line."""
    if state.conflicts:
        more = len(state.conflicts) - 3
        return f"conflicts in {', '.join(state.conflicts[:3])}" + (f" and {more} more" if more > 0 else "")
    return state.tests.summary if state.tests is not None else "tests are red"


def let_through(state: DeliveryState) -> Decided | None:
    """A person's word that the red tests of this very tree were red before; None where nobody gave it, and where the
    tests themselves now tell what is new."""
    if state.tests is None or not state.tests.undecidable:
        return None
    of, _, _ = put(Gate.TESTS, state)
    decided = state.decided.get(f"{Gate.TESTS}:{of}")
    return decided if decided is not None and decided.verdict is Verdict.APPROVED else None


def accepted(state: DeliveryState) -> str:
    """That in one line, for whoever reads the result; empty where it was not needed."""
    decided = let_through(state)
    if decided is None:
        return ""
    by = f" by {decided.by}" if decided.by else ""
    return f"approved{by}" + (f": {decided.note}" if decided.note else "")


def _named(sha: str, again: int) -> str:
    return f"{sha[:8]}-{again}" if again else sha[:8]


def _promises(state: DeliveryState) -> str:
    """Tests of the base that do not hold any more: whoever publishes knows of them."""
    number = state.tests.promises if state.tests else 0
    if not number:
        return ""
    names = [name.rsplit("::", 1)[-1] for name in state.tests.promised] if state.tests else []
    more = f" and {number - len(names)} more" if names and number > len(names) else ""
    named = f": {', '.join(names)}{more}" if names else ""
    return f", with {number} changed promise{'s' if number != 1 else ''}{named}"


def _as(state: DeliveryState) -> str:
    prepared = state.prepared
    if prepared is not None and prepared.landing:
        return f"a commit of {prepared.landing}"
    if prepared is None or Phase.SHIP in prepared.phases:
        return "a pull request"
    return f"the newest commit of {prepared.branch}"
