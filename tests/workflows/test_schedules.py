"""`--at` and `--every`: what begins at a time, on a real server whose schedules are made to begin at once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from backlog_fixtures import Branch
from temporalio.client import Client

from perdure.client import ScheduleInfo
from perdure.client.schedules import Schedules
from perdure.models.backlog.state import BacklogProgress
from perdure.models.delivery.request import parse_request
from perdure.models.ids import SCHEDULED_ID
from tests.cli.conftest import Cli
from tests.cli.decision_fixtures import Desk, desk
from tests.engine import make_target

__all__ = ["desk"]

NIGHT = "version: 1\nitems:\n  - {id: api, request: Add it}\n  - {id: page, request: Show it, depends_on: [api]}\n"


@pytest.fixture
def at_home(desk: Desk) -> Desk:
    """In a checkout, with a backlog's file."""
    make_target(desk.cli.cwd / "calc")
    desk.cli = Cli(desk.cli.home, desk.cli.cwd / "calc-work", desk.cli.env)
    (desk.cli.cwd / "night.yaml").write_text(NIGHT)
    return desk


async def begin(client: Client, id: str) -> None:
    await client.get_schedule_handle(id).trigger()


async def told(desk: Desk, id: str, **wanted: Any) -> dict[str, Any]:
    """A schedule as the command lists it, as soon as it is so."""

    async def found() -> dict[str, Any] | None:
        all = {one["id"]: one for one in json.loads((await desk("schedules", "--json")).out)}
        return all[id] if id in all and wanted.items() <= all[id].items() else None

    result: dict[str, Any] = await desk.until(found)
    return result


@pytest.mark.timeout(150)
async def test_a_backlog_of_every_night_begins_is_skipped_while_it_runs_is_paused_and_removed(at_home: Desk) -> None:
    desk, branch = at_home, Branch(api="a", page="p")
    branch.holding = {"api": asyncio.Event()}
    desk.scene = branch  # type: ignore[assignment]
    every = ("backlog", "start", "night.yaml", "--every", "weekdays 23:00 Europe/Berlin")
    made = json.loads((await desk(*every, "--json")).out)
    assert (made["id"], made["what"], made["state"], made["attached"]) == ("night", "backlog", "waits", False)
    assert (made["when"], made["about"]) == ("weekdays 23:00 Europe/Berlin", "2 items: api, page")
    assert datetime.fromisoformat(made["next"]).minute == 0
    assert json.loads((await desk(*every, "--json")).out)["attached"], "the very same: nothing new"
    other = await desk.refused("backlog", "start", "night.yaml", "--every", "weekdays 22:00")
    assert "the id night is taken by a schedule: backlog, weekdays 23:00 Europe/Berlin" in other
    async with desk.worker():
        await begin(desk.client, "night")
        run = (await told(desk, "night", started=1))["last"]
        assert SCHEDULED_ID.fullmatch(run)
        status = await desk.until(lambda: _status(desk, "night"))
        assert (status.backlog_id, status.branch) == (run, "perdure/night")
        assert [view.delivery for view in status.items if view.phase == "building"] == [f"{run}/api"]
        assert run in (await desk("list")).out
        assert json.loads((await desk("show", "night/api", "--json")).out)["delivery_id"] == f"{run}/api"
        await begin(desk.client, "night")
        await told(desk, "night", started=1, skipped=1)
        listed = (await desk("schedules")).out
        assert f"{run} running" in listed
        assert "! night: 1 time skipped, its last run was still at work" in listed
        branch.holding["api"].set()
        await told(desk, "night", outcome="completed")
        items = json.loads((await desk("backlog", "status", "night", "--json")).out)["items"]
        assert [item["phase"] for item in items] == ["landed", "landed"]
        assert "night is paused" in (await desk("schedules", "pause", "night", "--note", "release day")).out
        assert (await told(desk, "night", state="paused"))["note"] == "release day"
        assert "paused: release day" in (await desk("schedules")).out
        await desk("schedules", "resume", "night")
        await told(desk, "night", state="waits")
        assert "did you mean night?" in await desk.refused("schedules", "remove", "nigt")
        await desk("schedules", "remove", "night")
        assert "no schedule night" in await desk.refused("schedules", "pause", "night")
        assert (await desk("backlog", "status", run)).out.startswith(run), "what it has started stays"


async def _status(desk: Desk, id: str) -> BacklogProgress | None:
    ran = await desk("backlog", "status", id, "--json")
    progress = BacklogProgress.model_validate_json(ran.out)
    return progress if any(view.phase == "building" for view in progress.items) else None


@pytest.mark.timeout(120)
async def test_a_delivery_at_a_time_begins_once_and_another_of_that_id_takes_its_place_then(at_home: Desk) -> None:
    desk = at_home
    async with desk.worker():
        later = ("deliver", "Add sub", "--phases", "plan", "--id", "sub", "--at", "2087-11-23 23:00")
        first = await desk(*later)
        assert "begins 2087-11-23 23:00 UTC" in first.out
        assert "scheduled already" in (await desk(*later)).out
        seen = await desk.client.get_schedule_handle("sub").describe()
        assert seen.schedule.state.note == "2087-11-23 23:00 UTC: Add sub", "what the Web UI shows"
        assert await Schedules(desk.client, None).will_start_something(), "a worker stays for it"
        await begin(desk.client, "sub")
        run = (await told(desk, "sub", started=1))["last"]
        asked = await desk.asked(run)
        assert asked.gate == "plan"
        described = await desk.client.get_workflow_handle(run).describe()
        assert await described.static_summary() == "Add sub"
        await desk("approve", "sub")
        await desk.result(run)
        await told(desk, "sub", outcome="completed")
        await desk("schedules", "pause", "sub")
        assert not await Schedules(desk.client, None).will_start_something(), "nobody has to stay for what is paused"


@pytest.mark.timeout(60)
async def test_a_moment_that_passes_while_it_is_made_begins_at_once_and_makes_room_when_it_is_over(desk: Desk) -> None:
    schedules = desk.perdure.schedules
    request = {"repository": "/r", "request": "Add sub", "phases": ["plan"]}
    assert await schedules.add(parse_request(request), "sub", datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01 00:00 UTC")
    first = await desk.until(lambda: _begun(schedules, "sub"))
    assert first.state == "over"
    assert await schedules.add(parse_request(request), "sub", datetime(2087, 1, 1, tzinfo=UTC), "2087-01-01 00:00 UTC")
    assert (await schedules.get("sub")).started == 0
    assert [one.state for one in await desk.until(schedules.list)] == ["waits"]


async def _begun(schedules: Schedules, id: str) -> ScheduleInfo | None:
    found = await schedules.get(id)
    return found if found.started and found.next is None else None
