"""A large request as items: checked as a file of them is, and taken into a backlog whose ids may be taken."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.answers import parse_answer, schema_for
from perdure.models.backlog.request import ITEMS_MOST, BacklogItem
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState
from perdure.models.phases import Step
from perdure.models.rules.backlog import parse_backlog
from perdure.models.rules.changes import change_refusal, decompose_item
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.scheduling import count_items_to_land

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def answer(*items: dict[str, Any]) -> str:
    return json.dumps({"items": [{"request": "Do it", **item} for item in items]})


def state(**items: Any) -> BacklogState:
    made = {id: BacklogItem(id=id, request="r", **more) for id, more in items.items()}
    return BacklogState(items={id: ItemState(item=item, order=n) for n, (id, item) in enumerate(made.items())})


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "items: there is none"),
        (
            [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}],
            "none of these can be the first: a → b → a",
        ),
        ([{"id": "a"}, {"id": "b", "depends_on": ["aa"]}], "there is no item aa (did you mean a?)"),
        ([{"id": "a"}, {"id": "a"}], "items.1.id: a is the id of item 1, too"),
        ([{"id": "a", "depends_on": ["a"]}], "a depends on itself"),
        ([{"id": "a", "touches": ["../x"]}], "items.0.touches: '../x' leaves the repository (item a)"),
        ([{"id": "a", "request": " "}], "items.0.request: is empty"),
        ([{"id": "Big One"}], "'Big One' is no id"),
        ([{"id": f"a{n}"} for n in range(ITEMS_MOST + 1)], "1001 of them, at most 1000 fit"),
    ],
)
def test_what_no_backlog_could_begin_with_is_said_to_the_model_in_the_words_a_file_is_refused_with(
    items: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        parse_answer(Step.DECOMPOSE, answer(*items))
    assert "Value error" not in str(error.value)


def test_items_are_the_answer_as_they_were_given_and_one_is_enough() -> None:
    outcome, kept = parse_answer(Step.DECOMPOSE, answer({"id": "api", "touches": ["src/**"], "role": "backend"}))
    assert outcome.summary == outcome.data["title"] == "1 item: api"
    assert outcome.data["words"] == "api: Do it"
    assert kept is not None
    assert json.loads(kept)["items"][0]["role"] == "backend"


def test_the_schema_is_one_that_the_api_takes() -> None:
    schema = schema_for(Step.DECOMPOSE)
    assert schema is not None
    assert "maxItems" not in json.dumps(schema)
    part = schema["$defs"]["Part"]
    assert part["additionalProperties"] is False
    assert set(part["required"]) == set(part["properties"]) > {"id", "request", "depends_on", "touches", "check"}


def test_parts_take_an_items_place_and_what_depends_on_it_waits_for_all_of_them() -> None:
    backlog = state(big={"decompose": "ask", "labels": ("night",), "role": "backend"}, docs={"depends_on": ("big",)})
    parts = [BacklogItem(id="api", request="r", role="test"), BacklogItem(id="page", request="r", depends_on=("api",))]
    decompose_item(backlog, "big", parts, NOW)
    assert backlog.items["big"].phase is ItemPhase.DECOMPOSED
    assert backlog.items["docs"].item.depends_on == ("api", "page")
    assert [at.item.role for at in backlog.items.values()][2:] == ["test", "backend"]
    assert all(backlog.items[id].item.labels == ("night",) for id in ("api", "page"))
    assert Dependencies.from_state(backlog).missing == {"docs": ("api", "page"), "api": (), "page": ("api",)}
    assert count_items_to_land(backlog) == 3
    for change in ("skip", "retry", "cancel_item", "prioritise"):
        assert "was decomposed" in change_refusal(backlog, change, "big")
    assert "was decomposed" in change_refusal(backlog, "edit", "big", backlog.items["big"].item)


@given(st.lists(st.sampled_from(["a", "a-2", "b", "b-2", "c" * 40, "c" * 39]), unique=True, min_size=1))
def test_a_part_whose_id_is_taken_gets_one_that_is_not_and_is_meant_by_it(names: list[str]) -> None:
    backlog = state(**{"big": {"decompose": "go"}, "a": {}, "b-2": {}, "c" * 40: {}})
    parts = [BacklogItem(id=id, request=id, depends_on=tuple(names[:n])) for n, id in enumerate(names)]
    decompose_item(backlog, "big", parts, NOW)
    made = {at.item.request: at.item for at in list(backlog.items.values())[4:]}
    assert list(made) == names
    assert len(backlog.items) == 4 + len(names)
    for n, id in enumerate(names):
        assert made[id].depends_on == tuple(made[one].id for one in names[:n])
        BacklogItem.model_validate(made[id].model_dump())
        assert made[id].id == id or id in ("a", "b-2", "c" * 40)


def test_too_many_parts_for_one_backlog_fail_the_item_and_add_none() -> None:
    backlog = state(big={"decompose": "go"})
    decompose_item(backlog, "big", [BacklogItem(id=f"a{n}", request="r") for n in range(ITEMS_MOST)], NOW)
    assert backlog.items["big"].phase is ItemPhase.FAILED
    assert backlog.items["big"].message == "1000 items more: a backlog has at most 1000"
    assert list(backlog.items) == ["big"]


@pytest.mark.parametrize("field", ["check", "touches"])
def test_an_item_that_is_decomposed_lands_nothing_itself(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: an item that is decomposed lands nothing itself"):
        BacklogItem(id="big", request="r", decompose="ask", **{field: ("make",)})


def test_it_has_a_place_in_a_stack_and_so_have_its_parts() -> None:
    item = {"id": "big", "request": "r", "decompose": "go"}
    assert parse_backlog({"repository": "r", "land": "stack", "items": [item]}).items[0].decompose == "go"
    backlog = state(low={}, big={"decompose": "go", "depends_on": ("low",)}, top={"depends_on": ("big",)})
    parts = [BacklogItem(id=id, request="r", check=("make",)) for id in ("api", "docs")]
    decompose_item(backlog, "big", parts, NOW, stacked=True)
    assert backlog.items["big"].phase is ItemPhase.DECOMPOSED
    on = {id: at.item.depends_on for id, at in backlog.items.items()}
    assert (on["api"], on["docs"], on["top"]) == (("low",), ("low", "api"), ("api", "docs"))
    assert not any(at.item.check for at in backlog.items.values())
