"""docs/schema, the models and the engine agree on what is valid, in both directions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from temporalio.workflow import _Definition

from perdure.models.backlog.request import BacklogRequest
from perdure.models.delivery.decisions import parse_input
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.delivery.state import Progress
from perdure.models.errors import InvalidRequest
from perdure.models.limits import REQUEST_BYTES
from perdure.models.rules.backlog import parse_backlog
from perdure.models.rules.inbox import DECISION_MODELS as DECISIONS
from schemas import SHAPES, PublishedShape, build_files, build_schema
from schemas.__main__ import main
from schemas.describe import parse_docstring
from schemas.generate import DIALECT
from workflows.backlog import Backlog
from workflows.delivery import Delivery

ROOT = Path(__file__).parents[2]
_BETWEEN = (
    "landing_asked",
    "landing_granted",
    "landing_over",
    "item_waits",
    "item_ended",
    "item_planned",
    "item_foreseen",
    "said",
    "more",
    "granted",
    "attempt_waits",
)
"""Signals between workflows of ours, which nobody else sends."""

FORKED = {"delivery": "d", "at": "implement:1", "checkpoint": "a" * 40, "queue": "q"}
LANDING = {"backlog": "night", "item": "a", "branch": "b"}
WITHIN = {"delivery": "d", "terms": "t", "plan": "p", "queue": "q"}

BY_NAME = {shape.name: shape for shape in SHAPES}
each = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.name))


def test_what_is_committed_is_what_the_models_make() -> None:
    made = build_files()
    kept = {name: (ROOT / name).read_text() for name in made if (ROOT / name).exists()}
    assert [name for name in made if kept.get(name) != made[name]] == [], "run make schema"
    assert {f"docs/schema/{path.name}" for path in (ROOT / "docs/schema").iterdir()} <= made.keys()


def test_writing_them_twice_changes_nothing_and_takes_away_what_is_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == len(build_files())
    (tmp_path / "docs/schema/gone.json").write_text("{}")
    main(tmp_path)
    assert capsys.readouterr().out == "docs/schema/gone.json is gone\n"
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == build_files().keys()


@each
def test_every_schema_is_one_that_stands_alone(shape: PublishedShape) -> None:
    made = build_schema(shape)
    Draft202012Validator.check_schema(made)
    assert made["title"] == shape.model.__name__
    assert made["description"]
    text = json.dumps(made | {"$schema": "", "examples": []})
    assert '"$id"' not in text
    assert re.findall(r"\bNone\b|\w+://\w", text) == []
    defined = made.get("$defs", {}).keys()
    assert {ref.removeprefix("#/$defs/") for ref in re.findall(r'"\$ref": "([^"]+)"', text)} == defined
    assert made["$schema"] == DIALECT


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all within it, but for conditions, of which no types are made."""
    if isinstance(schema, list):
        for part in schema:
            yield from parts(part)
    elif isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            if key not in ("if", "else", "default", "examples"):
                yield from parts(list(value.values()) if key in ("properties", "$defs") else value)


@each
def test_a_generator_of_types_finds_no_choice_no_enumeration_without_a_name_and_no_number_without_bounds(
    shape: PublishedShape,
) -> None:
    made = build_schema(shape)
    for part in parts(made):
        assert not part.keys() & {"anyOf", "oneOf", "allOf"}, part
        assert "enum" not in part or part["title"], part
        if "integer" in part.get("type", ()) and "const" not in part:
            least = part["exclusiveMinimum"] if "exclusiveMinimum" in part else part["minimum"]
            assert -(2**53) < least <= part["maximum"] < 2**53, part
    if shape.name == "request":
        assert [name for name, field in made["properties"].items() if "default" not in field] == ["repository"]


@each
def test_every_example_holds_for_the_schema_and_for_the_model(shape: PublishedShape) -> None:
    examples = shape.examples()
    assert examples
    for example in examples:
        Draft202012Validator(build_schema(shape), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(example)
        read(shape, example)


@each
def test_an_unknown_field_is_refused_in_what_people_send_and_let_pass_in_what_they_get(shape: PublishedShape) -> None:
    validator = Draft202012Validator(build_schema(shape))
    more = shape.examples()[0] | {"tomorrow": 1}
    assert validator.is_valid(more) is not shape.sent
    if shape.sent:
        with pytest.raises(InvalidRequest, match="tomorrow: unknown field"):
            read(shape, more)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("request", {"request": "y"}),
        ("request", {"repository": "/x"}),
        ("request", {"repository": "", "request": "y"}),
        ("request", {"repository": "/x", "request": "y" * (REQUEST_BYTES + 1)}),
        ("request", {"repository": "/x", "request": "y", "plan": "y" * (REQUEST_BYTES + 1)}),
        ("request", {"repository": "/x", "request": "y", "phases": ["shp"]}),
        ("request", {"repository": "/x", "request": "y", "gates": ["review"]}),
        ("request", {"repository": "/x", "request": "y", "budget_usd": 0}),
        ("request", {"repository": "/x", "request": "y", "spec_version": 2}),
        ("request", {"repository": "/x", "issue": [12]}),
        ("request", {"repository": "/x", "issue": str(10**10)}),
        ("request", {"repository": "/x", "branch": "topic"}),
        ("request", {"repository": "/x", "request": "y", "forked": {**FORKED, "turns": 2**53}}),
        ("request", {"repository": "/x", "request": "y", "landing": {**LANDING, "within": {**WITHIN, "task": 2**53}}}),
        ("backlog", {"repository": "/x"}),
        ("backlog", {"repository": "/x", "items": []}),
        ("backlog", {"repository": "/x", "issues": "bug"}),
        ("backlog", {"repository": "/x", "items": [{"id": "a"}]}),
        ("backlog", {"repository": "/x", "items": [{"id": "a", "request": " "}]}),
        ("backlog", {"repository": "/x", "items": [{"request": "y"}]}),
        ("backlog", {"repository": "/x", "items": [{"id": "A b", "request": "y"}]}),
        ("backlog", {"repository": "/x", "items": [{"id": "a", "request": "y"}], "window": "at night"}),
        ("backlog", {"repository": "/x", "items": [{"id": "a", "request": "y"}], "land": "trunk"}),
        ("backlog", {"repository": "/x", "items": [{"id": "a", "request": "y"}], "parallel": 101}),
        ("add_item", {"item": {"id": "a", "request": "y", "priority": 101}}),
        ("prioritised_item", {"item": "a"}),
        ("approve", {"of": "x" * 65}),
        ("approve", {"note": "x" * 9000}),
        ("approve", {"gate": "review"}),
        ("reject", {}),
        ("reject", {"note": ""}),
        ("edit_plan", {"plan": "abc"}),
        ("edit_plan", {"title": "no plan"}),
        ("answer", {"answer": ""}),
        ("add_budget", {"usd": -5}),
        ("add_budget", {"usd": 1_000_000}),
        ("add_budget", {"time": "soon"}),
        ("say", {"text": ""}),
        ("say", {"text": "x" * 9000}),
        ("hold", {"note": 5}),
        ("resume", {"now": True}),
        ("decide", {"said": {}}),
    ],
)
def test_what_the_model_refuses_the_schema_refuses(name: str, sent: dict[str, Any]) -> None:
    assert not Draft202012Validator(build_schema(BY_NAME[name])).is_valid(sent)
    with pytest.raises(InvalidRequest):
        read(BY_NAME[name], sent)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("request", {"repository": "git@host:x.git", "request": "é" * (REQUEST_BYTES // 2), "base": None}),
        ("request", {"repository": "/x", "issue": "#12", "request": ""}),
        ("request", {"repository": "/x", "branch": "topic", "phases": ["ship"]}),
        ("request", {"repository": "/x", "request": "y", "issue": None, "labels": ["a"], "gates": []}),
        ("request", {"repository": "/x", "request": "y", "fix": None, "forked": {**FORKED, "turns": 2**53 - 1}}),
        ("request", {"repository": "/x", "request": "y", "landing": {**LANDING, "within": WITHIN, "decompose": None}}),
        ("backlog", {"repository": "/x", "issues": "label:bug"}),
        ("backlog", {"repository": "/x", "items": [{"issue": "14"}, {"id": "b", "issue": "#15", "request": ""}]}),
        ("backlog", {"repository": "/x", "items": [{"issue": "14"}], "window": "23:00-07:00 +02:00", "base": None}),
        ("approve", {"gate": None, "of": "x" * 64}),
        ("add_budget", {"time": "1.5h 30m"}),
        ("add_budget", {"usd": 0.01}),
    ],
)
def test_what_the_model_takes_the_schema_takes(name: str, sent: dict[str, Any]) -> None:
    Draft202012Validator(build_schema(BY_NAME[name])).validate(sent)
    read(BY_NAME[name], sent)


@pytest.mark.parametrize("workflow", [Delivery, Backlog])
def test_every_message_from_outside_has_a_schema_that_says_how_it_travels(workflow: type) -> None:
    definition = _Definition.from_class(workflow)
    assert definition is not None
    ways = " ".join(shape.how for shape in SHAPES)
    between = {name for name in definition.signals if name in _BETWEEN}
    assert [name for name in definition.updates if name and f"`{name}`" not in ways] == []
    assert [
        name for name in definition.signals if name and f"signal `{name}`" not in ways and name not in between
    ] == []
    ours = ("state",)  # with which our client begins an ended backlog again: not for others to rely on
    assert [name for name in definition.queries if name and f"query `{name}`" not in ways and name not in ours] == []


def test_what_a_decision_by_signal_may_be_is_what_updates_are() -> None:
    assert BY_NAME["decide"].model.model_fields["update"].annotation is str
    schema = build_schema(BY_NAME["decide"])
    assert schema["properties"]["update"]["$ref"] == "#/$defs/DecisionUpdate"
    assert schema["$defs"]["DecisionUpdate"]["enum"] == list(DECISIONS)


def test_a_field_is_described_by_the_docstring_of_its_class_or_of_the_one_it_comes_from() -> None:
    properties = build_schema(BY_NAME["request"])["properties"]
    assert properties["branch"]["description"] == "an existing branch to work on instead of starting from the base"
    assert properties["request"]["description"].endswith("or reviewed against a plan"), "a field may take two lines"
    assert build_schema(BY_NAME["reject"])["properties"]["by"]["description"] == "who decides, for the record"
    assert [name for name in DeliveryRequest.model_fields if "description" not in properties[name]] == []


def test_a_docstring_is_taken_apart_into_text_and_fields() -> None:
    doc = """What it is,
    in two lines.

    one, two   belong together
    three      goes
               on; four: is said in the same line; five is words
    three      a second time

    three more words end it.
    """
    text, fields = parse_docstring(doc, ["one", "two", "three", "four"])
    assert text == "What it is, in two lines."
    assert fields["one"] == fields["two"] == "belong together"
    assert fields["three"] == "goes on"
    assert fields["four"] == "is said in the same line; five is words"
    assert parse_docstring(None, []) == ("", {})


def test_what_is_always_there_is_required_and_what_may_be_left_out_is_not() -> None:
    progress = build_schema(BY_NAME["progress"])
    assert progress["required"] == [field.alias or name for name, field in Progress.model_fields.items()]
    assert progress["properties"]["asked"]["required"] == ["gate", "of", "words", "since"]
    assert build_schema(BY_NAME["request"])["required"] == ["repository"]


def read(shape: PublishedShape, value: dict[str, Any]) -> None:
    """As whoever receives it would."""
    if shape.model is DeliveryRequest:
        parse_request(value)
    elif shape.model is BacklogRequest:
        parse_backlog(value)
    elif shape.sent:
        parse_input(shape.model, value)  # type: ignore[type-var]
    else:
        assert shape.model.model_validate(value).model_dump(mode="json") == value


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
    "issue": st.sampled_from(["12", " #12 ", "HTTPS://GitHub.com/Me/Calc/issues/12#c"]),
    "branch": st.sampled_from(["topic", "a b"]),
    "plan": st.sampled_from(["Do it", " "]),
    "budget_usd": st.floats(0.01, 100),
    "items": st.lists(
        st.sampled_from(
            [{"id": "a", "request": "Add sub"}, {"issue": "12"}, {"id": "b"}, {"id": "c", "touches": ["x"]}]
        ),
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
            return not amounts or any(isinstance(amount, bool | str) for amount in amounts) or "the least is" in refusal
        case "decide":
            return sent.get("update") not in DECISIONS
        case "rewind":  # `format: date-time` is not checked by every validator
            return refusal.startswith("since: ")
    return False


@pytest.mark.parametrize("name", ["approve", "add_budget"])
def test_what_is_null_fits_where_the_schema_says_so(name: str) -> None:
    properties = build_schema(SENT[name])["properties"]
    nullable = [field for field, said in properties.items() if "null" in said.get("type", ())]
    assert nullable
    for field in nullable:
        sent = {"usd": 1} if name == "add_budget" else {}
        assert SCHEMAS[name].is_valid({**sent, field: None})
        assert refused(name, {**sent, field: None}) == ""
