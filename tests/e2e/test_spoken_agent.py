"""An agent of the Agent Client Protocol in whole deliveries: it implements a step, is killed, held and cancelled."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from perdure.models.ids import delivery_key
from tests.adapters.worker.turn import stand_in
from tests.lab import BUILT, Lab, finished, git, make_target, sandboxes, until
from tests.waiting import patient

PLAY = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "echo one > one.txt" } }]
[[line]]
step = "implement"
turn = 2
use = [{ tool = "bash", input = { command = "touch started; sleep SECONDS; echo two > two.txt" } }]
[[line]]
step = "implement"
turn = 3
say = "Add both"
"""
PRESET = """
title = "Speaker"
command = ["{program}"]
args = ["speaks"]
sessions = ["session.json"]
output = "acp"
wire = "anthropic"
[env]
ANTHROPIC_BASE_URL = "{{proxy}}"
[abilities]
resume = true
words = true
"""
CONFIG = {**BUILT, "config": BUILT["config"] + '[steps.implement]\nagent = "speaker"\n'}


def installed(root: Path) -> dict[str, str]:
    """The variables of a worker whose host has the agent and its preset."""
    program, preset = root / "speaker", root / "config" / "perdure" / "agents" / "speaker.toml"
    preset.parent.mkdir(parents=True)
    source = Path(stand_in.__file__).read_text(encoding="utf-8")
    program.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{source}", encoding="utf-8")
    program.chmod(0o755)
    preset.write_text(PRESET.format(program=program), encoding="utf-8")
    return {"XDG_CONFIG_HOME": str(root / "config")}


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_it_implements_a_step_is_killed_with_its_worker_and_held_and_its_change_is_shipped_once(
    tmp_path: Path, ports: int
) -> None:
    origin, env = make_target(tmp_path / "calc.git"), installed(tmp_path)
    async with Lab.open(tmp_path, PLAY.replace("SECONDS", "2"), ports=ports) as lab:
        lab.worker(**env)
        submitted = await lab.submit(origin, **CONFIG)
        started = lab.home.tree(delivery_key("calc-sub")) / "started"
        await until(started.exists)
        await submitted.delivery.hold("let me look")
        lab.kill_workers()
        lab.worker(**env)

        async def held() -> bool:
            seen = await submitted.delivery.describe()
            return seen.outcome == "waiting" and not seen.pending

        await until(held, timeout=patient(60))
        await asyncio.sleep(2)
        asked = lab.model_calls()
        await asyncio.sleep(2)
        assert lab.model_calls() == asked, "nothing is asked while it is held"
        await submitted.delivery.resume()
        result = await finished(submitted, lab, 150)
        assert result.status == "delivered", result.message
        assert git(origin, "show", "perdure/calc-sub:one.txt") == "one"
        assert git(origin, "show", "perdure/calc-sub:two.txt") == "two"
        assert result.receipt.worker_deaths >= 1
        assert result.receipt.replies_paid_twice == 0


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_it_is_cancelled_in_the_middle_of_a_tool_and_nothing_of_it_lives(tmp_path: Path, ports: int) -> None:
    origin, env = make_target(tmp_path / "calc.git"), installed(tmp_path)
    async with Lab.open(tmp_path, PLAY.replace("SECONDS", "100"), ports=ports) as lab:
        lab.worker(**env)
        submitted = await lab.submit(origin, **CONFIG)
        started = lab.home.tree(delivery_key("calc-sub")) / "started"
        await until(started.exists)
        await submitted.delivery.cancel()
        result = await finished(submitted, lab, 90)
        assert result.status == "cancelled"
        await until(lambda: not sandboxes(lab))
        assert git(origin, "branch", "--list", "perdure/*") == ""
