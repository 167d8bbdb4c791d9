"""The question at each gate, named by its exact hash, and what they decided about it; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.models.amounts import parse_duration
from perdure.models.config import RepositoryConfig
from perdure.models.decisions import DecisionRecord, Gate, GateVerdict
from perdure.models.phases import Phase
from perdure.models.request import DeliveryRequest
from perdure.models.state import DeliveryState

CANNOT_TELL = "new and old failures cannot be told apart"

GateQuestion = tuple[str, str, tuple[str, ...]]
"""The question at a gate: its name, the question in words, and the updates that decide it."""


def gate_settings(config: RepositoryConfig, phases: Sequence[str], request: DeliveryRequest) -> dict[str, Any]:
    """Return the gates and how long they wait, as fields of PreparedWorkspace.

    A gate before something that these phases do not do is left out. `gate_expiry_s` is 0 where gates wait for ever.
    """
    wanted_gates = {*config.gates.before, *request.gates}
    publishes = Phase.SHIP in phases or request.push
    gates = [Gate.PLAN] if Phase.PLAN in phases and Gate.PLAN in wanted_gates else []
    gates += [Gate.TESTS] if config.delivery.questions and {Phase.TEST, Phase.SHIP} <= {*phases} else []
    gates += [Gate.DEATHS] if config.delivery.questions else []
    gates += [Gate.LANDING] if config.delivery.questions and request.landing is not None else []
    gates += [Gate.ITEMS] if request.landing is not None and request.landing.decompose == "ask" else []
    gates += [Gate.PULL_REQUEST] if publishes and Gate.PULL_REQUEST in wanted_gates else []
    return {
        "asks": True,
        "checks_plans": True,
        "gates": tuple(str(gate) for gate in gates),
        "gate_expiry_s": parse_duration(config.gates.expire) if config.gates.expire else 0.0,
    }


def gate_question(gate: Gate, state: DeliveryState) -> GateQuestion:
    """Return what is decided at this gate now: its name, the question, and the updates that decide it.

    What was made anew after a decision has another name, even where it is the same again: it is decided once more.
    """
    match gate:
        case Gate.PLAN | Gate.ITEMS:
            question = f"approve the {gate}: {state.title}" if state.title else f"approve the {gate}"
            version = state.plans + state.edits if state.edits or state.plans > 1 else 0
            return _target_name(state.plan, version), question, ("approve", "reject", "edit_plan")
        case Gate.TESTS:
            tree, summary = (state.tests.tree, state.tests.summary) if state.tests else ("", "")
            question = f"{CANNOT_TELL}: {summary}; approve if none is new, reject with what to mend"
            return _target_name(tree, state.requested_fixes), question, ("approve", "reject")
        case Gate.LANDING:
            question = f"it could not land: {landing_obstacle(state)}; approve to mend it again, reject to end it"
            return (
                _target_name(state.head or state.unlanded_commit, state.landing_fixes),
                question,
                ("approve", "reject"),
            )
        case _:
            question = f"publish {state.head[:7]} as {_publication_text(state)}{_changed_promises_text(state)}"
            return _target_name(state.head, state.mend_rounds), question, ("approve", "reject")


def landing_obstacle(state: DeliveryState) -> str:
    """Return the reason why the change could not land, in one line: the files in conflict, or the red tests."""
    if state.conflicts:
        more = len(state.conflicts) - 3
        return f"conflicts in {', '.join(state.conflicts[:3])}" + (f" and {more} more" if more > 0 else "")
    return state.tests.summary if state.tests is not None else "tests are red"


def red_tests_approval(state: DeliveryState) -> DecisionRecord | None:
    """Return a person's approval of the red tests on this very tree, where nothing else can tell what failed before.

    None: nobody gave it, or the tests themselves tell now which failures are new.
    """
    if state.tests is None or not state.tests.undecidable:
        return None
    target, _, _ = gate_question(Gate.TESTS, state)
    decided = state.decided.get(f"{Gate.TESTS}:{target}")
    return decided if decided is not None and decided.verdict is GateVerdict.APPROVED else None


def red_tests_approval_text(state: DeliveryState) -> str:
    """Return `approved by Ada: as we said`, a person's approval of red tests, in one line for the result; empty: there
    is none."""
    decided = red_tests_approval(state)
    if decided is None:
        return ""
    by = f" by {decided.by}" if decided.by else ""
    return f"approved{by}" + (f": {decided.note}" if decided.note else "")


def _target_name(sha: str, version: int) -> str:
    """Return the name of what is decided: the beginning of its hash, and its version where that is not 0."""
    return f"{sha[:8]}-{version}" if version else sha[:8]


def _changed_promises_text(state: DeliveryState) -> str:
    """Return `, with 2 changed promises: test_a, test_b`, of base tests that fail on the change; empty: there are
    none."""
    number = state.tests.promises if state.tests else 0
    if not number:
        return ""
    names = [name.rsplit("::", 1)[-1] for name in state.tests.promised] if state.tests else []
    more = f" and {number - len(names)} more" if names and number > len(names) else ""
    names_text = f": {', '.join(names)}{more}" if names else ""
    return f", with {number} changed promise{'s' if number != 1 else ''}{names_text}"


def _publication_text(state: DeliveryState) -> str:
    """Return as what the newest commit is published: a pull request, or a commit of which branch."""
    prepared = state.prepared
    if prepared is not None and prepared.landing:
        return f"a commit of {prepared.landing}"
    if prepared is None or Phase.SHIP in prepared.phases:
        return "a pull request"
    return f"the newest commit of {prepared.branch}"
