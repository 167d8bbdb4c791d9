"""The pieces of a state: each instance has its own, a copy for a retry shares none, and what is at its default takes no
room."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import BacklogState, ItemState
from perdure.models.delivery.state import DeliveryState
from tests.states import prepared_workspace

ITEM = BacklogItem(id="api", request="Add api")


def pieces(model: BaseModel) -> dict[str, BaseModel]:
    return {name: value for name in type(model).model_fields if isinstance(value := getattr(model, name), BaseModel)}


@pytest.mark.parametrize(("first", "second"), [(DeliveryState(), DeliveryState()), (BacklogState(), BacklogState())])
def test_two_states_share_no_piece(first: BaseModel, second: BaseModel) -> None:
    mutable = [name for name, piece in pieces(first).items() if not piece.model_config.get("frozen")]
    assert len(mutable) > 2
    assert not [name for name in mutable if getattr(first, name) is getattr(second, name)]


def test_what_is_put_into_one_state_is_in_no_other() -> None:
    state, items = DeliveryState(), [ItemState(item=ITEM), ItemState(item=ITEM)]
    state.turns.checkpoint, state.fixing.counts["fix_tests"], items[0].child.id = "c1", 1, "night/api"
    assert DeliveryState() == DeliveryState.model_validate({})
    assert (DeliveryState().turns.checkpoint, DeliveryState().fixing.counts, items[1].child.id) == ("", {}, "")


def test_a_retry_changes_nothing_of_the_state_it_is_made_from() -> None:
    state = DeliveryState()
    state.fixing.test_fixes = state.landing.fixes = 2
    state.gates.hold_reason = "held: lunch"
    retried = state.for_retry()
    retried.turns.checkpoint = "c2"
    assert (retried.fixing.test_fixes, retried.landing.fixes, retried.gates.hold_reason) == (0, 0, "")
    assert (state.fixing.test_fixes, state.landing.fixes, state.gates.hold_reason) == (2, 2, "held: lunch")
    assert state.turns.checkpoint == ""


def test_a_piece_at_its_defaults_is_left_out_and_comes_back() -> None:
    state = DeliveryState()
    state.turns.checkpoint = "c1"
    dumped = state.model_dump(mode="json", exclude_defaults=True)
    assert dumped == {"turns": {"checkpoint": "c1"}}
    assert DeliveryState.model_validate(dumped) == state
    night = BacklogState(items={"api": ItemState(item=ITEM)})
    assert night.dump_for_next_run() == {"items": {"api": {"item": {"id": "api", "request": "Add api"}}}}
    workspace = prepared_workspace(asks=True)
    assert {"decisions": {"asks": True}}.items() <= workspace.model_dump(mode="json").items()
    assert "limits" not in workspace.model_dump(mode="json")
