"""The base moves while a backlog runs on a real repository: its branch follows once, whatever dies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.e2e.test_backlogs import CONFIG, ITEMS, STORY, ended
from tests.engine import Engine, git, heads, make_target
from tests.waiting import patient

DEATHS = ("during-follow", "after-follow")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_base_that_moves_is_followed_once_whatever_dies(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    git(tmp_path, "clone", "-q", str(origin), "hers")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT=",".join(DEATHS))
        request = {"repository": str(origin), "items": [ITEMS[0], ITEMS[4]], "config": CONFIG}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(100)):
            while "perdure/night" not in heads(origin):
                await asyncio.sleep(0.2)
        (tmp_path / "hers" / "hers.txt").write_text("hers\n")
        git(tmp_path / "hers", "add", "-A")
        git(tmp_path / "hers", "commit", "-q", "-m", "hers")
        git(tmp_path / "hers", "push", "-q", "origin", "HEAD:main")
        progress = await ended(handle, engine)
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == set(DEATHS)
        items = {item["id"]: item for item in progress["items"]}
        assert [items[id]["phase"] for id in ("sub", "hello")] == ["landed", "landed"]
        told = "--format=%H %(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
        on = [line.split() for line in git(origin, "log", "--reverse", told, "main..perdure/night").splitlines()]
        assert on == [[items[id]["commit"], id] for id in ("sub", "hello")]
        assert git(origin, "merge-base", "main", "perdure/night") == git(origin, "rev-parse", "main")
        assert progress["head"] == heads(origin)["perdure/night"]
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "backlog", "report", "night", "--json")
        found = json.loads(ran.out)["receipt"]
        assert (found["lost"], found["twice"], found["ownerless"], found["bent"]) == ([], [], [], []), ran.out
        ran = await asyncio.to_thread(cli, "verify", "night/sub", "--json", "--no-tests")
        claims = {one["claim"]: one for one in json.loads(ran.out)["claims"]}
        assert [one for one in claims.values() if one["mark"] == "contradicted"] == [], ran.out
        assert not list((engine.home.root / "workspaces").glob("night-base*/tree"))
