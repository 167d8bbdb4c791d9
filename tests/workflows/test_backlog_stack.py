"""A backlog that ends in a stack: deliveries begin from the branch below, and pull requests follow what is merged."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, until
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import CancelledError

from perdure.client.backlog import Backlog
from perdure.models import ids
from perdure.models.backlog.following import PullRequestState, StackToFollow
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from tests.deliveries import playing
from tests.processes import program
from tests.waiting import patient
from tests.waiting import until as true
from workflows import follow_up

pytestmark = pytest.mark.story


CHAIN = ({"id": "one"}, {"id": "two", "depends_on": ["one"]}, {"id": "three", "depends_on": ["two", "one"]})


async def test_each_ships_into_what_it_depends_on_and_what_was_merged_takes_others_along(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b", three="c")
    branch.pulls = {
        "one": PullRequestState(state="merged", into="main"),
        "two": PullRequestState(state="open", into="p/one"),
        "three": PullRequestState(state="open", into="p/two"),
    }
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*CHAIN, land="stack")))
    assert [(work.branch, work.base) for work in branch.shipped] == [
        ("p/one", "main"),
        ("p/two", "p/one"),
        ("p/three", "p/two"),
    ]
    assert [item["phase"] for item in progress["items"]] == ["landed"] * 3
    assert [item["branch"] for item in progress["items"]] == ["p/one", "p/two", "p/three"]
    assert progress["items"][0]["pull_request"] == "http://forge/me/calc/pull/7"
    assert progress["message"] == "3 of 3 items have a pull request"
    assert (progress.get("pull_request", ""), branch.proposals, branch.landed) == ("", [], [])
    assert {pull.item: pull.to for pull in branch.stacked[-1].pulls} == {"two": "main"}
    assert branch.pulls["two"].into == "main"


async def test_what_is_merged_after_its_end_takes_others_along_until_nothing_stands_on_anything(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "FOLLOW_PAUSE", timedelta(seconds=0.1))
    branch = Branch(one="a", two="b", three="c")
    branch.pulls = {
        "one": PullRequestState(state="open", into="main"),
        "two": PullRequestState(state="open", into="p/one"),
        "three": PullRequestState(state="open", into="p/two"),
    }
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*CHAIN, land="stack"))
        await ended(handle)
        follows = await _follows(client, fresh)
        looked = len(branch.stacked)
        async with asyncio.timeout(patient(40)):
            while len(branch.stacked) < looked + 3:
                await asyncio.sleep(0.05)
        assert branch.pulls["two"].into == "p/one", "nothing was merged yet"
        branch.pulls["one"] = PullRequestState(state="merged", into="main")
        async with asyncio.timeout(patient(40)):
            while branch.pulls["two"].into != "main":
                await asyncio.sleep(0.05)
        assert branch.pulls["three"].into == "p/two"
        branch.pulls["two"] = PullRequestState(state="closed", into="main")
        branch.pulls["three"] = PullRequestState(state="closed", into="p/two")
        async with asyncio.timeout(patient(40)):
            assert await follows.result() == "no pull request stands on another one any more"


async def _follows(client: Client, id: str) -> WorkflowHandle[Any, str]:
    """The workflow that follows the stack of the backlog's newest run."""
    run = (await client.get_workflow_handle(id).describe()).run_id
    return client.get_workflow_handle(ids.stack_workflow_id(id, run), result_type=str)


async def test_one_that_ends_twice_within_a_minute_is_followed_after_each_end(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b", four="d")
    branch.fails = {"four"}
    branch.pulls = {"two": PullRequestState(state="open", into="p/one")}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*CHAIN[:2], {"id": "four"}, land="stack"))
        assert (await ended(handle))["items"][2]["phase"] == "failed"
        first, branch.fails = await _follows(client, fresh), set()
        await Backlog(client, fresh).retry("four")
        assert (await Backlog(client, fresh).result()).message == "3 of 3 items have a pull request"
        second = await _follows(client, fresh)
        assert first.id != second.id
        for one in (first, second):
            assert (await one.describe()).status is WorkflowExecutionStatus.RUNNING
            await one.cancel()


async def test_who_cancels_a_backlog_that_has_ended_ends_the_following_of_its_stack(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.pulls = {"two": PullRequestState(state="open", into="p/one")}
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night(*CHAIN[:2], land="stack")))
        assert await Backlog(client, fresh).cancel() == f"the pull requests of {fresh} are followed no longer"
        with pytest.raises(WorkflowFailureError) as failure:
            await (await _follows(client, fresh)).result()
        assert isinstance(failure.value.cause, CancelledError)
        with pytest.raises(BadInput, match="has ended"):
            await Backlog(client, fresh).cancel()
        flat = f"{fresh}-flat"
        await ended(await backlog(client, flat, night({"id": "one"})))
        with pytest.raises(BadInput, match="has ended"):
            await Backlog(client, flat).cancel()


@pytest.mark.timeout(120)
async def test_a_worker_that_dies_as_it_moves_a_pull_request_or_while_it_waits_ends_no_following(
    client: Client, fresh: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "FOLLOW_PAUSE", timedelta(seconds=0.3))
    branch = Branch(one="a", two="b", three="c")
    branch.pulls = {
        "two": PullRequestState(state="open", into="p/one"),
        "three": PullRequestState(state="open", into="p/two"),
    }
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night(*CHAIN, land="stack")))
        follows = await _follows(client, fresh)
    pulls = tmp_path / "pulls.json"

    def seen(**changed: PullRequestState) -> None:
        pulls.write_text(json.dumps({item: one.model_dump() for item, one in (branch.pulls | changed).items()}))

    seen(one=PullRequestState(state="merged", into="main"))
    worker = (Path(__file__).with_name("following_worker.py"), server, pulls)
    with program(*worker) as first:
        assert await asyncio.to_thread(first.wait, patient(40)) == -signal.SIGKILL
    assert PullRequestState.model_validate(json.loads(pulls.read_text())["two"]).into == "main", (
        "it has moved it, and told nobody"
    )
    with program(*worker) as second:
        await true(lambda: _waits(follows))
        second.kill()
    seen(two=PullRequestState(state="closed", into="main"), three=PullRequestState(state="closed", into="p/two"))
    with program(*worker):
        assert await follows.result() == "no pull request stands on another one any more"


async def _waits(handle: WorkflowHandle[Any, Any]) -> bool:
    """It has seen what was moved, and waits for the next look."""
    events = [event async for event in handle.fetch_history_events()]
    looked = sum(event.HasField("activity_task_completed_event_attributes") for event in events)
    return looked >= 3 and events[-1].HasField("timer_started_event_attributes")


async def test_nobody_but_a_backlog_has_a_stack_followed(client: Client, fresh: str) -> None:
    async with playing(client, Branch()):
        given = StackToFollow(backlog="night", backlog_request={}, state={})
        handle = await client.start_workflow("Following", given, id=fresh, task_queue=TASK_QUEUE)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert "followed for the backlog" in str(failure.value.cause)


async def test_a_failure_blocks_what_stands_on_it_alone(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b", four="d")
    branch.fails = {"one"}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*CHAIN[:2], {"id": "four"}, land="stack")))
    assert {item["id"]: item["phase"] for item in progress["items"]} == {
        "one": "failed",
        "two": "blocked",
        "four": "landed",
    }


async def test_one_that_was_closed_with_its_branch_is_told_with_the_way_back(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.pulls = {"two": PullRequestState(state="closed", into="p/one", base_gone=True)}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*CHAIN[:2], land="stack")))
    [told] = [note for note in progress["notes"] if note.startswith("two: ")]
    assert "was closed when somebody deleted p/one" in told
    assert "bring that branch back (git push origin h1:refs/heads/p/one)" in told


async def test_one_that_was_closed_with_its_branch_is_opened_again_once_that_is_back(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "STACK_LOOK", timedelta(0))
    branch = Branch(one="a", two="b", four="d", five="e")
    branch.holding = {"four": asyncio.Event(), "five": asyncio.Event()}
    branch.pulls = {"two": PullRequestState(state="closed", into="p/one", base_gone=True)}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*CHAIN[:2], {"id": "four"}, {"id": "five"}, land="stack"))
        await until(handle, lambda at: (at["one"], at["two"]) == ("landed", "landed"))
        await until(handle, lambda _: any(pull.item == "two" for work in branch.stacked for pull in work.pulls))
        assert not any(pull.reopen for work in branch.stacked for pull in work.pulls)
        branch.pulls["two"] = PullRequestState(state="closed", into="p/one")
        branch.holding["four"].set()
        await until(handle, lambda at: at["four"] == "landed")
        branch.holding["five"].set()
        progress = await ended(handle)
    assert {pull.item for work in branch.stacked for pull in work.pulls if pull.reopen} == {"two"}
    assert any(note.endswith("is open again: p/one is back") for note in progress["notes"]), progress["notes"]
    assert not any(pull.reopen for pull in branch.stacked[-1].pulls)


async def test_an_item_that_would_stand_on_two_is_refused_while_it_runs(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, land="stack"))
        await until(handle, lambda at: at["one"] == "building")
        for item in ({"depends_on": ["one", "two"]}, {"check": ["make"]}):
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update("add", {"item": {"id": "top", "request": "x", **item}})
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("follow", {})
        assert "a stack follows its base by hand" in str(refusal.value.cause)
        branch.holding["one"].set()
        await ended(handle)
