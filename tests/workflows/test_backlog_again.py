"""A backlog after its end, its workers' deaths and its deliveries' ends: all it knew goes on, nothing lands twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.workflow_lookup import look_for, resume_point
from perdure.client import Perdure
from perdure.client.backlog import Backlog, submit_backlog
from perdure.client.submit import start_workflow
from perdure.models.backlog.landing import (
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    ResumeInput,
    ResumeResult,
)
from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import BacklogState, ItemState, OpenBacklogResult, ReopenedFrom
from perdure.models.delivery.request import parse_request
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.models.rules.inbox import NotCounted
from tests.deliveries import Script, playing
from tests.waiting import patient
from workflows import backlog as backlogs


@pytest.mark.story
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


@pytest.mark.story
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


@pytest.mark.story
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


@pytest.mark.story
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


STRANGE = "its state comes from no run before it"
RAW = {"repository": "/r"}


def made_up(**more: Any) -> BacklogState:
    """Of a stranger: it lands on a branch of his choice."""
    opened = OpenBacklogResult(base="main", base_sha="b", branch="main", queue="his-queue")
    item = BacklogItem(id="one", request="Do one")
    return BacklogState(items={"one": ItemState(item=item)}, opened=opened, **more)


async def refused(handle: WorkflowHandle[Any, Any]) -> str:
    with pytest.raises(WorkflowFailureError) as failed:
        await ended(handle)
    return str(failed.value.cause)


@pytest.mark.story
async def test_a_state_that_somebody_sends_is_refused_and_nobody_can_go_on_with_it(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    async with playing(client, branch):
        sent = [RAW, made_up()]
        handle = await client.start_workflow("Backlog", args=sent, id=fresh, task_queue=TASK_QUEUE)
        assert STRANGE in await refused(handle)
        assert await handle.query("state") == {}
        with pytest.raises(BadInput, match="was refused when it was started"):
            await Backlog(client, fresh).retry()
        first = (await handle.describe()).run_id
        sent = [RAW, made_up(reopened_from=ReopenedFrom(run_id=first, change="retry"))]
        handle = await client.start_workflow("Backlog", args=sent, id=fresh, task_queue=TASK_QUEUE)
        assert "there is nothing to go on with" in await refused(handle)
    assert branch.landed == []


@pytest.mark.story
async def test_a_retry_policy_or_a_cron_schedule_of_the_sender_makes_no_former_run(client: Client, fresh: str) -> None:
    """The server counts the next run of either as one that went on in another."""
    branch = Branch(one="a")
    again = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=10))
    async with playing(client, branch):
        sent = {"args": [RAW, made_up()], "task_queue": TASK_QUEUE}
        once = await client.start_workflow("Backlog", id=f"{fresh}-0", retry_policy=again, **sent)
        assert STRANGE in await refused(once)
        often = await client.start_workflow("Backlog", id=fresh, cron_schedule="@every 1s", **sent)
        runs: dict[str, str] = {}
        while len(runs) < 3:
            run_id = (await client.get_workflow_handle(fresh).describe()).run_id
            async for words in _found(client.get_workflow_handle(fresh, run_id=run_id)):
                runs[run_id] = words
            await asyncio.sleep(0.1)
        await often.terminate()
    assert all(STRANGE in words for words in runs.values()), runs
    assert branch.landed == []


async def _found(handle: WorkflowHandle[Any, Any]) -> AsyncIterator[str]:
    """The words that a run was told of the state that it was given."""
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_completed_event_attributes"):
            yield event.activity_task_completed_event_attributes.result.payloads[0].data.decode()
            return


@workflow.defn(name="Backlog", sandboxed=False)
class GoesOn:
    """A stranger's workflow on a queue of his own, which goes on as one of ours."""

    @workflow.run
    async def run(self, raw: Any) -> None:
        workflow.continue_as_new(args=[raw, made_up()], task_queue=TASK_QUEUE)


@workflow.defn(name="Delivery", sandboxed=False)
class Begins:
    """A stranger's workflow on a queue of his own, which begins one of ours as its child."""

    @workflow.run
    async def run(self, raw: Any) -> None:
        id = f"{workflow.info().workflow_id}/tasks"
        await workflow.execute_child_workflow("Backlog", args=[raw, made_up()], id=id, task_queue=TASK_QUEUE)


@asynccontextmanager
async def stranger(client: Client, queue: str) -> AsyncIterator[None]:
    async with Worker(client, task_queue=queue, workflows=[GoesOn, Begins]):
        yield


@pytest.mark.story
@pytest.mark.parametrize("kind", ["Backlog", "Delivery"])
async def test_a_stranger_who_works_on_his_own_queue_begins_none_of_ours(client: Client, fresh: str, kind: str) -> None:
    branch = Branch(one="a")
    async with playing(client, branch), stranger(client, f"his-{fresh}"):
        handle = await client.start_workflow(kind, RAW, id=fresh, task_queue=f"his-{fresh}")
        if kind == "Delivery":
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            handle = client.get_workflow_handle(f"{fresh}/tasks")
        assert STRANGE in await refused(handle)
    assert branch.landed == []


@pytest.mark.story
async def test_what_goes_on_from_an_ended_run_is_that_runs_state_and_request(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.fails = {"two"}
    request = night({"id": "one"}, {"id": "two"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        assert phases(await ended(handle)) == {"one": "landed", "two": "failed"}
        run = (await client.get_workflow_handle(fresh).describe()).run_id
        again = ReopenedFrom(run_id=run, change="retry")
        for raw, state, words in (
            (RAW, made_up(reopened_from=again), "its state is not that of the run before it"),
            ({"repository": "/etc"}, made_up(reopened_from=again), "its request is not that of the run before it"),
            (RAW, made_up(reopened_from=ReopenedFrom(run_id="no-run", change="retry")), STRANGE),
        ):
            handle = await client.start_workflow("Backlog", args=[raw, state], id=fresh, task_queue=TASK_QUEUE)
            assert words in await refused(handle)
        other = await client.start_workflow(
            "Backlog", args=[RAW, made_up(reopened_from=again)], id=f"{fresh}-2", task_queue=TASK_QUEUE
        )
        assert STRANGE in await refused(other), "another backlog's run is not this one's"
    assert branch.landed == ["one"]


POINTS = ("after-landing_asked", "after-landing_granted", "before-landing_over", "before-item_ended")
"""It has asked and nobody knows it; it was granted the turn and does not know it; it has landed and has not said so; it
has ended and has not said so."""


@pytest.mark.story
async def test_a_worker_that_dies_as_they_speak_loses_no_word_and_lands_nothing_twice(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(one="same", two="same")
    branch.real_looks = client
    command = [sys.executable, str(Path(__file__).parent / "dying_worker.py")]
    command += [client.service_client.config.target_host, str(tmp_path), *POINTS]
    deaths = list[int]()

    async def kept() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
            try:
                deaths.append(await process.wait())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async with asyncio.timeout(patient(100)), Worker(client, task_queue=TASK_QUEUE, activities=branch.activities()):
        keeping = asyncio.create_task(kept())
        try:
            handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
            progress: dict[str, Any] = await handle.result()
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
    assert {item["phase"] for item in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == ["one", "two"]
    assert deaths == [-signal.SIGKILL] * len(POINTS)
    built = [work.delivery for work in branch.seen if work.step == "implement"]
    assert len(built) == len(set(built)) == 2, "nothing was built twice"


@pytest.mark.story
async def test_a_delivery_that_ends_without_a_word_is_found_by_a_backlog_that_is_in_its_next_run(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What began it knew of its end at once; that is gone, and the look that finds it comes every few minutes."""
    monkeypatch.setattr(backlogs, "HISTORY_MOST", 30)
    monkeypatch.setattr(backlogs, "BACKLOG_LOOK", backlogs.BACKLOG_LOOK / 300)
    branch = Branch(one="a", two="b", three="c")
    branch.real_looks, branch.holding = client, {"three": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "three"}))
        first = (await handle.describe()).run_id
        await until(handle, lambda at: at == {"one": "landed", "two": "landed", "three": "building"})
        newest = client.get_workflow_handle(fresh)
        while (await newest.describe()).run_id == first:
            await asyncio.sleep(0.1)
        await client.get_workflow_handle(f"{fresh}/three").terminate("by hand")
        branch.holding["three"].set()
        progress: dict[str, Any] = await newest.result()
    assert {item["id"]: item["phase"] for item in progress["items"]} == {
        "one": "landed",
        "two": "landed",
        "three": "failed",
    }


REQUEST: dict[str, Any] = {"repository": "/r.git", "request": "x", "phases": ["build"]}


async def found(client: Client, *deliveries: str) -> dict[str, DeliveryStatus]:
    look: DeliveryLookup = await ActivityEnvironment(client).run(look_for, DeliveryLookupInput(deliveries=deliveries))
    return look.statuses


async def resumed(client: Client, delivery: str) -> ResumeResult:
    answer: ResumeResult = await ActivityEnvironment(client).run(resume_point, ResumeInput(workflow_id=delivery))
    return answer


async def begun(client: Client, id: str, request: dict[str, Any] = REQUEST) -> str:
    """The first run of a delivery."""
    await start_workflow(client, id, request, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
    return (await client.get_workflow_handle(id).describe()).run_id


async def ended_at_server(client: Client, id: str) -> None:
    async with asyncio.timeout(patient(30)):
        while (await client.get_workflow_handle(id).describe()).close_time is None:
            await asyncio.sleep(0.05)


async def test_every_fate_of_a_delivery_is_told_apart(client: Client, script: Script, fresh: str) -> None:
    script.phases, script.turn = (Phase.BUILD,), script.builds
    done, failed, runs, gone, killed, refused, cancelled = (
        f"{fresh}/{name}" for name in ("done", "failed", "runs", "gone", "killed", "refused", "cancelled")
    )
    async with playing(client, script):
        first = {done: await begun(client, done)}
        await ended_at_server(client, done)
        script.settings = {"fails": "SetupFailed"}
        first[failed] = await begun(client, failed)
        await ended_at_server(client, failed)
        first[refused] = await begun(client, refused, {**REQUEST, "phases": ["brew"]})
        await ended_at_server(client, refused)
        script.settings, script.turn = {}, script.endless
        first[cancelled] = await begun(client, cancelled)
        await client.get_workflow_handle(cancelled).cancel()
        await ended_at_server(client, cancelled)
    for id in (runs, killed):
        first[id] = await begun(client, id)
    await client.get_workflow_handle(killed).terminate()
    look = await found(client, done, failed, runs, gone, killed, refused, cancelled)
    assert {id: one.run_id for id, one in look.items()} == {**first, gone: ""}
    said = {id.rpartition("/")[2]: (one.status, one.reason) for id, one in look.items()}
    assert said == {
        "done": ("completed", ""),
        "failed": ("not_delivered", "setup_failed"),
        "runs": ("running", ""),
        "gone": ("missing", ""),
        "killed": ("terminated", ""),
        "refused": ("failed", ""),
        "cancelled": ("cancelled", ""),
    }
    assert look[failed].message == "no"


async def test_one_that_ended_without_delivering_goes_on_as_a_retry_of_a_person_does(
    client: Client, script: Script, perdure: Perdure, fresh: str
) -> None:
    script.phases, script.settings = (Phase.BUILD,), {"turns_per_step": 3}
    first = await begun(client, fresh)
    assert (await resumed(client, fresh)).reason == "it is running"
    async with playing(client, script):
        await ended_at_server(client, fresh)
        made = await resumed(client, fresh)
        assert made.request is not None
        resume = parse_request(made.request).resume
        assert resume is not None
        assert (resume.run_id, resume.state["turns"]["checkpoint"]) == (first, "c3")
        script.turn = script.builds
        await perdure.delivery(fresh).retry()
        await ended_at_server(client, fresh)
    assert await perdure.delivery(fresh).request() == made.request
    assert (await found(client, fresh))[fresh].status == "completed"
    assert (await resumed(client, fresh)).reason == "it is delivered"


async def test_one_that_left_nothing_behind_has_nothing_to_go_on_from(client: Client, fresh: str) -> None:
    assert (await resumed(client, fresh)).reason == "there is no such delivery"
    await begun(client, fresh)
    await client.get_workflow_handle(fresh).terminate()
    nothing = await resumed(client, fresh)
    assert (nothing.request, nothing.reason) == (None, "it left nothing behind to go on from")
