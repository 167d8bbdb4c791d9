"""What fits a schema is what the engine takes, and the other way round, as far as a schema can say: tried with many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perdure.models.backlog.request import BacklogRequest
from perdure.models.delivery.decisions import parse_input
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.errors import InvalidRequest
from perdure.models.rules.backlog import parse_backlog
from perdure.models.rules.inbox import DECISION_MODELS as DECISIONS
from schemas import SHAPES, build_schema

SENT = {shape.name: shape for shape in SHAPES if shape.sent}
SCHEMAS = {name: Draft202012Validator(build_schema(shape)) for name, shape in SENT.items()}

ODD = st.one_of(
    st.sampled_from(["", " ", "x", "5", "yes", "#12", "1h 30m", "soon", "plan", "question", "a" * 64, "é" * 2049]),
    st.sampled_from(
        [True, False, -1, 0, 1, 12, 1.5, 100_001, 10**400, [], [""], ["plan"], ["test"], [12], {}, {"a": 1}]
    ),
    st.text(max_size=5),
)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "repository": st.sampled_from(["/r", "https://github.com/me/calc", "git@github.com:me/calc.git"]),
    "request": st.sampled_from(["Add sub", "", " \n"]),
    "phases": st.lists(st.sampled_from(["plan", "build", "test", "review", "ship"]), max_size=3),
    "gates": st.lists(st.sampled_from(["plan", "pull_request"]), max_size=2),
    "issue": st.sampled_from([12, "12", " #12 ", "HTTPS://GitHub.com/Me/Calc/issues/12#c"]),
    "branch": st.sampled_from(["topic", "a b"]),
    "plan": st.sampled_from(["Do it", " "]),
    "budget_usd": st.floats(0.01, 100),
    "items": st.lists(
        st.sampled_from([{"id": "a", "request": "Add sub"}, {"issue": 12}, {"id": "b"}, {"id": "c", "touches": ["x"]}]),
        max_size=2,
    ),
    "item": st.sampled_from(["a", {"id": "a", "request": "Add sub", "depends_on": ["b"]}, {"id": "a"}]),
    "priority": st.integers(-101, 101),
    "parallel": st.integers(0, 101),
    "window": st.sampled_from(["23:00-07:00", "23:00-07:00 Europe/Berlin", "at night"]),
    "gate": st.sampled_from(["plan", "budget"]),
    "update": st.sampled_from(["approve", "add_budget"]),
    "said": st.just({"of": "beef"}),
    "usd": st.floats(0, 100),
    "tokens": st.integers(0, 9),
    "time": st.sampled_from(["1h", "1.5h 30m", " 5 m"]),
}


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A message by name, some of its fields, most of them as they should be."""
    name = draw(st.sampled_from(sorted(SENT)))
    shape = SCHEMAS[name].schema
    properties = shape["properties"]
    fields = draw(st.sets(st.sampled_from([*properties, "tomorrow"]), max_size=4)) if properties else set()
    fields |= set(shape.get("required", ())) if draw(st.integers(0, 9)) else set()
    if name == "request" and draw(st.booleans()):
        fields |= {"request"}
    value = {field: draw(GOOD.get(field, ODD) if draw(st.integers(0, 4)) else ODD) for field in sorted(fields)}
    return name, value


@given(messages())
def test_the_engine_takes_what_fits_the_schema_and_nothing_else(message: tuple[str, dict[str, Any]]) -> None:
    name, sent = message
    fits, refusal = SCHEMAS[name].is_valid(sent), refused(name, sent)
    assert fits is (refusal == "") or beyond(name, sent, refusal), (name, sent, fits, refusal)


def refused(name: str, sent: dict[str, Any]) -> str:
    model = SENT[name].model
    try:
        if model is DeliveryRequest:
            parse_request(sent)
        elif model is BacklogRequest:
            parse_backlog(sent)
        else:
            parse_input(model, sent)  # type: ignore[type-var]
    except InvalidRequest as error:
        return error.what
    return ""


def beyond(name: str, sent: dict[str, Any], refusal: str) -> bool:
    """What no schema can say: limits in bytes, and what two fields make of each other. And what a model leaves to the
    delivery, which refuses it or notes it: an amount of nothing, a decision that there is none of."""
    if "bytes, at most" in refusal or "is not an issue of" in refusal:
        return True
    match name:
        case "backlog":  # what two items make of each other, and what is no issue of the repository
            return any(words in refusal for words in ("depends_on: ", "is the id of item", "issue: ", "window: "))
        case "request":
            return refusal.startswith("request: ")
        case "add_budget" | "item_add_budget":
            amounts = [sent[field] for field in ("usd", "tokens", "time") if field in sent]
            return not amounts or any(isinstance(amount, bool | str) for amount in amounts)
        case "decide":
            return sent.get("update") not in DECISIONS
        case "rewind":  # `format: date-time` is not checked by every validator
            return refusal.startswith("since: ")
    return False


@pytest.mark.parametrize("name", ["approve", "add_budget"])
def test_what_is_null_fits_where_the_schema_says_so(name: str) -> None:
    properties = build_schema(SENT[name])["properties"]
    nullable = [field for field, said in properties.items() if {"type": "null"} in said.get("anyOf", [])]
    assert nullable
    for field in nullable:
        sent = {"usd": 1} if name == "add_budget" else {}
        assert SCHEMAS[name].is_valid({**sent, field: None})
        assert refused(name, {**sent, field: None}) == ""
