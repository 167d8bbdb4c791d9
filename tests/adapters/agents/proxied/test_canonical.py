"""The key of a request: ids do not count, everything else does."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.agents.proxied.base import ProxiedReply
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, CHAT, GEMINI, RESPONSES
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.models.budget.ledger import Usage
from tests.examples import examples

PATHS = {
    ANTHROPIC: "/v1/messages",
    RESPONSES: "/v1/responses",
    CHAT: "/v1/chat/completions",
    GEMINI: "/v1beta/models/m:generateContent",
}
WIRE = st.sampled_from(list(PATHS))
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
SAID = st.lists(WORDS, min_size=1, max_size=4)


def body(wire: str, said: list[str]) -> dict[str, Any]:
    """A conversation that alternates."""
    if wire == GEMINI:
        return {"contents": [{"role": ("user", "model")[i % 2], "parts": [{"text": t}]} for i, t in enumerate(said)]}
    messages = [{"role": ("user", "assistant")[i % 2], "content": words} for i, words in enumerate(said)]
    return {"model": "m", "max_tokens": 10, ("input" if wire == RESPONSES else "messages"): messages}


def key(wire: str, asked: dict[str, Any]) -> str:
    route = WIRES[wire].find_route(PATHS[wire], "")
    assert route is not None
    return WIRES[wire].parse_request(route, asked).key


def named(wire: str, asked: dict[str, Any], name: Any) -> dict[str, Any]:
    """The same request of another session: with this in every field that is an id."""
    other = copy.deepcopy(asked)
    if wire == ANTHROPIC:
        other["metadata"] = {"user_id": json.dumps({"device_id": name})}
        other["system"] = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={name};"}]
    elif wire == GEMINI:
        other["labels"] = {"session": name}
        for content in other["contents"]:
            content["parts"].append({"functionCall": {"name": "f", "id": name, "args": {}}})
    else:
        other |= {"client_metadata": {"id": name}, "prompt_cache_key": name, "user": name}
        if wire == RESPONSES:
            other["input"] = [{**item, "id": name} for item in other["input"]]
    return other


@given(WIRE, SAID, VALUES, VALUES)
@settings(max_examples=examples(150), deadline=None)
def test_ids_of_who_asks_make_no_other_request(wire: str, said: list[str], one: Any, other: Any) -> None:
    asked = body(wire, said)
    assert key(wire, named(wire, asked, one)) == key(wire, named(wire, asked, other))


@given(WIRE, SAID, st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_the_order_of_fields_makes_no_other_request(wire: str, said: list[str], chance: random.Random) -> None:
    asked = body(wire, said)
    names = list(asked)
    chance.shuffle(names)
    assert key(wire, {name: asked[name] for name in names}) == key(wire, asked)


@given(WIRE, SAID, SAID)
@settings(max_examples=examples(150), deadline=None)
def test_another_conversation_is_another_request(wire: str, said: list[str], other: list[str]) -> None:
    assert (key(wire, body(wire, said)) == key(wire, body(wire, other))) == (said == other)


@given(WIRE, SAID, WORDS.filter(lambda name: "_" not in name), VALUES, VALUES)
@settings(max_examples=examples(150), deadline=None)
def test_any_other_field_counts(wire: str, said: list[str], name: str, one: Any, other: Any) -> None:
    asked = body(wire, said)
    if name in asked:
        return
    same = key(wire, {**asked, name: one}) == key(wire, {**asked, name: other})
    assert same == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_stream_is_another_request_than_the_whole(wire: str) -> None:
    asked = body(wire, ["Go."])
    if wire == GEMINI:
        route = WIRES[wire].find_route("/v1beta/models/m:streamGenerateContent", "alt=sse")
        assert route is not None
        assert WIRES[wire].parse_request(route, asked).key != key(wire, asked)
    else:
        assert key(wire, {**asked, "stream": True}) != key(wire, asked)


def test_a_wire_or_a_path_makes_another_request() -> None:
    asked = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Go."}]}
    counting = WIRES[ANTHROPIC].find_route("/v1/messages/count_tokens", "")
    assert counting is not None
    assert len({key(ANTHROPIC, asked), key(CHAT, asked), WIRES[ANTHROPIC].parse_request(counting, asked).key}) == 3


@given(WIRE, SAID, VALUES)
@settings(max_examples=examples(100), deadline=None)
def test_understanding_changes_nothing_of_what_it_was_given(wire: str, said: list[str], name: Any) -> None:
    asked = named(wire, body(wire, said), name)
    before = copy.deepcopy(asked)
    key(wire, asked)
    assert asked == before


@given(st.binary(max_size=200), SAID)
def test_a_kept_reply_is_the_same_bytes(raw: bytes, said: list[str]) -> None:
    usage = Usage(input_tokens=1, cost_usd=None)
    message = {"role": "assistant", "content": [{"type": "text", "text": words} for words in said]}
    reply = ProxiedReply(200, "text/event-stream", raw, usage, message, "end_turn")
    assert ProxiedReply.from_json(json.loads(json.dumps(reply.to_json()))) == reply
