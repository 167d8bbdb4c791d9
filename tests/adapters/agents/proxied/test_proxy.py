"""An agent behind the proxy: the vendor's own client, the socket, and the rehearsal as the model."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from proxied_agents import KEY, Books, Played, Serve, event, says, streams

from perdure.adapters.agents.proxied import proxy as proxied
from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, Upstream
from perdure.models.errors import BadInput, ModelRefusesUs
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.waiting import patient

Agent = Callable[..., Any]

PLAY = """
title = "two turns"
[[line]]
step = "implement"
say = "I look first."
use = [{ tool = "bash", input = { command = "ls" } }]
[[line]]
step = "implement"
say = "Done."
"""
TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]


def question(**changes: Any) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1000,
        "system": "Step: implement\n\nWork.",
        "messages": [{"role": "user", "content": "Go."}],
        "tools": TOOLS,
        **changes,
    }


@pytest.fixture
async def rehearsal() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        yield twin


async def streamed(client: Any, **changes: Any) -> Any:
    async with client.messages.stream(**question(**changes)) as stream:
        return await stream.get_final_message()


async def test_a_streamed_reply_reaches_the_agent_as_it_came_and_is_understood(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    client = agent(await serve(Upstream.anthropic(rehearsal.url, KEY)))
    message = await streamed(client)
    assert [block.type for block in message.content] == ["text", "tool_use"]
    (reply,) = books.replies
    assert reply.message["content"] == [block.to_dict(mode="json") for block in message.content]
    assert reply.stop_reason == "tool_use"
    assert reply.usage.output_tokens == message.usage.output_tokens
    assert reply.usage.cost_usd
    assert reply.usage.cost_usd > 0
    (request,) = books.seen
    assert request.turn
    assert request.upper_usd is not None
    assert request.upper_usd >= reply.usage.cost_usd
    assert request.upper_tokens >= reply.usage.tokens
    assert request.messages == [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]
    assert books.begun == 1


async def test_a_reply_that_is_no_stream_is_the_same_message(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    client = agent(await serve(Upstream.anthropic(rehearsal.url, KEY)))
    message = await client.messages.create(**question())
    assert books.replies[0].message["content"] == [block.to_dict(mode="json") for block in message.content]
    assert books.replies[0].stop_reason == "tool_use"


async def test_the_key_is_added_and_the_agents_own_headers_stay_behind(serve: Serve, agent: Agent) -> None:
    async with Played(says(MESSAGE)) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        smuggled = {"authorization": "Bearer stolen", "cookie": "a=b", "x-forwarded-host": "evil", "x-other": "1"}
        await client.messages.create(**question(), extra_headers={**smuggled, "anthropic-beta": "one,two"})
    (path, headers, _) = upstream.calls[0]
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-beta"] == "one,two"
    assert headers["anthropic-version"]
    assert not {"authorization", "cookie", "x-forwarded-host", "x-other"} & set(headers)
    assert headers["host"].startswith("127.0.0.1:")


async def test_a_request_that_comes_again_is_answered_without_asking(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    proxy = await serve(Upstream.anthropic(rehearsal.url, KEY))
    first = await streamed(agent(proxy), metadata={"user_id": '{"device_id":"a"}'})
    again = await streamed(agent(proxy), metadata={"user_id": '{"device_id":"b"}'})
    assert again.to_dict() == first.to_dict()
    assert len(books.seen) == 2
    assert len(rehearsal.calls) == 1


async def test_equal_requests_at_one_time_are_one(serve: Serve, agent: Agent, books: Books) -> None:
    go_on = asyncio.Event()
    async with Played(streams(*STREAM, pause=go_on)) as upstream:
        proxy = await serve(upstream.upstream(ANTHROPIC))
        both = [asyncio.ensure_future(streamed(agent(proxy))) for _ in range(2)]
        await until(lambda: books.begun == 1)
        await asyncio.sleep(0.1)
        go_on.set()
        one, other = await asyncio.gather(*both)
    assert one.to_dict() == other.to_dict()
    assert len(upstream.calls) == len(books.seen) == 1


async def test_a_request_waits_for_its_turn(rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books) -> None:
    books.gate.clear()
    waiting = asyncio.ensure_future(streamed(agent(await serve(Upstream.anthropic(rehearsal.url, KEY)))))
    await until(lambda: len(books.seen) == 1)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert not rehearsal.calls
    books.gate.set()
    assert (await waiting).stop_reason == "tool_use"


@pytest.mark.parametrize("ends", ["well", "with an error"])
async def test_a_stream_that_waits_long_shows_signs_of_life(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(proxied, "PING_AFTER_S", 0.05)
    monkeypatch.setattr(proxied, "PING_EVERY_S", 0.05)
    books.gate.clear()
    client = agent(await serve(Upstream.anthropic(rehearsal.url, KEY)), timeout=httpx2.Timeout(1, connect=10))
    waiting = asyncio.ensure_future(streamed(client))
    await asyncio.sleep(2.5)  # longer than the client waits for a byte
    assert not waiting.done()
    if ends == "well":
        books.gate.set()
        assert (await waiting).stop_reason == "tool_use"
        return
    books.error = ModelRefusesUs("the budget is used up")
    books.gate.set()
    with pytest.raises(anthropic.APIStatusError, match="used up"):
        await waiting


async def test_an_agent_that_goes_away_while_it_waits_has_asked_nothing(
    rehearsal: Rehearsal, serve: Serve, agent: Agent, books: Books
) -> None:
    books.gate.clear()
    proxy = await serve(Upstream.anthropic(rehearsal.url, KEY))
    waiting = asyncio.ensure_future(streamed(agent(proxy)))
    await until(lambda: len(books.seen) == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not proxy._pending_requests)
    books.gate.set()
    await asyncio.sleep(0.1)
    assert not rehearsal.calls


async def test_a_reply_that_is_being_paid_for_is_kept_although_the_agent_goes_away(
    serve: Serve, agent: Agent, books: Books
) -> None:
    go_on = asyncio.Event()
    async with Played(streams(*STREAM, pause=go_on)) as upstream:
        proxy = await serve(upstream.upstream(ANTHROPIC))
        gone = asyncio.ensure_future(streamed(agent(proxy)))
        await until(lambda: books.begun == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0.1)
        go_on.set()
        await until(lambda: len(books.kept) == 1)
        assert (await streamed(agent(proxy))).stop_reason == "end_turn"
    assert len(upstream.calls) == 1


async def test_counting_tokens_costs_nothing_and_begins_no_turn(serve: Serve, agent: Agent, books: Books) -> None:
    async with Played(says({"input_tokens": 17})) as upstream:
        client = agent(await serve(upstream.upstream(ANTHROPIC)))
        counted = await client.messages.count_tokens(
            model="claude-sonnet-5-5", messages=[{"role": "user", "content": "Go."}], tools=TOOLS
        )
    assert counted.input_tokens == 17
    (request,) = books.seen
    assert not request.turn
    assert request.upper_usd == request.upper_tokens == 0
    assert books.replies[0].usage.cost_usd == 0


async def test_the_price_of_an_unknown_model_is_unknown(serve: Serve, agent: Agent, books: Books) -> None:
    async with Played(says({**MESSAGE, "model": "nobody-1"})) as upstream:
        await agent(await serve(upstream.upstream(ANTHROPIC))).messages.create(**question(model="nobody-1"))
    assert books.seen[0].upper_usd is None
    assert books.replies[0].usage.cost_usd is None
    assert books.replies[0].usage.output_tokens == 3


async def test_what_is_cached_for_an_hour_is_counted_as_that(serve: Serve, agent: Agent, books: Books) -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_creation": {"ephemeral_1h_input_tokens": 4, "ephemeral_5m_input_tokens": 6},
        "cache_read_input_tokens": 5,
    }
    async with Played(says({**MESSAGE, "usage": usage})) as upstream:
        await agent(await serve(upstream.upstream(ANTHROPIC))).messages.create(**question())
    counted = books.replies[0].usage
    assert (counted.cache_write_tokens, counted.cache_write_1h_tokens, counted.cache_read_tokens) == (10, 4, 5)


async def test_only_its_owner_can_speak_to_the_socket_and_it_is_gone_afterwards(
    rehearsal: Rehearsal, books: Books, tmp_path: Path
) -> None:
    from perdure.adapters.agents.proxied.wires import WIRES

    async with Proxy(tmp_path / "s", Upstream.anthropic(rehearsal.url, KEY), WIRES[ANTHROPIC], books) as proxy:
        assert stat.S_IMODE(proxy.socket.stat().st_mode) == 0o600
    assert not proxy.socket.exists()


async def test_a_path_too_long_for_a_socket_is_named(books: Books, tmp_path: Path) -> None:
    from perdure.adapters.agents.proxied.wires import WIRES

    long = tmp_path / ("x" * 120)
    with pytest.raises(BadInput, match="too long"):
        async with Proxy(long, Upstream.anthropic("http://127.0.0.1:9", KEY), WIRES[ANTHROPIC], books):
            pass


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 3},
}
STREAM = (
    event("message_start", type="message_start", message={**MESSAGE, "content": [], "stop_reason": None}),
    event("content_block_start", type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Done."}),
    event("content_block_stop", type="content_block_stop", index=0),
    event(
        "message_delta",
        type="message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"output_tokens": 3},
    ),
    event("message_stop", type="message_stop"),
)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(patient(30)):
        while not true():
            await asyncio.sleep(0.01)
