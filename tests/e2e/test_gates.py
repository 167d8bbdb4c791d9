"""A person in control of whole deliveries, from the command line: gates, words, holds, an end at once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.system.home import login_name
from perdure.models.delivery.decisions import PendingDecision
from tests.cli.conftest import Cli
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, git, make_target, pulls, until
from tests.processes import alive, children_of, name_of

TYPED = """
[[line]]
step = "plan"
contains = ["with types, please"]
answer = { title = "Add typed sub", problem = "There is no sub.", solution = "Write it.", relevant_files = ["calc.py"], tasks = [{ title = "Write sub", details = "Beside add.", files = ["calc.py"] }], validation = ["sub(3, 2) is 1"] }
[[line]]
step = "fix_review"
contains = ["say what it is for"]
lacks = ["mended"]
use = [{ tool = "bash", input = { command = "printf '\\n# subtracts\\n' >> calc.py && echo mended" } }]
[[line]]
step = "fix_review"
say = "Say what sub is for"
"""  # noqa: E501 - one line an answer, as in the screenplays
GATES = HAPPY.replace("[[line]]", TYPED.strip() + "\n[[line]]", 1)


class Person:
    """The command line, with the engine's home."""

    def __init__(self, engine: Engine, cwd: Path) -> None:
        self.engine, self.cli = engine, Cli(engine.home.root, cwd, {})

    async def __call__(self, *args: str, stdin: str = "") -> str:
        ran = await asyncio.to_thread(self.cli, *args, stdin=stdin)
        assert ran.code == 0, (args, ran, self.engine.worker_log()[-2000:])
        return ran.out

    async def asked(self, not_of: str = "", within_s: float = 90) -> PendingDecision:
        found: PendingDecision = await until(lambda: self._asked(not_of), timeout=within_s)
        return found

    async def _asked(self, not_of: str) -> PendingDecision | None:
        asked = (await self.engine.perdure.delivery("calc-sub").describe()).pending_decision
        return asked if asked is not None and asked.target != not_of else None


def told(engine: Engine, words: str) -> list[tuple[str | None, int]]:
    """Which requests to the model had these words in their newest message: step and turn."""
    assert engine.rehearsal is not None
    found = []
    for call in engine.rehearsal.calls:
        newest = next(m for m in reversed(call.body["messages"]) if m["role"] == "user")
        if words in json.dumps(newest):
            found.append((call.step, call.turn))
    return found


def commits(origin: Path) -> list[str]:
    return git(origin, "log", "--format=%s", "main..perdure/calc-sub").splitlines()


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_person_sends_plan_and_change_back_edits_says_and_approves_also_while_no_worker_runs(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, GATES, ports=ports, measured=True) as engine:
        engine.worker()
        person = Person(engine, tmp_path)
        submitted = await engine.submit(origin, gates=["plan", "pull_request"])

        first = await person.asked()
        assert "waits for" in await person("list")
        await person("reject", "calc-sub", "--note", "with types, please")
        second = await person.asked(first.target)
        assert second.summary == "approve the plan: Add typed sub"
        plan = await person("approve", "calc-sub", "--print")
        await person("say", "calc-sub", "mind the sign")
        edited = plan.replace("title: Add typed sub", "title: Add sub as edited", 1)
        assert "approved" in await person("approve", "calc-sub", "--file", "-", stdin=edited)

        third = await person.asked(second.target)
        while third.gate == "plan":  # the edited plan, in the moment before its approval was counted
            third = await person.asked(third.target)
        assert third.gate == "pull_request"
        assert not pulls(origin)
        assert told(engine, "mind the sign") == [("implement", 1), ("review", 1)], (
            "read once, and known to the reviewer"
        )
        assert told(engine, "Add sub as edited")[0] == ("implement", 1)
        await person("reject", "calc-sub", "--note", "say what it is for")
        fourth = await person.asked(third.target)
        engine.kill_workers()
        assert "recorded, not yet read" in await person("approve", "calc-sub", "--of", fourth.target)
        assert not pulls(origin)

        engine.worker()
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert len(commits(origin)) == 2
        assert "# subtracts" in git(origin, "show", "perdure/calc-sub:calc.py")
        assert result.pull_request is not None
        assert result.pull_request.title == "feat: add sub as edited"
        assert [step.attempt for step in result.steps if step.step == "plan"] == [1, 2]


@pytest.mark.timeout(120)
async def test_a_hold_stops_between_two_turns_and_cancel_now_ends_a_running_tool_and_names_what_is_kept(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    screenplay = HAPPY.replace("sleep 0.5", "touch started && sleep 2").replace(
        "python3 -m unittest -q", "touch again && sleep 100"
    )
    async with Engine.open(tmp_path, screenplay, ports=ports, measured=True) as engine:
        worker = engine.worker()
        person = Person(engine, tmp_path)
        submitted = await engine.submit(origin, **BUILT)
        tree = engine.home.tree("calc-sub")
        await until((tree / "started").exists)
        await person("hold", "calc-sub", "--note", "let me look")
        await until(lambda: _waits(submitted.delivery, f"held by {login_name()}: let me look"))
        asked = engine.model_calls()
        await asyncio.sleep(1)
        assert engine.model_calls() == asked
        assert "perdure resume calc-sub" in await person("show", "calc-sub")

        await person("resume", "calc-sub")
        await until((tree / "again").exists)
        assert engine.model_calls() == asked + 1
        tools = [process for process in children_of(worker.pid) if name_of(process) == "bwrap"]
        assert tools
        began = time.monotonic()
        ending = asyncio.create_task(person("cancel", "calc-sub", "--now"))
        await until(lambda: not [process for process in tools if alive(process)], timeout=15, every=0.02)
        took = time.monotonic() - began
        out = await ending
        assert took < 10, f"the tool ran for {took:.1f} s after cancel --now"  # two seconds on a machine at rest
        result = await finished(submitted, engine)
        assert result.status == "cancelled"
        assert result.checkpoint
        assert f"checkpoint {result.checkpoint[:7]} kept" in out


async def _waits(delivery: Any, words: str) -> bool:
    return bool((await delivery.progress()).waiting == words)
