"""A backlog that cannot begin, or was ended from outside: it says why, wherever somebody looks."""

from __future__ import annotations

import asyncio

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio.client import Client, WorkflowFailureError

from perdure.client.backlog import Backlog
from perdure.models.errors import InvalidRequest
from tests.deliveries import playing

GONE = "branch main is not on the remote any more"


async def test_one_that_cannot_begin_says_why_and_begins_once_that_is_out_of_the_way(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a")
    branch.unopened = ("ForgeRefused", GONE)
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        with pytest.raises(WorkflowFailureError) as failed:
            await ended(handle)
        assert str(failed.value.cause) == f"BacklogFailed: {GONE}"
        known = Backlog(client, fresh)
        for progress in (await known.progress(), await known.result()):
            assert (progress.status, progress.message, progress.waiting) == ("failed", GONE, "")
        metadata = await handle.query("__temporal_workflow_metadata")
        assert GONE in metadata.current_details
        branch.unopened = None
        assert await known.retry() == f"{fresh} runs again"
        assert phases((await known.result()).model_dump()) == {"one": "landed"}


async def test_a_mistake_in_it_that_shows_only_as_it_opens_is_told_as_one(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.unopened = ("InvalidRequest", "branch: 'a b' cannot be a branch's name")
    async with playing(client, branch):
        await backlog(client, fresh, night({"id": "one"}))
        with pytest.raises(InvalidRequest, match="'a b' cannot be a branch's name"):
            await Backlog(client, fresh).result()
        assert (await Backlog(client, fresh).progress()).status == "failed"


async def test_one_that_was_terminated_is_not_shown_as_running(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await until(handle, lambda at: at["one"] == "building")
        await handle.terminate("by hand")
        assert (await Backlog(client, fresh).progress()).status == "terminated"
        branch.holding["one"].set()
        await client.get_workflow_handle(f"{fresh}/one").terminate()
