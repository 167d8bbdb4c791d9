"""A turn leaves little in Temporal's history, and little of its prompt is new. That it replays: test_delivery.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine import Engine, finished, make_target


def _many(turns: int) -> str:
    """Eight calls a turn in the first third, which the cache finds hardest, and one in the others."""
    lines = ["title = 'many turns'"]
    for turn in range(1, turns - 1):
        text = f"turn {turn}: " + "words " * 40
        calls = range(8 if turn <= turns // 3 else 1)
        uses = [f'{{ tool = "write", input = {{ path = "f{call}.txt", content = "{text}" }} }}' for call in calls]
        lines += ["[[line]]", 'step = "implement"', f"turn = {turn}", f"use = [{', '.join(uses)}]"]
    tested = 'use = [{ tool = "bash", input = { command = "python3 -m unittest -q" } }]'
    lines += ["[[line]]", 'step = "implement"', f"turn = {turns - 1}", tested]
    return "\n".join([*lines, "[[line]]", 'step = "implement"', 'say = "Write many files"', ""])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("turns", [30, pytest.param(100, marks=pytest.mark.slow)])
async def test_a_turn_costs_at_most_seven_events_and_1300_bytes_and_nine_tenths_of_its_prompt_come_from_the_cache(
    turns: int, tmp_path: Path, ports: int
) -> None:
    """The cache is the rehearsal's accounting."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, _many(turns), ports=ports) as engine:
        engine.worker()
        config = "version = 1\n[setup]\ncommands = []\n[limits]\nturns_per_step = 120\n"
        submitted = await engine.submit(origin, phases=["build"], config=config)
        result = await finished(submitted, engine, timeout=150)
        assert result.status == "completed", result.message
        assert next(step.turns for step in result.steps if step.step == "implement") == turns
        usage = result.usage
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        assert usage.cache_read_tokens / prompt >= 0.9
        assert (await engine.report())["prefix_breaks"] == 0
        history = await engine.handle().fetch_history()
        size = (await engine.handle().describe()).raw_description.workflow_execution_info.history_size_bytes
        kinds = [event.WhichOneof("attributes") for event in history.events]
        first = next(
            number
            for number, event in enumerate(history.events)
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        )
        last = max(
            number
            for number, event in enumerate(history.events)
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        )
        spent = sum(event.ByteSize() for event in history.events[first:last])
        assert (last - first) / (turns - 1) <= 7, kinds[first : first + 14]
        assert spent / (turns - 1) <= 1300
        assert size < 50_000 + 1500 * turns
