"""The model's client: requests, settings, streams, errors, and the effort that each step is worth."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.adapters.agents.builtin.errors import RETRY_AFTER_CAP_S, SummaryRefused, retry_after_seconds
from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply, usage_of
from perdure.adapters.agents.resolve_agents import next_efforts
from perdure.models.config.repository import StepSettings, StepsSettings
from perdure.models.errors import BadInput, ModelRefusesUs, ModelUnavailable
from tests.waiting import patient

PlayedModel = Callable[..., Awaitable[tuple[Any, Model]]]

QUESTION = ModelRequest(
    model="claude-sonnet-5-5",
    max_tokens=1000,
    effort="low",
    system="Step: implement\n\nWork.",
    tools=(
        {
            "name": "bash",
            "description": "run",
            "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    ),
    messages=({"role": "user", "content": [{"type": "text", "text": "hello"}]},),
    schema=None,
)


async def ask(model: Model, question: ModelRequest = QUESTION) -> tuple[Reply, list[str]]:
    heard: list[str] = []
    reply = await model.ask(question, on_first_event=lambda: heard.append("begun"), on_text=heard.append)
    return reply, heard


async def test_a_reply_arrives_whole_with_its_price(played: PlayedModel) -> None:
    _, model = await played("""
[[line]]
think = "so"
say = "hello there"
use = [{ tool = "bash", input = { command = "true" } }]
""")
    reply, heard = await ask(model)
    assert heard[0] == "begun"
    assert "".join(heard[1:]) == "hello there"
    assert [block["type"] for block in reply.message["content"]] == ["thinking", "text", "tool_use"]
    assert reply.stop_reason == "tool_use"
    assert reply.usage.cost_usd is not None
    assert reply.usage.cost_usd > 0
    assert reply.request_id


async def test_a_stored_reply_is_accepted_back_by_the_api(played: PlayedModel) -> None:
    twin, model = await played("""
[[line]]
turn = 1
think = "so"
use = [{ tool = "bash", input = { command = "true" } }]
[[line]]
say = "done"
""")
    reply = Reply.from_json((await ask(model))[0].to_json())
    use = reply.message["content"][-1]
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "ok"}]}
    messages = (*QUESTION.messages, reply.message, results)
    again, _ = await ask(model, replace(QUESTION, messages=messages))
    assert again.message["content"][-1]["text"] == "done"
    assert again.usage.cache_read_tokens > 0
    assert twin.prefix_breaks == 0


async def test_a_conversation_is_summed_up_where_the_api_does_that(played: PlayedModel) -> None:
    _, model = await played('[[line]]\nsay = "hello"')
    wanted = replace(QUESTION, compact=True, schema={"type": "object"})
    reply, _ = await ask(model, wanted)
    assert (reply.summary, reply.stop_reason) == ("The screenplay sums 0 replies up.", "compaction")
    assert Reply.from_json(reply.to_json()) == reply
    assert wanted.key() != QUESTION.key()
    assert (await ask(model))[0].summary == ""
    _, model = await played('sums_up = false\n[[line]]\nsay = "hello"')
    with pytest.raises(SummaryRefused, match="does not sum"):
        await ask(model, wanted)


async def test_a_summary_costs_what_its_own_part_of_the_usage_says_too() -> None:
    part = {"type": "compaction", "input_tokens": 7, "output_tokens": 5}
    part |= {"cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    usage = {"input_tokens": 1, "output_tokens": 1, "iterations": [part]}
    assert usage_of(usage).model_dump(exclude={"cost_usd"}, exclude_defaults=True) == {
        "input_tokens": 8,
        "cache_read_tokens": 3,
        "cache_write_tokens": 2,
        "output_tokens": 6,
    }


@pytest.mark.parametrize("fault", ["408", "409", "429", "500", "503", "504", "529", "stream_error", "not_json", "page"])
async def test_a_passing_error_is_reported_as_one_to_retry_and_asked_only_once(played: PlayedModel, fault: str) -> None:
    twin, model = await played(f'[[line]]\nsay = "fine"\nfault = "{fault}"\n')
    with pytest.raises(ModelUnavailable):
        await ask(model)
    assert len(twin.calls) == 1
    assert (await ask(model))[0].message["content"][0]["text"] == "fine"


@pytest.mark.parametrize("fault", ["cut", "close"])
async def test_a_stream_that_breaks_off_is_never_returned_as_a_reply(played: PlayedModel, fault: str) -> None:
    _, model = await played(f"""
[[line]]
say = "I will now run"
use = [{{ tool = "bash", input = {{ command = "rm -r build && make" }} }}]
fault = "{fault}"
""")
    heard: list[str] = []
    with pytest.raises(ModelUnavailable):
        await model.ask(QUESTION, on_first_event=lambda: heard.append("begun"), on_text=lambda text: None)
    assert heard == ["begun"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("400", ("refuses the request (400)", "max_tokens")),
        ("401", ("does not accept the key", "ANTHROPIC_API_KEY")),
        ("402", ("paid", "credit")),
        ("spend_limit", ("paid", "spend limit")),
        ("403", ("may not use model 'claude-sonnet-5-5'", "[steps.implement]")),
        ("404", ("does not know model 'claude-sonnet-5-5'", "[steps.implement]")),
        ("413", ("larger than", "split the request")),
    ],
)
async def test_what_a_person_must_mend_says_what_and_where(
    played: PlayedModel, fault: str, words: tuple[str, ...]
) -> None:
    twin, model = await played(f'[[line]]\nfault = "{fault}"\nsay = "fine"\n')
    with pytest.raises(ModelRefusesUs) as refused:
        await ask(model)
    assert all(word in str(refused.value) for word in words)
    assert refused.value.where
    assert refused.value.fix
    assert len(twin.calls) == 1


async def test_a_refusal_is_a_reply_and_says_why(played: PlayedModel) -> None:
    _, model = await played('[[line]]\nfault = "refusal"\n')
    reply, _ = await ask(model)
    assert (reply.stop_reason, reply.detail) == ("refusal", "general_harms")


async def test_the_pause_the_api_asks_for_is_passed_on(played: PlayedModel) -> None:
    _, model = await played('[[line]]\nsay = "fine"\nfault = "429"\nretry_after = 7\n')
    with pytest.raises(ModelUnavailable) as error:
        await ask(model)
    assert error.value.retry_after == 7


async def test_an_api_that_goes_silent_is_given_up(played: PlayedModel) -> None:
    _, model = await played('[[line]]\nsay = "fine"\nfault = "hang"\n', silence_s=0.3)
    with pytest.raises(ModelUnavailable, match="silent"):
        await ask(model)


async def test_a_slow_reply_is_not_a_silent_one(played: PlayedModel) -> None:
    _, model = await played('[[line]]\nsay = "one two three four five six seven"\nseconds = 1.2\n', silence_s=0.9)
    assert (await ask(model))[0].stop_reason == "end_turn"


async def test_cancelling_ends_the_request_at_once(played: PlayedModel) -> None:
    twin, model = await played('[[line]]\nsay = "fine"\nfault = "hang"\n')
    task = asyncio.create_task(ask(model))
    async with asyncio.timeout(patient(20)):
        while not twin.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_nobody_at_the_address_is_a_passing_error() -> None:
    model = Model("sk-0123456789", "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match="could not be reached"):
        await ask(model)
    await model.aclose()


@asynccontextmanager
async def answering(status: str, kind: str, body: bytes) -> AsyncIterator[str]:
    """`host:port` of a server that gives every request this one answer: what the strict twin would never say."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_server_that_echoes_the_key_does_not_get_it_into_a_message() -> None:
    body = b'{"type":"error","error":{"type":"authentication_error","message":"bad key sk-very-secret-123"}}'
    async with answering("401 No", "application/json", body) as host:
        model = Model("sk-very-secret-123", f"http://user:password-of-gateway@{host}")
        with pytest.raises(ModelRefusesUs) as refused:
            await ask(model)
        await model.aclose()
    assert "bad key [redacted]" in str(refused.value)
    assert "password-of-gateway" not in str(refused.value)
    assert "password-of-gateway" in model.secrets


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        ("400 Bad Request", "overloaded_error", ModelUnavailable),
        ("500 Error", "invalid_request_error", ModelRefusesUs),
        ("418 Teapot", "", ModelRefusesUs),
        ("599 Odd", "", ModelUnavailable),
    ],
)
async def test_an_errors_type_counts_before_its_status(status: str, kind: str, expected: type[Exception]) -> None:
    body = b'{"type":"error","error":{"type":"%s","message":"so it is"}}' % kind.encode()
    async with answering(status, "application/json", body) as host:
        model = Model("sk-0123456789", f"http://{host}")
        with pytest.raises(expected, match="so it is"):
            await ask(model)
        await model.aclose()


MESSAGE_START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
    b'"model":"x","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
)
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":5,'
    b'"delta":{"type":"text_delta","text":"x"}}\n\n'
)


@pytest.mark.parametrize(
    "body",
    [b"", b"event: ping\ndata: {}\n\n", DELTA, MESSAGE_START + DELTA, MESSAGE_START, b"data: \xff\xfe\n\n", b"<html>"],
)
async def test_an_endpoint_that_does_not_speak_the_protocol_is_a_typed_error(body: bytes) -> None:
    async with answering("200 OK", "text/event-stream", body) as host:
        model = Model("sk-0123456789", f"http://{host}")
        with pytest.raises(ModelUnavailable):
            await ask(model)
        await model.aclose()


async def test_asking_for_the_first_time_does_not_block_the_event_loop(played: PlayedModel) -> None:
    """In a fresh process, where everything has still to be imported."""
    twin, _ = await played('[[line]]\nsay = "fine"\n')
    code = f"""
import asyncio, time
from perdure.adapters.agents.builtin.model import Model, ModelRequest
opening = {{"role": "user", "content": [{{"type": "text", "text": "x"}}]}}
question = ModelRequest("claude-sonnet-5-5", 1000, None, "Step: implement", (), (opening,), None)
async def main():
    model, worst, last = Model("key", {twin.url!r}), 0.0, time.thread_time()
    async def tick():
        nonlocal worst, last
        while True:
            await asyncio.sleep(0.005)
            now = time.thread_time()
            worst, last = max(worst, now - last), now
    ticking = asyncio.create_task(tick())
    await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
    ticking.cancel()
    print(worst)
    await model.aclose()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    out, _ = await asyncio.wait_for(process.communicate(), patient(60))
    assert float(out) < 0.1, "seconds of the loop's own processor time between two ticks"


def test_keys_are_taken_out_of_the_environment() -> None:
    environ = {
        "ANTHROPIC_API_KEY": "sk-one-0123456789",
        "ANTHROPIC_AUTH_TOKEN": "two",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: let-me-in-please\nbroken",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "PATH": "/bin",
    }
    model = Model.from_environment(environ)
    assert model is not None
    assert set(environ) == {"ANTHROPIC_BASE_URL", "PATH"}
    assert model.secrets == ("sk-one-0123456789", "let-me-in-please")


def test_without_a_key_there_is_no_model() -> None:
    assert Model.from_environment({"ANTHROPIC_API_KEY": "  ", "ANTHROPIC_BASE_URL": "nonsense"}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTHROPIC_BASE_URL", "api.example.org"),
        ("ANTHROPIC_BASE_URL", "file:///etc/passwd"),
        ("PERDURE_MODEL_SILENCE_S", "soon"),
        ("PERDURE_MODEL_SILENCE_S", "nan"),
        ("PERDURE_MODEL_SILENCE_S", "-1"),
    ],
)
def test_a_setting_that_cannot_work_is_named(name: str, value: str) -> None:
    with pytest.raises(BadInput) as bad:
        Model.from_environment({"ANTHROPIC_API_KEY": "k", name: value})
    assert bad.value.where == name


def test_the_anthropic_library_is_not_imported_until_a_model_is_asked() -> None:
    code = (
        "import sys, perdure.adapters.agents.builtin.model, perdure.adapters.agents.builtin.conversation;"
        "print(any(name in sys.modules for name in ('anthropic', 'httpx2')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "4000000"}, RETRY_AFTER_CAP_S),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_a_pause_is_bounded_and_nonsense_is_ignored(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_a_date_in_retry_after_is_a_pause_from_now() -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    seconds = retry_after_seconds({"retry-after": later})
    assert seconds is not None
    assert 50 < seconds <= 60


def test_without_retry_after_the_latest_reset_of_what_is_used_up_counts() -> None:
    soon, later = (datetime.fromtimestamp(time.time() + seconds, UTC).isoformat() for seconds in (20, 60))
    headers = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": soon,
        "anthropic-ratelimit-tokens-remaining": "400",
        "anthropic-ratelimit-tokens-reset": later,
    }
    assert 10 < (retry_after_seconds(headers) or 0) <= 20
    assert 50 < (retry_after_seconds({**headers, "anthropic-ratelimit-tokens-remaining": "0"}) or 0) <= 60
    assert retry_after_seconds({**headers, "anthropic-ratelimit-requests-reset": "soon"}) is None
    assert retry_after_seconds({"anthropic-ratelimit-requests-remaining": "0"}) is None


@pytest.mark.parametrize(
    ("model", "effort", "last"),
    [
        ("claude-sonnet-5-5", None, "xhigh"),
        ("claude-opus-5-5", None, "high"),
        ("claude-sonnet-5-5", "low", "medium"),
        ("claude-sonnet-5-5", "xhigh", "max"),
        ("claude-sonnet-5-5", "max", None),
        ("a-gateway's", "low", "medium"),
        ("a-gateway's", None, None),
    ],
)
def test_it_is_one_step_above_the_settings_or_the_models_own_and_never_beyond_the_highest(
    model: str, effort: str | None, last: str | None
) -> None:
    settings = StepSettings.model_validate({"model": model, "effort": effort})
    found = next_efforts(StepsSettings(fix_tests=settings))
    assert found.get("fix_tests") == last
    assert "implement" not in found
