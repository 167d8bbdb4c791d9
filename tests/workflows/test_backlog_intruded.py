"""Others at a backlog's branch: taken away, put back, protected; or the same change pushed by a person."""

from __future__ import annotations

import asyncio
from typing import Any

from backlog_fixtures import Branch, backlog, night, until
from temporalio.client import Client

from perdure.models.backlog.state import BacklogProgress
from perdure.render.backlog.text import status_lines
from tests.deliveries import playing
from tests.waiting import patient

PUSH = f"git -C /{'vault' * 60} push /origin.git 17e4a050907c:refs/heads/perdure/night"
GONE = f"branch perdure/night is not on the remote any more\n  fix: bring 17e4a050907c back, then retry:\n{PUSH}"


async def test_a_branch_nobody_can_land_on_holds_the_backlog_before_more_is_built_in_vain(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b", three="c")
    branch.refuses = GONE
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "three"}, parallel=1))
        await until(handle, lambda at: at == {"one": "failed", "two": "ready", "three": "ready"})
        held = await handle.query("progress")
        assert held["held"] == f"held: one could not land: {GONE}"
        assert [line.strip() for line in status_lines(BacklogProgress.model_validate(held))[1:6]] == [
            "! held: one could not land: branch perdure/night is not on the remote any more",
            "fix: bring 17e4a050907c back, then retry:",
            PUSH,
            f"perdure backlog retry {fresh} one",
            f"perdure backlog resume {fresh}",
        ]
        branch.refuses = ""  # somebody has brought it back
        await handle.execute_update("retry", {"item": "one"})
        await handle.signal("resume", {})
        async with asyncio.timeout(patient(40)):
            progress: dict[str, Any] = await handle.result()
    assert {item["phase"] for item in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == ["one", "three", "two"]


async def test_what_a_person_has_pushed_already_blocks_nothing(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.there = {"one"}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}))
        async with asyncio.timeout(patient(40)):
            progress: dict[str, Any] = await handle.result()
    one, two = progress["items"]
    assert (one["phase"], one["because"]) == ("skipped", "all of it is on perdure/night already")
    assert two["phase"] == "landed"
    assert branch.landed == ["two"]
