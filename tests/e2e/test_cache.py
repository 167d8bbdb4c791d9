"""Prompt caching through the whole product, on the rehearsal's accounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab, finished, make_target

TURNS = 30


def _screenplay(calls: int) -> str:
    lines = ["title = 'cache'"]
    for turn in range(1, TURNS):
        text = f"turn {turn}: " + "words " * 40
        uses = [
            f'{{ tool = "write", input = {{ path = "f{call}.txt", content = "{text}" }} }}' for call in range(calls)
        ]
        lines += ["[[line]]", 'step = "implement"', f"turn = {turn}", f"use = [{', '.join(uses)}]"]
    return "\n".join([*lines, "[[line]]", 'step = "implement"', 'say = "Write files"', ""])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "calls", [pytest.param(1, marks=pytest.mark.slow), 8], ids=["one call a turn", "eight calls a turn"]
)
async def test_over_thirty_turns_nine_tenths_of_the_prompt_come_from_the_cache(
    calls: int, tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, _screenplay(calls), ports=ports) as lab:
        lab.worker()
        config = "version = 1\n[setup]\ncommands = []\n"
        result = await finished(await lab.submit(origin, phases=["build"], config=config), lab, timeout=100)
        assert result.status == "completed", result.message
        usage = result.usage
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        assert usage.cache_read_tokens / prompt >= 0.9
        assert (await lab.report())["prefix_breaks"] == 0
