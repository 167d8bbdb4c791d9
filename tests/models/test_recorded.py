"""State that lives in history comes back as it was, in pieces, and leaves its defaults out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import SchemaSerializer, core_schema, to_json

from perdure.models import limits
from perdure.models.backlog import landing
from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import BacklogState, ItemState
from perdure.models.base import HistoryModel
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery import fold, publishing, turn, verify, work
from perdure.models.delivery.request import ResumePoint
from perdure.models.delivery.state import BuildingState, DeliveryState, FixingState, TurnsState, parse_resume_state
from perdure.models.delivery.turn import Ending, Outcome, TurnResult
from perdure.models.delivery.work import CloseResult
from perdure.models.phases import ALL_PHASES, Phase, Step, invalid_phases_reason
from tests.states import prepared_workspace

ROOT = Path(__file__).parents[2]
TOKENS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    input_tokens=TOKENS,
    cache_read_tokens=TOKENS,
    cache_write_tokens=TOKENS,
    output_tokens=TOKENS,
    cost_usd=st.one_of(st.none(), st.integers(0, 10**6).map(lambda cents: cents / 100)),
)
RESULTS = st.builds(
    TurnResult,
    checkpoint=st.text(max_size=5),
    summary=st.text(max_size=5),
    usage=USAGES,
    spend=st.builds(Spend, usd=st.one_of(st.none(), st.just(0.0), st.just(0.25)), at_risk_usd=st.just(0.5)),
    outcome=st.one_of(st.none(), st.builds(Outcome, ending=st.sampled_from(Ending), summary=st.text(max_size=5))),
    adopted=st.booleans(),
)


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order_and_an_unknown_price_stays_unknown(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    total = a + b + c
    assert total.prompt_tokens == a.prompt_tokens + b.prompt_tokens + c.prompt_tokens
    assert (total.cost_usd is None) == (None in (a.cost_usd, b.cost_usd, c.cost_usd))


@given(RESULTS)
def test_what_is_recorded_comes_back_and_leaves_its_defaults_out(result: TurnResult) -> None:
    written = result.model_dump_json()
    assert TurnResult.model_validate_json(written) == result
    assert TurnResult.model_validate({**json.loads(written), "of a newer version": 1}) == result
    assert ("adopted" in json.loads(written)) == result.adopted
    assert {"checkpoint", "summary"} <= json.loads(written).keys()


def test_a_state_begins_again_with_its_work_and_without_its_verdict() -> None:
    state = DeliveryState(
        turns=TurnsState(checkpoint="c"),
        status="not_delivered",
        reason="limits",
        message="m",
        fixing=FixingState(test_fixes=3),
        building=BuildingState(built=True),
    )
    left = ResumePoint(run_id="r", state=state.for_retry().model_dump(mode="json", exclude_defaults=True))
    assert parse_resume_state(left) == DeliveryState(
        turns=TurnsState(checkpoint="c"), building=BuildingState(built=True)
    )


def test_phases_that_cannot_stand_alone_are_told_why() -> None:
    assert invalid_phases_reason(ALL_PHASES, None) is None
    assert invalid_phases_reason((Phase.PLAN,), None) is None
    assert invalid_phases_reason((), None) == "no phase is selected"
    assert invalid_phases_reason((Phase.REVIEW,), "branch") is None
    for phase in (Phase.TEST, Phase.REVIEW, Phase.SHIP):
        assert str(invalid_phases_reason((Phase.PLAN, phase), None)).startswith(f"{phase} needs something to work on")


def test_a_reply_whose_turn_was_cut_off_is_counted_once_by_the_retry_that_takes_it_up() -> None:
    first, second = Usage(output_tokens=5, cost_usd=0.1), Usage(output_tokens=7, cost_usd=0.2)
    state = DeliveryState()
    fold.apply_turn(state, Step.PLAN, 1, 1, TurnResult(checkpoint="c1", summary="", usage=first))
    booked = state.spending.usage
    fold.apply_close(state, CloseResult(usage=first + second))  # the second reply was paid, its turn cancelled
    assert state.spending.usage.output_tokens == 12, "the end says what was paid"
    retry = state.for_retry(booked)
    fold.apply_turn(retry, Step.PLAN, 1, 2, TurnResult(checkpoint="c2", summary="", usage=second))
    fold.apply_close(retry, CloseResult(usage=first + second))
    assert retry.spending.usage.output_tokens == 12


def test_every_shared_limit_is_used() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    files = [file for top in ("perdure", "workflows", "activities") for file in (ROOT / top).rglob("*.py")]
    files = [ROOT / "worker.py", *(file for file in files if file.name != "limits.py")]
    words = set(re.findall(r"\w+", " ".join(file.read_text() for file in files)))
    assert len(names) > 50
    assert not names - words, "a limit that nothing keeps"
    assert not set(vars(limits.DEFAULTS)) - words


def test_the_two_programs_people_copy_stay_short() -> None:
    for name, most in (("worker.py", 80), ("starter.py", 60)):
        assert len((ROOT / name).read_text().splitlines()) <= most, name


def test_the_contract_is_called_policy_on_the_wire_so_that_releases_understand_each_other() -> None:
    there = [found for module in (landing, publishing, turn, verify, work) for found in vars(module).values()]
    models = {cls for cls in there if isinstance(cls, type) and issubclass(cls, HistoryModel)}
    named = [model for model in models if "contract" in model.model_fields]
    assert len(named) == 16
    assert {model.model_fields["contract"].alias for model in named} == {"policy"}
    asked = publishing.AccessCheckInput(delivery="d", contract="c0ffee")
    sent = SchemaSerializer(core_schema.any_schema()).to_json(asked)  # as the Temporal converter does
    assert json.loads(sent) == asked.model_dump() == json.loads(to_json(asked)) == {"delivery": "d", "policy": "c0ffee"}
    assert publishing.AccessCheckInput.model_validate_json(sent) == asked
    assert publishing.AccessCheckInput.model_validate({"delivery": "d", "contract": "c0ffee"}) == asked


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
