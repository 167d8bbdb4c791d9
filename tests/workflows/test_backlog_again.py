"""A backlog that has ended, or was terminated, and is taken up again: all it knew goes along, nothing lands twice."""

from __future__ import annotations

import asyncio

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio.client import Client

from perdure.client.backlog import Backlog, submit_backlog
from perdure.models.errors import BadInput
from perdure.models.rules.inbox import NotCounted
from tests.deliveries import playing
from tests.waiting import patient

pytestmark = pytest.mark.story


async def test_an_ended_backlog_runs_again_for_what_failed_and_lands_nothing_twice(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.fails = {"schema"}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "docs"})
    async with playing(client, branch):
        assert phases(await ended(await backlog(client, fresh, request)))["export"] == "blocked"
        branch.fails = set()
        known = Backlog(client, fresh)
        with pytest.raises(NotCounted, match="docs has landed: nothing is left to do"):
            await known.retry("docs")
        with pytest.raises(NotCounted, match="export is blocked by schema: retry schema"):
            await known.retry("export")
        assert await known.retry("schema") == f"goes on: schema; {fresh} runs again"
        progress = (await Backlog(client, fresh).result()).model_dump()
        assert phases(progress) == {"schema": "landed", "export": "landed", "docs": "landed"}
        assert branch.landed == ["docs", "schema", "export"]
        past = await Backlog(client, fresh).past()
        assert past.landed_commits == {"docs": ("docs",), "schema": ("schema",), "export": ("export",)}
        assert past.start_counts[f"{fresh}/schema"] == 2
        assert (await submit_backlog(client, None, request, fresh)).attached, "the same again comes back to it"
        with pytest.raises(BadInput, match="taken by a backlog of other items"):
            await submit_backlog(client, None, night({"id": "schema"}), fresh)


async def test_a_pull_request_that_could_not_be_opened_is_opened_later_by_a_retry(client: Client, fresh: str) -> None:
    branch = Branch(api="a", docs="d")
    branch.unproposed = "there is no branch main any more"
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "api"}, {"id": "docs"})))
        assert "there is no branch main any more" in progress["message"]
        assert progress["message"].endswith(f"perdure backlog retry {fresh}")
        with pytest.raises(NotCounted, match="api has landed"):
            await Backlog(client, fresh).retry("api")
        branch.unproposed = ""
        assert await Backlog(client, fresh).retry() == f"{fresh} runs again"
        assert (await Backlog(client, fresh).result()).pull_request == "http://forge/1"
        assert sorted(branch.landed) == ["api", "docs"], "nothing is built again"
        with pytest.raises(NotCounted, match="there is nothing to go on with"):
            await Backlog(client, fresh).retry()


async def test_two_people_who_take_up_an_ended_backlog_at_once_both_count(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e", more="m")
    branch.fails = {"schema", "more"}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "more"})
    async with playing(client, branch):
        await ended(await backlog(client, fresh, request))
        branch.fails, branch.holding = set(), {"more": asyncio.Event(), "export": asyncio.Event()}
        answers = await asyncio.gather(
            Backlog(client, fresh).skip("schema", "by hand"), Backlog(client, fresh).retry("more")
        )
        assert sum("runs again" in words for words in answers) == 1
        for event in branch.holding.values():
            event.set()
        progress = (await Backlog(client, fresh).result()).model_dump()
    assert phases(progress) == {"schema": "skipped", "export": "landed", "more": "landed"}


async def test_a_terminated_backlog_is_taken_up_again_with_what_runs_and_what_fails_meanwhile(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b", three="c")
    branch.holding, branch.fails, branch.real_looks = {"two": asyncio.Event()}, {"three"}, client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "three"}))
        await until(handle, lambda at: at == {"one": "landed", "two": "building", "three": "failed"})
        await handle.terminate("by hand")
        assert (await Backlog(client, fresh).result()).status == "terminated"
        branch.holding["two"].set()
        delivery = client.get_workflow_handle(f"{fresh}/two")
        async with asyncio.timeout(patient(40)):
            while "which has ended: perdure backlog retry" not in (await delivery.query("progress"))["waiting"]:
                await asyncio.sleep(0.1)
        branch.fails = set()
        assert await Backlog(client, fresh).retry() == f"{fresh} runs again"
        again = client.get_workflow_handle(fresh)
        await until(again, lambda at: at["three"] == "landed")
        await again.terminate("once more")
        with pytest.raises(NotCounted, match="is being built: cancel it first"):
            await Backlog(client, fresh).skip("two")
        assert "two" in await Backlog(client, fresh).retry("two")
        await delivery.terminate()
    assert branch.landed == ["one", "three"]
