"""Each fault, as the real client sees it."""

from __future__ import annotations

import asyncio
import json
import time

import anthropic
import httpx2
import pytest

from tests.waiting import patient

STATUS = [
    ("400", anthropic.BadRequestError, "invalid_request_error"),
    ("401", anthropic.AuthenticationError, "authentication_error"),
    ("402", anthropic.APIStatusError, "billing_error"),
    ("403", anthropic.PermissionDeniedError, "permission_error"),
    ("404", anthropic.NotFoundError, "not_found_error"),
    ("408", anthropic.APIStatusError, "timeout_error"),
    ("409", anthropic.ConflictError, "conflict_error"),
    ("413", anthropic.APIStatusError, "request_too_large"),
    ("429", anthropic.RateLimitError, "rate_limit_error"),
    ("500", anthropic.InternalServerError, "api_error"),
    ("503", anthropic.InternalServerError, "api_error"),
    ("504", anthropic.InternalServerError, "timeout_error"),
    ("529", anthropic.InternalServerError, "overloaded_error"),
]
LONG = "This reply is long enough to be sent in several pieces, so that a cut falls into its middle."


def script(fault: str, more: str = "") -> str:
    return f'[[line]]\nsay = "{LONG}"\nfault = "{fault}"\n{more}'


@pytest.mark.parametrize(("fault", "error", "kind"), STATUS)
async def test_an_http_error_has_status_and_type_and_is_gone_the_next_time(rehearsal, ask, fault, error, kind):
    twin = await rehearsal(script(fault))
    with pytest.raises(error) as caught:
        await ask(twin)
    assert (caught.value.status_code, caught.value.type) == (int(fault), kind)
    assert caught.value.request_id == "req_00000001"
    assert (await ask(twin)).content[0].text == LONG
    assert twin.report()["faults"] == {fault: 1}
    assert twin.report()["replies"] == 1


async def test_retry_after_is_sent_as_often_as_the_fault_is_given(rehearsal, ask):
    twin = await rehearsal(script("429", "times = 2\nretry_after = 0.2"))
    for _ in range(2):
        with pytest.raises(anthropic.RateLimitError) as caught:
            await ask(twin)
        assert caught.value.response.headers["retry-after"] == "0.2"
    assert (await ask(twin)).stop_reason == "end_turn"


async def test_a_spend_limit_is_told_by_its_code(rehearsal, ask):
    twin = await rehearsal(script("spend_limit"))
    with pytest.raises(anthropic.RateLimitError) as caught:
        await ask(twin)
    assert caught.value.error_code == "enforced_spend_limit_reached"


async def test_a_line_with_nothing_but_a_fault_gives_way_once_it_is_used_up(rehearsal, ask):
    twin = await rehearsal('[[line]]\nfault = "529"\n[[line]]\nsay = "Hello."')
    with pytest.raises(anthropic.InternalServerError):
        await ask(twin)
    assert (await ask(twin)).content[0].text == "Hello."


async def test_a_cut_stream_raises(rehearsal, ask):
    twin = await rehearsal(script("cut"))
    with pytest.raises(httpx2.HTTPError):
        await ask(twin)
    assert (await ask(twin)).content[0].text == LONG


async def post_raw(twin, stream: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = twin.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "Go."}]}
    )
    head = f"POST /v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: k\r\nanthropic-version: 1\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    return reader, writer


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_is_a_reset_of_the_connection(rehearsal, stream):
    twin = await rehearsal(script("cut"))
    reader, writer = await post_raw(twin, stream)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_clean_close_has_no_framing_that_would_give_it_away(rehearsal, stream):
    twin = await rehearsal(script("close"))
    reader, writer = await post_raw(twin, stream)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    assert b"200 OK" in head
    assert b"transfer-encoding" not in head.lower()
    assert b"content-length" not in head.lower()
    assert body
    assert b"message_stop" not in body


async def test_a_reply_that_was_cut_is_not_counted_as_repeated_when_asked_again(rehearsal, ask):
    twin = await rehearsal(script("cut"))
    with pytest.raises(httpx2.HTTPError):
        await ask(twin)
    for _ in range(2):
        await ask(twin)
    assert twin.report()["repeated"] == 1


async def test_a_clean_close_before_the_end_raises_nothing_and_has_no_stop_reason(rehearsal, ask):
    twin = await rehearsal(script("close"))
    reply = await ask(twin)
    assert reply.stop_reason is None
    assert LONG.startswith(reply.content[0].text)
    assert 0 < len(reply.content[0].text) < len(LONG)


async def test_an_error_inside_a_stream_comes_with_status_200(rehearsal, ask):
    twin = await rehearsal(script("stream_error"))
    with pytest.raises(anthropic.APIStatusError) as caught:
        await ask(twin)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")


async def test_garbled_json_in_a_stream_raises_a_decode_error(rehearsal, ask):
    twin = await rehearsal(script("not_json"))
    with pytest.raises(json.JSONDecodeError):
        await ask(twin)


async def test_a_proxys_page_is_not_a_message(rehearsal, ask):
    twin = await rehearsal(script("page"))
    with pytest.raises((AssertionError, RuntimeError)):
        await ask(twin)


async def test_a_reply_cut_off_by_max_tokens_keeps_half_a_text(rehearsal, ask):
    twin = await rehearsal(script("max_tokens"))
    reply = await ask(twin)
    assert reply.stop_reason == "max_tokens"
    assert reply.content[0].text == LONG[: len(LONG) // 2]


async def test_a_tool_call_cut_off_by_max_tokens_has_half_its_input(rehearsal, ask):
    twin = await rehearsal(
        '[[line]]\nfault = "max_tokens"\nuse = [{ tool = "edit", input = { path = "a.py", new = "0123456789" } }]'
    )
    reply = await ask(twin, tools=[{"name": "edit", "input_schema": {"type": "object"}}])
    assert reply.stop_reason == "max_tokens"
    assert reply.content[0].input["path"] == "a.py"
    assert reply.content[0].input.get("new") != "0123456789"


async def test_a_refusal_has_details_and_no_content(rehearsal, ask):
    twin = await rehearsal(script("refusal"))
    reply = await ask(twin)
    assert (reply.stop_reason, reply.content) == ("refusal", [])
    assert reply.stop_details.category == "general_harms"


async def test_a_hang_ends_with_the_clients_patience_and_is_counted(rehearsal, ask):
    twin = await rehearsal(script("hang"))
    with pytest.raises(anthropic.APITimeoutError):
        await ask(twin, timeout=0.2)
    await until(lambda: twin.calls[0].dropped)
    assert (await ask(twin)).content[0].text == LONG


@pytest.mark.parametrize("play", ['fault = "hang"', "seconds = 600"])
async def test_the_server_stops_while_an_answer_is_under_way(rehearsal, ask, play):
    twin = await rehearsal(f'[[line]]\nsay = "{LONG}"\n{play}')
    asked = asyncio.create_task(ask(twin, timeout=60))
    await until(lambda: twin.calls and twin.calls[0].line == 1)
    started = time.monotonic()
    await twin.__aexit__(None, None, None)
    with pytest.raises((httpx2.HTTPError, anthropic.APIConnectionError)):
        await asyncio.wait_for(asked, patient(5))
    assert time.monotonic() - started < 5


async def test_a_paced_stream_takes_its_time_event_by_event(rehearsal, ask):
    twin = await rehearsal(f'[[line]]\nsay = "{LONG}"\nseconds = 0.3')
    client = anthropic.AsyncAnthropic(api_key="k", base_url=twin.url, max_retries=0)
    moments = []
    async with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "Go."}]) as stream:
        async for _ in stream:
            moments.append(time.monotonic())
    await client.close()
    assert moments[-1] - moments[0] > 0.1
    assert len({round(moment, 2) for moment in moments}) > 3


async def test_a_client_that_goes_away_is_recorded_as_dropped(rehearsal, ask):
    twin = await rehearsal(f'[[line]]\nsay = "{LONG}"\nseconds = 600')
    asked = asyncio.create_task(ask(twin, timeout=60))
    await until(lambda: twin.calls and twin.calls[0].usage)
    asked.cancel()
    await until(lambda: twin.report()["dropped"] == 1)
    assert twin.calls[0].dropped
    assert twin.report()["replies"] == 0


async def until(holds) -> None:
    async with asyncio.timeout(patient(10)):
        while not holds():
            await asyncio.sleep(0.01)
