"""A stack on a real repository: a pull request for each item, into the branch of the one it depends on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.forges.local import LocalForge
from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.e2e.test_backlogs import CONFIG, ITEMS, STORY, ended
from tests.engine import Engine, git, heads, make_target
from tests.waiting import patient

ONLY = [{**{name: value for name, value in item.items() if name != "check"}} for item in ITEMS if item["id"] != "mul"]


async def commit_of(handle: Any, id: str) -> str:
    items = (await handle.query("progress"))["items"]
    return next((str(item.get("commit", "")) for item in items if item["id"] == id), "")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_each_item_has_a_pull_request_on_what_it_depends_on_and_goes_where_that_one_went(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.kept(PERDURE_CRASH_AT="after-retarget,after-pull-request")
        items = [item for item in ONLY if item["id"] != "tidy"]
        items.append({"id": "bye", "request": "Add multiply", "depends_on": ["hello"]})
        request = {"repository": str(origin), "items": items, "config": CONFIG, "land": "stack"}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(100)):
            while (
                not (seen := {i["id"]: i for i in (await handle.query("progress"))["items"]})
                .get("sub", {})
                .get("commit")
            ):
                await asyncio.sleep(0.2)
        git(origin, "update-ref", "refs/heads/main", seen["sub"]["commit"])  # a person merges it
        progress = await ended(handle, engine)
        items_by = {item["id"]: item for item in progress["items"]}
        assert {id: item["phase"] for id, item in items_by.items()} == {
            **dict.fromkeys(("sub", "hello", "bye"), "landed"),
            "broken": "failed",
            "after": "blocked",
        }, progress
        pulls = {
            pull.title: LocalForge(str(origin)).pull_details(pull.number)
            for pull, _ in LocalForge(str(origin)).list_pulls()
        }
        into = {shown.pull.head: (shown.pull.base, shown.state) for shown in pulls.values()}
        assert into == {
            items_by["sub"]["branch"]: ("main", "merged"),
            items_by["hello"]["branch"]: ("main", "open"),
            items_by["bye"]["branch"]: (items_by["hello"]["branch"], "open"),
        }
        for id in ("hello", "bye"):
            assert heads(origin)[items_by[id]["branch"]] == items_by[id]["commit"]
        assert git(origin, "merge-base", "--is-ancestor", items_by["hello"]["commit"], items_by["bye"]["commit"]) == ""
        assert git(origin, "merge-base", "--is-ancestor", items_by["sub"]["commit"], items_by["hello"]["commit"]) == ""
        assert "perdure/night" not in heads(origin)
        assert progress["message"] == "3 of 5 items have a pull request"
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "backlog", "report", "night", "--json")
        found = json.loads(ran.out)["receipt"]
        assert (found["landed"], found["lost"], found["twice"], found["ownerless"]) == (3, [], [], []), ran.out
        assert {path.name.partition(".")[0] for path in engine.home.crashes.iterdir()} == {
            "after-retarget",
            "after-pull-request",
        }
