"""Prompt-cache accounting, at the ratios measured for the documented rules."""

from __future__ import annotations

from typing import Any

import pytest

TURNS = 30
MARK = {"type": "ephemeral"}
TOOLS = [
    {"name": name, "description": "What this tool does. " * 10, "input_schema": {"type": "object", "properties": {}}}
    for name in ("bash", "edit", "read")
]
SYSTEM = "Step: implement\n\n" + "A rule to follow, in a sentence of a usual length. " * 60


def loop(parallel: int) -> str:
    calls = ", ".join(f'{{ tool = "bash", input = {{ command = "command {n}" }} }}' for n in range(parallel))
    return f'title = "loop"\n[[line]]\nsay = "Next."\nuse = [{calls}]'


async def play(ask: Any, twin: Any, *, marked: int, automatic: bool = True, changing: bool = False) -> float:
    """Thirty turns; `marked` user messages before the last one carry a breakpoint of their own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Do it. " * 50}]}]
    for turn in range(TURNS):
        now = f"now={turn}\n" if changing else ""
        system: list[dict[str, Any]] = [{"type": "text", "text": now + SYSTEM}]
        if marked:
            system[0]["cache_control"] = MARK
        users = [n for n, message in enumerate(messages) if message["role"] == "user"]
        breakpoints = users[-1 - marked : -1] if marked else []
        sent = [with_mark(message) if n in breakpoints else message for n, message in enumerate(messages)]
        top = {"cache_control": MARK} if automatic else {}
        reply = await ask(twin, sent, system=system, tools=TOOLS, **top)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"output {turn} " * 60}
            for block in reply.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    return twin.report()["cache_hit_ratio"]


def with_mark(message: dict[str, Any]) -> dict[str, Any]:
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, "cache_control": MARK}]}


async def test_without_breakpoints_nothing_is_cached(rehearsal, ask):
    assert await play(ask, await rehearsal(loop(1)), marked=0, automatic=False) == 0


async def test_the_top_level_breakpoint_is_enough_for_one_call_a_turn(rehearsal, ask):
    assert await play(ask, await rehearsal(loop(1)), marked=0) >= 0.9


async def test_a_changing_line_in_the_system_prompt_costs_everything_but_the_tools(rehearsal, ask):
    assert await play(ask, await rehearsal(loop(1)), marked=0, changing=True) == 0


async def test_with_twelve_parallel_calls_the_top_level_breakpoint_alone_looks_back_in_vain(rehearsal, ask):
    assert await play(ask, await rehearsal(loop(12)), marked=0) < 0.2


@pytest.mark.parametrize("parallel", [1, 12])
async def test_the_recipe_reads_nine_tenths_from_the_cache(rehearsal, ask, parallel):
    """Top level, system, and the previous two user messages."""
    twin = await rehearsal(loop(parallel))
    assert await play(ask, twin, marked=2) >= 0.9
    assert twin.prefix_breaks == 0


async def test_usage_splits_the_input_into_read_written_and_fresh(rehearsal, ask):
    twin = await rehearsal('[[line]]\nsay = "Hello."')
    marked = [{"type": "text", "text": "x" * 400, "cache_control": MARK}, {"type": "text", "text": "tail"}]
    first = (await ask(twin, [{"role": "user", "content": marked}])).usage
    again = (await ask(twin, [{"role": "user", "content": marked}])).usage
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens == again.cache_read_input_tokens > 100
    assert again.cache_creation_input_tokens == 0
    assert first.input_tokens == again.input_tokens == 8  # {"type":"text","text":"tail"} is 29 bytes
    assert first.cache_creation.ephemeral_5m_input_tokens == first.cache_creation_input_tokens
    assert first.output_tokens == 8


@pytest.mark.parametrize(("ttl", "lives_s"), [("5m", 300), ("1h", 3600)])
async def test_an_entry_lives_for_its_time_after_its_last_use(rehearsal, ask, ttl, lives_s):
    now = [0.0]
    twin = await rehearsal('[[line]]\nsay = "Hello."', clock=lambda: now[0])

    async def read_at(moment: float) -> bool:
        now[0] = moment
        usage = (await ask(twin, cache_control={"type": "ephemeral", "ttl": ttl})).usage
        return usage.cache_read_input_tokens > 0

    assert not await read_at(0)
    assert await read_at(lives_s - 1)
    assert await read_at(2 * lives_s - 2)
    assert not await read_at(3 * lives_s)


async def test_prompts_below_the_minimum_are_not_cached(rehearsal, ask):
    twin = await rehearsal('cache_minimum = 1024\n[[line]]\nsay = "Hello."')
    for words, cached in (("short", False), ("long " * 1000, True)):
        await ask(twin, words, cache_control=MARK)
        usage = (await ask(twin, words, cache_control=MARK)).usage
        assert (usage.cache_read_input_tokens > 0) is cached


async def test_another_model_reads_nothing(rehearsal, ask):
    twin = await rehearsal('[[line]]\nsay = "Hello."')
    await ask(twin, cache_control=MARK)
    usage = (await ask(twin, cache_control=MARK, model="claude-opus-5-5")).usage
    assert usage.cache_read_input_tokens == 0


async def test_a_client_that_asks_is_told_why_the_cache_did_not_find_what_it_had_sent(rehearsal, ask):
    twin = await rehearsal('[[line]]\nsay = "Yes."')
    first = await ask(twin, system="Be brief.")
    assert first.diagnostics is None
    grown = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "On."},
    ]
    for change, reason in (
        ({"messages": grown}, None),
        ({"messages": grown, "system": "Be long."}, "system_changed"),
        ({"messages": [{"role": "user", "content": "Something else."}]}, "messages_changed"),
        ({"messages": grown, "diagnostics": {"previous_message_id": "msg_none"}}, "previous_message_not_found"),
    ):
        asked = {"system": "Be brief.", "diagnostics": {"previous_message_id": first.id}, **change}
        answered = await ask(twin, asked.pop("messages"), **asked)
        found = answered.diagnostics and answered.diagnostics.cache_miss_reason
        assert (found.type if found else None) == reason
    assert sum(twin.report()["cache_misses"].values()) == 3
