"""Starts, signals, updates and queries as any client may send them: from the schemas of the models, and beyond them."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any, get_type_hints

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from temporalio import workflow
from temporalio.api.common.v1 import Payload

from perdure.models.backlog.following import StackToFollow
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import AddItem, BacklogState, NamedItem, PrioritisedItem
from perdure.models.delivery.decisions import Hold, Rewind, Say
from perdure.models.delivery.request import DeliveryRequest, ResumePoint
from perdure.models.delivery.state import DeliveryState
from perdure.models.notice import Notice
from perdure.models.rules.inbox import DECISION_MODELS
from workflows import Backlog, Delivery, Following, Notification, Treasury

KINDS = (Delivery, Backlog, Treasury, Following, Notification)
STARTS: dict[type, tuple[type[BaseModel], ...]] = {
    Delivery: (DeliveryRequest,),
    Backlog: (BacklogRequest, BacklogState),
    Treasury: (DeliveryState,),
    Following: (StackToFollow,),
    Notification: (Notice,),
}
UNTYPED: dict[str, type[BaseModel]] = {
    "say": Say, "hold": Hold, "rewind": Rewind, "attach": DeliveryRequest, "add": AddItem, "edit": AddItem,
    "skip": NamedItem, "retry": NamedItem, "cancel_item": NamedItem, "prioritise": PrioritisedItem, **DECISION_MODELS,
}  # fmt: skip
"""What those handlers expect whose parameter takes anything."""

STRANGE_NAMES = ("aprove", "__temporal_nothing", "__stack_trace", "run", "sa y", "ж", "x" * 300, "state", "signal\t")


@dataclass(frozen=True)
class Message:
    """One thing that a client does. `act`: start, signal, update or query. `more`: header, and a start's memo."""

    kind: type
    act: str
    name: str
    payloads: tuple[Payload, ...]
    more: tuple[tuple[str, Payload], ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(f"{dict(p.metadata)} {p.data[:300]!r}" for p in self.payloads)
        more = f" + {[(name, p.data[:60]) for name, p in self.more]}" if self.more else ""
        return f"{self.act} {self.kind.__name__}.{self.name[:60]}({shown}){more}"


def _edge_values() -> st.SearchStrategy[Any]:
    numbers = (0, -1, 2**31, 2**53, 2**63, 2**64, -(2**63), 1e308, float("nan"), float("inf"), 0.1, 10**400)
    texts = ("", "\0", "\ud83d", "ж" * 300, "a\nb", "x" * 20_000, "../../etc/passwd", "2026-01-01T00:00:00Z", "9" * 400)
    texts += ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9" * 20 + "h", "1e999", "{{}}", "--help")
    deep: Any = None
    for _ in range(300):
        deep = [deep]
    plain = st.sampled_from([*numbers, *texts, None, True, False, [], {}, [[]], {"": None}, deep])
    return st.one_of(plain, st.text(max_size=20), st.integers(), st.lists(plain, max_size=3))


EDGES = _edge_values()


def _strategy_of(schema: dict[str, Any], defs: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """What a schema describes, and, here and there, something else."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return st.one_of([_strategy_of(part, defs, depth + 1) for part in schema[union]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "object" if depth < 7:
            return _object_of(schema, defs, depth)
        case "array" if depth < 7:
            items = schema.get("items")
            inner = _strategy_of(items, defs, depth + 1) if isinstance(items, dict) else EDGES
            return st.lists(inner, max_size=3)
        case "string" if schema.get("format") == "date-time":
            return st.datetimes().map(lambda time: f"{time.isoformat()}Z")
        case "string":
            return st.sampled_from(["api", "page", "/r", "plan", "1h", "d", "a" * 64, "build"]) | st.text(max_size=12)
        case "integer":
            return st.integers(schema.get("minimum", -5), min(schema.get("maximum", 10**6), 10**15))
        case "number":
            return st.floats(0, 100, allow_nan=False) | st.integers(0, 100)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return EDGES


def _object_of(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    fields = schema.get("properties", {})
    required = set(schema.get("required", ()))
    extra = schema.get("additionalProperties")

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        made = dict[str, Any]()
        share = draw(st.sampled_from([0, 0, 1, 3])) if depth else draw(st.sampled_from([0, 1, 2, 4]))
        for name, part in fields.items():
            if name in required or draw(st.integers(0, 9)) < share:
                inner = st.deferred(lambda part=part: _strategy_of(part, defs, depth + 1))
                made[name] = draw(inner if draw(st.integers(0, 15)) else EDGES)
        if isinstance(extra, dict) and draw(st.booleans()):
            inner = st.deferred(lambda: _strategy_of(extra, defs, depth + 1))
            made |= draw(st.dictionaries(st.sampled_from(["api", "page", "x"]), inner, max_size=2))
        if not draw(st.integers(0, 20)):
            made[draw(st.text(max_size=5))] = draw(EDGES)
        return made

    return build()


def values_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    schema = model.model_json_schema(by_alias=True)
    return _strategy_of(schema, schema.get("$defs", {}))


def _json_payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def _raw_payloads() -> st.SearchStrategy[Payload]:
    kinds = [{"encoding": name} for name in (b"json/plain", b"binary/null", b"binary/plain", b"json/protobuf")]
    kinds += [{"encoding": name} for name in (b"binary/protobuf", b"binary/strange", b"binary/encrypted", b"\xff")]
    kinds += [
        {},
        {"encoding": b"json/protobuf", "messageType": b"temporal.api.common.v1.Payload"},
        {"messageType": b"x"},
    ]
    data = st.sampled_from([b"", b"null", b"{", b'{"a": 1}', b"\x00\xff", b"[" * 5000, b'"\xed\xa0\xbd"', b"1" * 5000])
    return st.builds(lambda metadata, data: Payload(metadata=metadata, data=data), st.sampled_from(kinds), data)


def _handlers_of(kind: type) -> list[tuple[str, str, type[BaseModel] | None]]:
    """Act, name and model of every handler."""
    definition = workflow._Definition.must_from_class(kind)
    rows: list[tuple[str, str, type[BaseModel] | None]] = []
    for act, handlers in (("signal", definition.signals), ("update", definition.updates)):
        for name, handler in handlers.items():
            if name is not None:
                hints = [h for n, h in get_type_hints(handler.fn).items() if n != "return"]
                typed = [h for h in hints if inspect.isclass(h) and issubclass(h, BaseModel)]
                rows.append((act, name, typed[0] if typed else UNTYPED.get(name)))
    rows += [("query", name or "x", None) for name in definition.queries]
    rows += [("query", name, None) for name in ("__temporal_workflow_metadata", "__stack_trace", "nothing")]
    if kind is Backlog:
        rows += [("update", name, model) for name, model in DECISION_MODELS.items()]
    return rows


@dataclass(frozen=True)
class Target:
    """What a message is for. `models`: those of its arguments; `share`: of all messages, beside the others."""

    kind: type
    act: str
    name: str
    models: tuple[type[BaseModel], ...] = ()
    share: int = 2


def list_targets() -> list[Target]:
    """Every handler of every workflow, names that none has, and every start."""
    targets = [Target(kind, "start", kind.__name__, STARTS[kind], 12) for kind in KINDS]
    for kind in KINDS:
        rows = [Target(kind, act, name, (model,) if model else ()) for act, name, model in _handlers_of(kind)]
        targets += rows + [Target(kind, act, name, share=1) for act in ("signal", "update") for name in STRANGE_NAMES]
    return targets


def messages(target: Target) -> st.SearchStrategy[Message]:
    """One message of any client for a target: as its models have it, as another model has it, raw, or too many or too
    few."""
    other = st.sampled_from([*UNTYPED.values(), DeliveryRequest, ResumePoint]).flatmap(values_of)
    anything, raw = EDGES | other, _raw_payloads()
    fitting = [values_of(model) for model in target.models]

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        shape = draw(st.sampled_from(["fits", "fits", "fits", "other", "raw", "count"]))
        if shape == "fits" and fitting:
            parts = [_json_payload(draw(part)) for part in fitting[: 1 if draw(st.integers(0, 3)) else 2]]
        elif shape == "raw":
            parts = [draw(raw)]
        elif shape == "count":
            parts = [_json_payload(draw(anything)) for _ in range(draw(st.sampled_from([0, 2, 3, 7])))]
        else:
            parts = [_json_payload(draw(anything))]
        if draw(st.integers(0, 7)) == 7:
            parts.append(draw(raw))
        names = st.sampled_from(["resume", "asked", "x", "_tracer-data", "__temporal"])
        fields = st.dictionaries(names, raw | anything.map(_json_payload), max_size=2)
        more = draw(fields) if draw(st.integers(0, 5)) == 5 else {}
        return Message(target.kind, target.act, target.name, tuple(parts), tuple(more.items()))

    return build()


def draw_messages(count: int, seed: int) -> list[Message]:
    """As many messages, of each target its share and at least one; the same for the same seed."""
    targets = list_targets()
    total = sum(target.share for target in targets)
    return [
        message
        for target in targets
        for message in _draw_for(target, max(1, round(count * target.share / total)), seed)
    ]


def _draw_for(target: Target, count: int, seed: int) -> list[Message]:
    drawn = list[Message]()

    @hypothesis.seed(seed)
    @settings(
        max_examples=count + 1, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(messages(target))
    def collect(message: Message) -> None:
        drawn.append(message)

    collect()
    return drawn[-count:]  # the first is always the least
