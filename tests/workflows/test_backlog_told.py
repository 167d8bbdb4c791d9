"""The end of a backlog is told once, with how many items came to what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from backlog_fixtures import Branch, backlog, ended, night, until
from notice_fixtures import telling
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Replayer

from perdure.plugin import perdure_plugin
from tests.deliveries import playing
from tests.engine import until as until_true
from tests.receiver import Receiver, genuine
from workflows import WORKFLOWS

ITEMS = ({"id": "schema", "issue": 13}, {"id": "export", "depends_on": ["schema"]}, {"id": "docs", "issue": 14})


async def test_its_end_is_told_with_its_numbers_and_its_pull_request(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.fails, branch.notifies, branch.found = {"schema"}, True, (13, 14)
    async with Receiver.open() as receiver, telling(client, branch, tmp_path, receiver.url):
        handle = await backlog(client, fresh, night(*ITEMS))
        progress = dict(await handle.result())
        (told,) = await until_true(lambda: receiver.of("ended"))
        assert genuine(told)
        assert told.json["words"].startswith("1 failed · 1 blocked · 1 landed")
        assert told.json["links"]["pull_request"] == progress["pull_request"] == "http://forge/1"
        assert (told.json["delivery_id"], told.json["result"]["backlog_id"]) == (fresh, fresh)
        assert [item["phase"] for item in told.json["result"]["items"]] == ["failed", "blocked", "landed"]
        assert told.json["text"].startswith("*Ended: 1 failed · 1 blocked · 1 landed")
        assert branch.issues == (14,), "what landed is done, what failed is not"
        assert told.json["request"] == "a backlog of 3 items"
    history = await handle.fetch_history()
    await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)


async def test_a_cancelled_one_is_told_and_one_that_nobody_wants_to_hear_of_is_not(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.holding, branch.notifies = {"schema": asyncio.Event()}, True
    async with Receiver.open() as receiver, telling(client, branch, tmp_path, receiver.url):
        handle = await backlog(client, fresh, night(ITEMS[0]))
        await until(handle, lambda at: at["schema"] == "building")
        await handle.cancel()
        branch.holding["schema"].set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        (told,) = await until_true(lambda: receiver.of("ended"))
        assert told.json["result"]["status"] == "cancelled"
        branch.notifies = False
        await (await backlog(client, f"{fresh}-2", night(ITEMS[2]))).result()
        assert len(receiver.of("ended")) == 1


async def test_the_issues_that_are_open_when_it_begins_are_its_items(client: Client, fresh: str) -> None:
    branch = Branch(**{"issue-7": "a", "issue-8": "b"})
    branch.found = (7, 8)
    async with playing(client, branch):
        progress = dict(await (await backlog(client, fresh, {"repository": "/r", "issues": "label:bug"})).result())
        branch.found = ()
        nothing = dict(
            await (await backlog(client, f"{fresh}-2", {"repository": "/r", "issues": "label:bug"})).result()
        )
    assert [(item["id"], item["phase"]) for item in progress["items"]] == [("issue-7", "landed"), ("issue-8", "landed")]
    assert branch.issues == (7, 8)
    assert (nothing["status"], nothing["message"]) == ("ended", "nothing landed")


@pytest.mark.parametrize("land", ["branch", "stack"])
async def test_an_issue_that_was_built_the_night_before_is_left_out_and_named(
    client: Client, fresh: str, land: str
) -> None:
    branch = Branch(**{"issue-8": "b"})
    branch.found, branch.proposed = (8,), {7: 31}
    async with playing(client, branch):
        handle = await backlog(client, fresh, {"repository": "/r", "issues": "label:bug", "land": land})
        progress = await ended(handle)
    assert [(item["id"], item["phase"]) for item in progress["items"]] == [("issue-8", "landed")]
    assert progress["notes"] == ["#7 is left out: #31 is open for it"]
