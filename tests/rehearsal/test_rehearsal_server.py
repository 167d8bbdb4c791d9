"""The same request gives the same reply, before and after a restart; the report counts what happened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic

import perdure
from perdure.models.errors import BadInput
from tests.waiting import patient

ROOT = Path(perdure.__file__).parents[1]
PLAY = """
title = "durations"
[[line]]
turn = 1
think = "Hm."
say = "Looking, with ümlauts and a \\u2028 separator."
use = [{ tool = "bash", input = { command = "ls -l 'ä'" } }, { tool = "bash" }]
[[line]]
say = "Done."
"""
TOOLS: list[dict[str, Any]] = [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}]


async def test_the_same_request_gives_the_same_bytes_after_a_restart(rehearsal, ask):
    replies = []
    for _ in range(2):
        twin = await rehearsal(PLAY)
        replies.append(await ask(twin, tools=TOOLS))
        await twin.__aexit__(None, None, None)
    one, two = (reply.to_json() for reply in replies)
    assert one == two
    assert replies[0].content[1].text == "Looking, with ümlauts and a \u2028 separator."
    assert [block.input for block in replies[0].content[2:]] == [{"command": "ls -l 'ä'"}, {}]


async def test_ids_differ_between_conversations_and_within_a_message(rehearsal, ask):
    twin = await rehearsal(PLAY)
    one, two = [await ask(twin, words, tools=TOOLS) for words in ("Go.", "Go on.")]
    assert one.id != two.id
    assert len({block.id for reply in (one, two) for block in reply.content if block.type == "tool_use"}) == 4


async def test_a_cache_mark_does_not_change_the_ids(rehearsal, ask):
    twin = await rehearsal(PLAY)
    plain = await ask(twin, tools=TOOLS)
    assert (await ask(twin, tools=TOOLS, cache_control={"type": "ephemeral"})).id == plain.id


async def test_a_message_without_a_stream_is_the_same_message(rehearsal, ask):
    twin = await rehearsal(PLAY)
    streamed = await ask(twin, tools=TOOLS)
    async with AsyncAnthropic(api_key="k", base_url=twin.url, max_retries=0) as client:
        whole = await client.messages.create(
            model="claude-sonnet-5-5",
            max_tokens=1000,
            system="Step: implement\n\nYou write software.",
            messages=[{"role": "user", "content": "Go."}],
            tools=TOOLS,  # type: ignore[arg-type]
        )
    assert whole.to_dict() == streamed.to_dict()


async def test_the_events_of_a_stream_come_in_the_apis_order(rehearsal):
    twin = await rehearsal(PLAY)
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    async with httpx2.AsyncClient() as client:
        answer = await client.post(
            f"{twin.url}/v1/messages",
            json=body | {"tools": TOOLS, "thinking": {"type": "adaptive", "display": "summarized"}},
            headers={"x-api-key": "k", "anthropic-version": "2026-10-21"},
        )
    events = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
    kinds = [event.get("delta", {}).get("type") or event["type"] for event in events]
    assert [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind] == [
        "message_start",
        "ping",
        *("content_block_start", "thinking_delta", "signature_delta", "content_block_stop"),
        *("content_block_start", "text_delta", "content_block_stop"),
        *("content_block_start", "input_json_delta", "content_block_stop") * 2,
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["stop_reason"] is None
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_conversation_that_only_grows_breaks_no_prefix_even_after_a_crash(rehearsal, ask):
    twin = await rehearsal('[[line]]\nsay = "Next."')
    grown = [{"role": "user", "content": "one"}]
    for word in ("two", "three"):
        await ask(twin, grown)
        grown = [*grown, {"role": "assistant", "content": "Next."}, {"role": "user", "content": word}]
    await ask(twin, grown)
    await ask(twin, grown[:3])  # a turn is redone
    await ask(twin, [*grown[:4], {"role": "user", "content": "another three"}])  # and goes on in another way
    assert twin.prefix_breaks == 0


@pytest.mark.parametrize("change", ["text", "tools"])
async def test_a_changed_earlier_turn_breaks_the_prefix(rehearsal, ask, change):
    twin = await rehearsal('[[line]]\nsay = "Next."')
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Next."},
        {"role": "user", "content": "two"},
    ]
    await ask(twin, messages[:1])
    if change == "text":
        messages[1] = {"role": "assistant", "content": "Next!"}
        messages += [{"role": "assistant", "content": "Next."}, {"role": "user", "content": "three"}]
        await ask(twin, messages)
    else:
        await ask(twin, messages, tools=TOOLS)
    assert twin.prefix_breaks == 1


async def test_the_report_is_served_as_json(rehearsal, ask):
    twin = await rehearsal('title = "told"\n[[line]]\nsay = "Hello."\nfault = "429"')
    for _ in range(3):
        try:
            await ask(twin, cache_control={"type": "ephemeral"})
        except Exception:  # noqa: BLE001 - the scripted 429
            continue
    async with httpx2.AsyncClient() as client:
        report = (await client.get(f"{twin.url}/rehearsal/report")).json()
    assert report == twin.report()
    usage = report.pop("usage")
    assert usage["cache_read_input_tokens"] == usage["cache_creation_input_tokens"] > 0
    assert report == {
        "title": "told",
        "calls": 3,
        "replies": 2,
        "dropped": 0,
        "refused": 0,
        "faults": {"429": 1},
        "repeated": 1,
        "prefix_breaks": 0,
        "cache_misses": {},
        "cache_hit_ratio": 0.5,
    }


async def test_a_taken_port_is_bad_input(rehearsal):
    twin = await rehearsal(PLAY)
    with pytest.raises(BadInput, match="cannot listen") as caught:
        await rehearsal(PLAY, port=int(twin.url.rpartition(":")[2]))
    assert caught.value.where == twin.url.removeprefix("http://")


async def test_a_port_that_does_not_exist_is_bad_input(rehearsal):
    with pytest.raises(BadInput, match="a port is 0 to 65535"):
        await rehearsal(PLAY, port=70_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_module_prints_what_to_export_and_ends_at_a_signal(tmp_path, number):
    file = tmp_path / "play.toml"
    file.write_text(PLAY)
    with subprocess.Popen(
        [sys.executable, "-m", "perdure.rehearsal", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline() + process.stdout.readline()
            exports = dict(re.findall(r"(\w+)=(\S+)", line))
            async with AsyncAnthropic(
                api_key=exports["ANTHROPIC_API_KEY"], base_url=exports["ANTHROPIC_BASE_URL"], max_retries=0
            ) as client:
                reply = await client.messages.create(
                    model="m",
                    max_tokens=9,
                    messages=[
                        {"role": "user", "content": "Go."},
                        {"role": "assistant", "content": "Hm."},
                        {"role": "user", "content": "On."},
                    ],
                )
            assert reply.content[0].text == "Done."
            os.kill(process.pid, number)
            rest, errors = process.communicate(timeout=patient(20))
        finally:
            process.kill()
    assert (process.returncode, rest, errors) == (0, "", "")


def test_the_module_says_what_is_wrong_with_the_file(tmp_path):
    file = tmp_path / "play.toml"
    file.write_text('[[line]]\nsya = "x"\n')
    done = subprocess.run(
        [sys.executable, "-m", "perdure.rehearsal", str(file)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown key sya (did you mean say?)\n")
    assert len(done.stderr.splitlines()) == 3
