"""The base of a backlog moves under it: its branch follows before the pull request, or a person is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError

from tests.deliveries import at, playing
from tests.waiting import patient


async def ended(handle: Any) -> dict[str, Any]:
    async with asyncio.timeout(patient(50)):
        return dict(await handle.result())


async def asked(handle: Any) -> str:
    return str((await at(handle, lambda progress: progress.get("asks")))["asks"])


def commits(progress: dict[str, Any]) -> dict[str, str]:
    return {item["id"]: item["commit"] for item in progress["items"]}


async def test_the_branch_follows_before_its_pull_request_and_items_have_the_commits_they_became(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.pushes = ["", ""], 1
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]})))
    assert commits(progress) == {"one": "one'", "two": "two'"}
    assert progress["head"] == "two'"
    assert [work.base_sha for work in branch.follows] == ["b", "b"], "again, on what somebody pushed in between"
    assert [work.landed for work in branch.follows] == ["two", "two"]
    assert "`two'`" in branch.bodies[0]
    assert "stands on b2" in branch.bodies[0]
    assert progress["pull_request"] == "http://forge/1"


async def test_what_stands_there_costs_one_look_and_nothing_landed_none(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.fails = [], {"two"}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"})))
        assert commits(progress) == {"one": "one"}
        assert len(branch.follows) == 1
        await ended(await backlog(client, f"{fresh}-2", night({"id": "two"})))
    assert len(branch.follows) == 1


async def test_in_the_way_a_person_is_asked_and_what_they_did_by_hand_is_looked_at(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base = ["api conflicts in a.txt", ""]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        assert await asked(handle) == "api conflicts in a.txt"
        assert branch.bodies == []
        await handle.execute_update("add", {"item": {"id": "two", "request": "Do two"}})
        await until(handle, lambda at: at["two"] == "landed")  # whoever is asked keeps nobody from landing
        assert await handle.execute_update("follow", {}) == "main is looked at again"
        progress = await ended(handle)
    assert commits(progress) == {"one": "one'", "two": "two'"}
    assert progress.get("asks", "") == ""


async def test_left_where_it_is_the_pull_request_is_opened_and_says_so(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.base = ["its tests are red: 1 failed"]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await asked(handle)
        for bad in ({"leave": "perhaps"}, {"item": "one"}):
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update("follow", bad)
        words = await handle.execute_update("follow", {"leave": True, "note": "the release waits"})
        assert words == "perdure/night stays where it is; its pull request says so"
        progress = await ended(handle)
    assert commits(progress) == {"one": "one"}
    assert "- perdure/night stays where it is: the release waits" in branch.bodies[0]
    assert len(branch.follows) == 1


async def test_a_branch_that_was_named_is_never_rewritten(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, branch="shared"))
        await until(handle, lambda at: at["one"] == "building")
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("follow", {})
        assert "shared was named, so others may use it, too: it is never rewritten" in str(refusal.value.cause)
        branch.holding["one"].set()
        await ended(handle)
    assert branch.follows == []


async def test_nobody_lands_while_the_branch_follows_in_the_middle_of_the_night(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.looking = [""], asyncio.Event()
    branch.holding = {"two": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        await until(handle, lambda at: at == {"one": "landed", "two": "building"})
        await handle.execute_update("follow", {})
        await until(handle, lambda _: branch.follows)
        branch.holding["two"].set()
        items = await until(handle, lambda at: at["two"] == "landing")
        assert items["two"]["because"] == "is the next"
        assert branch.landed == ["one"]
        branch.looking.set()
        progress = await ended(handle)
    assert commits(progress) == {"one": "one'", "two": "two"}
    assert [work.base_sha for work in branch.follows] == ["b", "b1"]


async def test_a_backlog_that_waits_for_a_person_can_be_cancelled(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.base = ["main is not on the remote any more"]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await asked(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
