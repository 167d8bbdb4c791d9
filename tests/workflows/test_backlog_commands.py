"""`perdure backlog` and the client at a backlog that runs: what people type reaches the workflow, once."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, night
from temporalio.client import Client

from perdure.client import Perdure
from perdure.models.backlog.state import BacklogProgress
from perdure.models.errors import BadInput, PerdureError
from perdure.models.rules.inbox import NotCounted
from tests.cli.conftest import Cli, Ran
from tests.deliveries import playing
from tests.waiting import patient


@pytest.fixture
def typed(server: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": server})


async def shown(perdure: Perdure, id: str, **wanted: str) -> BacklogProgress:
    """Its standing, as soon as these items are in these phases."""
    async with asyncio.timeout(patient(40)):
        while True:
            progress = await perdure.backlog(id).progress()
            phases = {view.id: view.phase for view in progress.items}
            if wanted.items() <= phases.items():
                return progress
            await asyncio.sleep(0.05)


@pytest.mark.timeout(150)
async def test_a_running_backlog_is_looked_at_and_changed_from_the_command_line(
    client: Client, fresh: str, typed: Cli
) -> None:
    branch, perdure = Branch(api="a", page="p", docs="d", more="m"), Perdure(client)
    branch.fails = {"docs"}
    branch.holding = {"api": asyncio.Event()}

    async def run(*args: str, code: int = 0) -> Ran:
        ran: Ran = await asyncio.to_thread(typed, "backlog", *args)
        assert ran.code == code, ran
        return ran

    async with playing(client, branch):
        items = ({"id": "api"}, {"id": "page", "depends_on": ["api"]}, {"id": "docs"})
        await perdure.submit_backlog(night(*items, parallel=2), fresh)
        await shown(perdure, fresh, api="building", docs="failed", page="after")
        status = (await run("status", fresh)).out
        assert f"{fresh}  3 items · 1 building · 1 failed · 1 after others" in status
        assert "failed    docs (tests are red" in status
        assert json.loads((await run("status", "--json")).out)["backlog_id"] == fresh, "the newest"
        assert "docs" in (await run("graph", fresh, "--format", "mermaid")).out
        assert "added: more" in (await run("add", fresh, "more", "--request", "Do more", "--depends-on", "page")).out
        assert "edited: more" in (await run("edit", fresh, "more", "--request", "Do more of it")).out
        given = (await perdure.backlog(fresh).past()).items
        assert given["more"] == {"id": "more", "request": "Do more of it", "depends_on": ["page"]}
        assert "edited: more" in (await run("edit", fresh, "more", "--attempts", "3", "--after-red")).out
        given = (await perdure.backlog(fresh).past()).items
        assert given["more"] == {
            "id": "more", "request": "Do more of it", "depends_on": ["page"], "attempts": 3, "after_red": True,
        }  # fmt: skip
        assert "priority -5: more" in (await run("prioritise", fresh, "more", "-5")).out
        refused = (await run("add", fresh, "no", "--issue", "3", code=2)).err
        assert "this repository has no issues that Perdure can read" in refused, "as `start` says it"
        assert "edited: more" in (await run("edit", fresh, "more", "--depends-on", "")).out
        assert "depends_on" not in (await perdure.backlog(fresh).past()).items["more"]
        assert "goes on: docs" in (await run("retry", fresh, "docs")).out
        await shown(perdure, fresh, docs="failed")
        assert (await perdure.backlog(fresh).past()).start_counts[f"{fresh}/docs"] == 2, "red once more"
        assert (await run("skip", fresh, "docs", "--note", "never mind", "--json")).out
        refused = (await run("add", fresh, "api", "--request", "again", code=2)).err
        assert len(refused.splitlines()) <= 3, refused
        assert "apu" in (await run("skip", fresh, "apu", code=2)).err
        await run("hold", fresh, "--note", "release day")
        assert "held: release day" in (await run("status", fresh)).out
        await run("resume", fresh)
        branch.holding["api"].set()
        end = await run("status", fresh, "--watch", "--json")
        assert {view["id"]: view["phase"] for view in json.loads(end.out)["items"]} == {
            **dict.fromkeys(("api", "page", "more"), "landed"),
            "docs": "skipped",
        }
        assert "nothing of it can be changed" in (await run("hold", fresh, code=2)).err
        report = json.loads((await run("report", fresh, "--json")).out)
        assert report["receipt"]["unread"], "there is no such repository: that is said, and is no zero"
        assert not report["receipt"]["clean"]
        assert report["wanted"]["more"] == "Do more of it"
        page = typed.cwd / "night.html"
        await run("report", fresh, "--html", str(page))
        assert "Receipt, counted from history and git" in page.read_text()
        assert fresh in (await asyncio.to_thread(typed, "list")).out
        listed = json.loads((await asyncio.to_thread(typed, "list", "--json")).out)
        assert fresh in [one.get("backlog_id") for one in listed]
        assert f"{fresh}/api" in [one.get("delivery_id") for one in listed]
        assert f"{fresh} is a backlog" in (await asyncio.to_thread(typed, "show", fresh)).err


@pytest.mark.timeout(90)
async def test_the_same_backlog_again_attaches_and_another_of_that_id_is_refused(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, perdure = Branch(api="a"), Perdure(client)
    branch.holding = {"api": asyncio.Event()}
    mine, other = night({"id": "api"}), night({"id": "api", "request": "Something else"})

    async def again(request: dict[str, Any]) -> bool:
        return (await perdure.submit_backlog(request, fresh)).attached

    assert not await again(mine)
    backlog = perdure.backlog(fresh)
    with monkeypatch.context() as shorter:
        for patience in ("calls.DECISION_ACCEPTED", "calls.QUERY_TIMEOUT"):
            shorter.setattr(f"perdure.client.server.{patience}", timedelta(seconds=0.5))
        assert await again(mine), "no worker runs: history says what it is"
        with pytest.raises(BadInput, match="is taken by a backlog of other items: api"):
            await again(other)
        with pytest.raises(PerdureError, match="no worker"):
            await backlog.progress()
    async with playing(client, branch):
        await shown(perdure, fresh, api="building")
        assert await again(mine | {"parallel": 2})
        with pytest.raises(BadInput, match="is taken by a backlog of other items"):
            await again(other)
        with pytest.raises(NotCounted):
            await backlog.skip("apu")
        branch.holding["api"].set()
        assert (await backlog.result()).status == "ended"
        assert await again(mine), "it has ended: what it was still stands"
        with pytest.raises(BadInput, match="is taken"):
            await again(other)
        assert (await backlog.past()).landed_commits["api"]
        with pytest.raises(BadInput, match="no backlog"):
            await perdure.backlog(f"{fresh}-nowhere").describe()
        with pytest.raises(BadInput, match="is no backlog, but a delivery"):
            await perdure.backlog(f"{fresh}/api").describe()


@pytest.mark.timeout(90)
async def test_cancelling_a_backlog_ends_it_and_leaves_its_standing_to_be_read(client: Client, fresh: str) -> None:
    branch, perdure = Branch(api="a", page="p"), Perdure(client)
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        backlog = (
            await perdure.submit_backlog(night({"id": "api"}, {"id": "page", "depends_on": ["api"]}), fresh)
        ).backlog
        await shown(perdure, fresh, api="building")
        await backlog.cancel()
        branch.holding["api"].set()
        async with asyncio.timeout(patient(40)):
            result = await backlog.result()
        assert result.status == "cancelled"
        assert "landed" not in [view.phase for view in result.items]
