"""A backlog that a schedule starts: on a host where a path counts with this home's proof alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.client.schedules import Schedules
from tests.cli.conftest import Cli, Ran
from tests.e2e.test_backlogs import CONFIG, STORY, ended
from tests.engine import Engine, git, make_target
from tests.waiting import patient


@pytest.mark.timeout(200)
async def test_what_a_schedule_starts_comes_from_this_home_lands_and_has_a_clean_receipt(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker(PERDURE_LOCAL_REPOSITORIES="/nowhere")
        (engine.root / "perdure.toml").write_text(CONFIG)
        (engine.root / "night.json").write_text(json.dumps({"items": [{"id": "hello", "request": "Say hello"}]}))
        cli = Cli.among(engine)

        async def run(*args: str) -> Ran:
            ran: Ran = await asyncio.to_thread(cli, *args)
            assert ran.code == 0, ran
            return ran

        asked = ("--repo", str(origin), "--config", "perdure.toml", "--every", "weekdays 23:00", "--json")
        await run("backlog", "start", "night.json", *asked)
        night = await begun(engine, "night")
        progress = await ended(engine.client.get_workflow_handle(night), engine)
        assert [item["phase"] for item in progress["items"]] == ["landed"], progress
        assert git(origin, "show", f"{progress['branch']}:hello.txt") == "hello"
        receipt = json.loads((await run("backlog", "report", "night", "--json")).out)["receipt"]
        assert receipt["clean"], receipt
        assert "hello" in (await run("show", "night/hello")).out
        (row,) = [one for one in json.loads((await run("list", "--json")).out) if one.get("backlog_id") == night]
        assert (row["repository"], row["status"]) == (str(origin), "ended")
        assert row["pull_request"] == progress["pull_request"]
        once = ("--repo", str(origin), "--config", "perdure.toml", "--at", "2087-11-23 23:00", "--phases", "build")
        await run("deliver", "Say hello", "--id", "once", *once)
        delivery = engine.perdure.delivery(await begun(engine, "once"))
        assert (await delivery.result()).status == "completed", engine.worker_log()[-4000:]
        tested = ("--repo", str(origin), "--config", "perdure.toml", "--branch", progress["branch"])
        schedule = json.loads((await run("run", "test", *tested, "--every", "daily 06:00", "--json")).out)
        assert schedule["when"] == "daily 06:00 UTC", schedule
        result = await engine.perdure.delivery(await begun(engine, schedule["id"])).result()
        assert (result.status, result.tests.status) == ("completed", "green"), engine.worker_log()[-4000:]


async def begun(engine: Engine, schedule: str) -> str:
    """Make it start something, and return the id of that."""
    await engine.client.get_schedule_handle(schedule).trigger()
    async with asyncio.timeout(patient(30)):
        while not (at := await Schedules(engine.client, None).get(schedule)).last:
            await asyncio.sleep(0.1)
    return at.last
