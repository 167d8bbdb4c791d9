"""Errors on the way to the model, in the words of the API; and the key by which a request is known again."""

from __future__ import annotations

import base64
import copy
import json
import random
from typing import Any
from urllib.parse import quote

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxied_agents import KEY, Books, Played, Serve, event, says, streams
from test_proxy import STREAM, Agent, rehearsal, streamed

from perdure.adapters.agents.proxied.base import ProxiedReply
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, CHAT, GEMINI, RESPONSES, Upstream
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.agents.proxied.wires import request_fields as fields
from perdure.models.budget.ledger import Usage
from perdure.models.errors import ModelRefusesUs, ModelUnavailable
from perdure.rehearsal.server import Rehearsal
from tests.costs import examples

__all__ = ["rehearsal"]


@pytest.mark.parametrize("end", ["cut", ""])
async def test_a_stream_that_is_cut_is_neither_kept_nor_given_to_the_agent(
    serve: Serve, agent: Agent, books: Books, end: str
) -> None:
    async with Played(streams(*STREAM[:-1], end=end)) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    assert refused.value.status_code == 503
    assert not books.kept
    (error,) = books.failures
    assert isinstance(error, ModelUnavailable)
    assert not error.limit_reason
    assert books.begun == 1, "it may have been billed"


@pytest.mark.parametrize(
    ("status", "kind", "typed", "again"),
    [
        (400, "invalid_request_error", ModelRefusesUs, "false"),
        (401, "authentication_error", ModelRefusesUs, "false"),
        (403, "permission_error", ModelRefusesUs, "false"),
        (404, "not_found_error", ModelRefusesUs, "false"),
        (429, "rate_limit_error", ModelUnavailable, "true"),
        (500, "api_error", ModelUnavailable, "true"),
        (529, "overloaded_error", ModelUnavailable, "true"),
    ],
)
async def test_an_error_of_the_api_is_the_agents_and_ours(
    serve: Serve, agent: Agent, books: Books, status: int, kind: str, typed: type[Exception], again: str
) -> None:
    said = {"type": "error", "error": {"type": kind, "message": f"no, not with {KEY}"}}
    async with Played(says(said, status, retry_after="7")) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    answer = refused.value
    assert (answer.status_code, answer.type) == (status, kind)
    assert answer.response.headers["x-should-retry"] == again
    assert KEY not in answer.response.text
    assert "[redacted]" in answer.response.text
    (error,) = books.failures
    assert isinstance(error, typed)
    assert KEY not in str(error)
    assert books.begun == 0, "nothing was billed"
    if isinstance(error, ModelUnavailable):
        assert error.retry_after == 7
        assert bool(error.limit_reason) == (status in (429, 529))


async def test_an_overload_inside_a_stream_is_one(serve: Serve, agent: Agent, books: Books) -> None:
    overloaded = event("error", type="error", error={"type": "overloaded_error", "message": "Overloaded"})
    async with Played(streams(STREAM[0], overloaded)) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await streamed(client)
    assert refused.value.status_code == 529
    assert isinstance(books.failures[0], ModelUnavailable)
    assert books.failures[0].limit_reason


async def test_an_end_of_the_step_ends_the_agent(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    books.error = ModelRefusesUs("the budget of $1.00 is used up")
    client = agent(await serve(Upstream.anthropic(rehearsal.url, KEY)), max_retries=5)
    with pytest.raises(anthropic.BadRequestError, match="used up"):
        await streamed(client)
    assert len(books.seen) == 1, "it is not tried again"
    assert not rehearsal.calls


async def test_an_upstream_that_is_not_there_is_unavailable(serve: Serve, agent: Agent, books: Books) -> None:
    client = agent(await serve(Upstream.anthropic("http://127.0.0.1:9", KEY)))
    with pytest.raises(anthropic.APIStatusError) as refused:
        await streamed(client)
    assert refused.value.status_code == 503
    assert isinstance(books.failures[0], ModelUnavailable)


async def test_a_redirect_takes_the_conversation_nowhere(serve: Serve, agent: Agent, books: Books) -> None:
    async with Played(says({}, 307, location="http://127.0.0.1:9/v1/messages")) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        with pytest.raises(anthropic.APIStatusError):
            await streamed(client)
    assert isinstance(books.failures[0], ModelRefusesUs)
    assert len(upstream.calls) == 1


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


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
async def test_a_server_that_repeats_its_headers_gives_the_key_to_nobody(
    serve: Serve, books: Books, status: int
) -> None:
    encoded = base64.b64encode(f"k:{KEY}".encode()).decode()
    text = f"{'a' * 280} x-api-key: {KEY} {encoded} {quote(KEY)}"
    reply = {
        "type": "message", "role": "assistant", "model": KEY, "stop_reason": "end_turn", "usage": {"input_tokens": 5},
        "content": [{"type": "text", "text": text}],
    }  # fmt: skip
    error = {"type": "error", "error": {"type": f"x {KEY}", "message": text}}
    async with Played(says(reply if status == 200 else error, status)) as upstream:
        proxy = await serve(upstream.upstream(ANTHROPIC))
        transport = httpx2.AsyncHTTPTransport(uds=str(proxy.socket))
        async with httpx2.AsyncClient(transport=transport, base_url="http://model") as client:
            answer = await client.post("/v1/messages", json=body(ANTHROPIC, ["Go."]))
        assert upstream.calls[0][1]["x-api-key"] == KEY
    seen = answer.text + "".join(map(str, books.failures)) + json.dumps(list(books.kept.values()))
    assert KEY[:20] not in seen
    assert encoded[8:30] not in seen


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


def tool(wire: str, schema: Any) -> dict[str, Any]:
    """A tool whose schema is this."""
    if wire == GEMINI:
        return {"functionDeclarations": [{"name": "f", "parameters": schema}]}
    if wire == CHAT:
        return {"type": "function", "function": {"name": "f", "parameters": schema}}
    return {"type": "function", "parameters": schema} if wire == RESPONSES else {"name": "f", "input_schema": schema}


@given(WIRE, SAID, VALUES, VALUES)
@settings(max_examples=examples(150), deadline=None)
def test_any_other_field_that_is_sent_counts(wire: str, said: list[str], one: Any, other: Any) -> None:
    asked = body(wire, said)
    same = key(wire, {**asked, "tools": [tool(wire, one)]}) == key(wire, {**asked, "tools": [tool(wire, other)]})
    assert same == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


@given(WIRE, SAID, WORDS.filter(lambda name: "_" not in name), VALUES)
@settings(max_examples=examples(150), deadline=None)
def test_a_field_that_nobody_knows_is_not_sent(wire: str, said: list[str], name: str, value: Any) -> None:
    asked = body(wire, said)
    shape = {ANTHROPIC: fields.ANTHROPIC, RESPONSES: fields.RESPONSES, CHAT: fields.CHAT, GEMINI: fields.GEMINI}[wire]
    if name not in shape:
        assert key(wire, {**asked, name: value}) == key(wire, asked)


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
