"""A stranger with nothing but a connection to Temporal: made-up state, and activities called from elsewhere, publish
nothing."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import Worker

from activities import workflow_origin
from activities.workflow_lookup import describe_workflow
from activities.workflow_origin import origin_problem
from perdure.adapters.worker.origin_record import AcceptedRuns
from perdure.client.budgets import put_rules, read_budget_table
from perdure.client.delivery.rewinding import fork, rewind
from perdure.models.budget.treasury import TREASURY, BudgetRule
from perdure.models.delivery.state import retry_request
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from tests.attack.stranger_client import QUIET, SIGNALS, Stranger, TenLines, forged, made_up, reason_of, stranger
from tests.engine import HAPPY, Engine, git, heads, make_target, pulls, until
from tests.homes import fresh_home
from tests.receiver import Receiver

NOTICE = {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "calc-sub", "run_id": "r"}
NOTICE |= {"repository": "/r", "request": "x", "summary": "his words"}
TABLE = {"rules": {"label:his": {"usd_per_day": 1e6}}}


async def built_only(engine: Engine, origin: Path) -> None:
    """A delivery that has built and was asked to publish nothing."""
    await (await engine.submit(origin, phases=["build"], config=QUIET)).delivery.result()


@pytest.mark.timeout(300)
async def test_made_up_state_publishes_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        await built_only(engine, origin)
        built, before = await he.reads("calc-sub"), heads(origin)
        run = (await engine.handle().describe()).run_id
        request = {"repository": str(origin), "request": "Add sub", "config": QUIET}
        state = made_up(built)
        fork = {
            "delivery": "calc-sub",
            "at": "implement:1",
            "checkpoint": built["prepare"]["checkpoint"],
            "queue": built["prepare"]["queue"],
        }
        points: dict[str, dict[str, Any]] = {
            "continued": {"resume": {"run_id": run, "state": state, "continued": True}},
            "retried": {"resume": {"run_id": run, "state": state}},
            "of no run": {"resume": {"run_id": "", "state": state}},
            "rewound": {"resume": {"run_id": run, "state": state, "rewound": "implement:1"}},
            "forked": {"resume": {"run_id": "", "state": state}, "forked": fork},
        }
        for name, point in points.items():
            raw = {**request, **point}
            id = "calc-sub" if name != "forked" else "calc-fork"
            told = await he.refused("Delivery", raw, id)
            assert told.startswith("InvalidRequest: resume: "), (name, told)
            memo = {"resume": {"run_id": run, "state": state}}
            told = await he.refused("Delivery", {"repository": "", "request": ""}, id, memo=memo)
            again = (await engine.handle(id).describe()).run_id
            told = await he.refused("Delivery", {**request, "resume": {"run_id": again, "state": state}}, id)
            assert told.startswith("InvalidRequest: resume: "), (name, told)
        continued = {**request, **points["continued"]}
        await he.client.start_workflow("Delivery", {"goes_on": continued}, id="calc-sub", task_queue=he.queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await engine.handle().result()
        assert "resume: " in reason_of(failed.value)
        attempt = {**points["forked"], "forked": {**fork, "delivery": "his-parent", "attempt": 1}}
        call = {"child": "Delivery", "raw": {**request, **attempt}, "id": "his-parent/attempt-1"}
        assert "resume: " in await he.refused("Delivery", call, "his-parent", he.queue)
        assert heads(origin) == before
        assert pulls(origin) == []


@pytest.mark.timeout(300)
async def test_what_an_ended_run_has_left_counts_as_it_is_and_with_no_dollar_more(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        request = {"phases": ["build", "ship"], "gates": ["pull_request"], "config": QUIET}
        delivery = (await engine.submit(origin, **request)).delivery

        async def waits() -> bool:
            return (await delivery.describe()).pending_decision is not None

        await until(waits, 60)
        await engine.handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        left = (await delivery.describe()).resume
        assert left is not None
        raw = retry_request(await delivery.request(), left)
        for name, change in (
            ("budget", {"extra_usd": 1e6}),
            ("gates", {"decided": {"pull_request:x": {"verdict": "approved"}}}),
        ):
            state = {**raw["resume"]["state"], name: {**raw["resume"]["state"].get(name, {}), **change}}
            told = await he.refused("Delivery", {**raw, "resume": {**raw["resume"], "state": state}}, "calc-sub")
            assert told.startswith("InvalidRequest: resume: "), (name, told)
        await he.client.start_workflow(
            "Delivery", raw, id="calc-sub", task_queue="perdure", id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
        )
        await until(waits, 60)
        await engine.handle().execute_update("approve", {})
        assert (await delivery.result()).status == "delivered"


@pytest.mark.timeout(300)
async def test_activities_that_publish_do_not_work_for_workflows_of_others(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        await built_only(engine, origin)
        built, before = await he.reads("calc-sub"), heads(origin)
        prepared, commit = built["prepare"], built["commit"]
        common = {"delivery": "calc-sub", "policy": prepared["policy"], "workflow_id": "calc-sub"}
        tests = {"status": "green", "passed": 4321, "tree": commit["tree"]}
        base, head = git(origin, "rev-parse", "main"), commit["commit"]
        place = {"backlog": "night", "item": "one", "branch": "release"}
        backlog = {"backlog": "night", "repository": str(origin), "backlog_request": {"repository": str(origin)}}
        words = {"title": "Any", "body": ""}
        pushed = {"branch": "hijacked", "head": head, "tests": tests}
        works: dict[str, dict[str, Any]] = {
            "push_branch": {**common, **pushed},
            "open_pull_request": {**common, **pushed, "base": "main", "title": "Any"},
            "land": {**common, "place": place, "commit": head, "onto": base, "tests": tests},
            "publish_artifacts": common,
            "comment": common,
            "make_branch": {**backlog, "branch": "release"},
            "close_backlog": {**backlog, **words, "base": "main", "branch": "release", "head": head},
            "move_branch": {**backlog, "branch": "release", "base_sha": base, "onto": base, "head": head},
            "close": {"delivery": "calc-sub"},
        }
        for name, work in works.items():
            told = await he.calls(name, work, prepared["queue"])
            assert "no workflow of Perdure's" in told, (name, told)
            told = await he.calls_alone(name, work, prepared["queue"])
            assert "no workflow of Perdure's" in told, (name, told)
        assert heads(origin) == before
        assert pulls(origin) == []


@pytest.mark.timeout(400)
async def test_facts_that_no_activity_of_the_home_has_sealed_are_not_published(tmp_path: Path, ports: int) -> None:
    """He works on our own queue, while no worker of ours does: nothing tells his workflow from one of ours."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        phases, gates = ["build", "ship"], ["pull_request"]
        waiting = (await engine.submit(origin, phases=phases, gates=gates, config=QUIET)).delivery
        other = await engine.submit(origin, "Add sub", id="calc-other", phases=["build", "test"], config=QUIET)
        await other.delivery.result()

        async def waits() -> bool:
            return (await waiting.describe()).pending_decision is not None

        await until(waits, 60)
        engine.end_workers()
        built, before = dict(await he.reads("calc-sub")), heads(origin)
        theirs = dict(await Stranger(engine, "").reads("calc-other"))
        prepared, head, queue = built["prepare"], built["commit"]["commit"], built["prepare"]["queue"]
        common = {"delivery": "calc-sub", "policy": prepared["policy"], "workflow_id": "calc-sub"}
        common_of_other = {"delivery": "calc-other", "policy": theirs["prepare"]["policy"]}
        made_up_tests = {"status": "green", "passed": 4321, "tree": built["commit"]["tree"]}
        shipped = {**common, "base": "main", "branch": prepared["branch"], "head": head, "title": "Any"}
        place = {"backlog": "night", "item": "one", "branch": "release"}
        attempts = (
            ("push_branch", {**common, "branch": "hijacked", "head": head}, "is no branch of this delivery"),
            ("push_branch", {**common, "branch": prepared["branch"], "head": head, "tests": made_up_tests}, "no tests"),
            ("push_branch", {**common, "branch": prepared["branch"], "head": theirs["commit"]["commit"]}, "no commit"),
            ("open_pull_request", {**shipped, "tests": made_up_tests}, "no tests gave that verdict"),
            ("open_pull_request", {**shipped, "tests": theirs["run_tests"]}, "no tests gave that verdict"),
            (
                "open_pull_request",
                {**shipped, **common_of_other, "head": theirs["commit"]["commit"]},
                "was not asked to",
            ),
            ("open_pull_request", {**shipped, "review": "a" * 64}, "is no review"),
            ("land", {**common, "place": place, "commit": head, "onto": git(origin, "rev-parse", "main")}, "release"),
        )
        for name, work, reason in attempts:
            told = await he.calls_as_ours(name, work, queue)
            assert reason in told, (name, told)
            assert "\n" not in told.strip()
        assert heads(origin) == before
        assert pulls(origin) == []


@pytest.mark.timeout(300)
async def test_who_takes_work_from_our_queue_himself_makes_no_state_of_his_count(tmp_path: Path, ports: int) -> None:
    """His worker carries out an activity of his delivery, or goes on in another run of it."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        await built_only(engine, origin)
        engine.end_workers()
        built, before = await he.reads("calc-sub"), heads(origin)
        raw = {"repository": str(origin), "request": "Add sub", "config": QUIET}
        raw |= {"resume": {"run_id": (await engine.handle().describe()).run_id, "state": made_up(built)}}
        backlog = {"backlog": "night", "repository": str(origin), "backlog_request": {"repository": str(origin)}}
        work, queue = {**backlog, "branch": "release"}, built["prepare"]["queue"]
        for how in ({"own": 1}, {"own": 1, "runs": 3}):
            told = await he.calls_as_ours("make_branch", work, queue, raw, **how)
            assert told.startswith("resume: that state comes from no run"), (how, told)
        assert heads(origin) == before


@pytest.mark.timeout(120)
async def test_a_long_chain_of_runs_counts_only_from_a_run_that_the_home_knows(
    tmp_path: Path, ports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        monkeypatch.setattr(workflow_origin, "CHAIN_MOST", 2)
        accepted = AcceptedRuns(engine.home)
        async with Worker(engine.client, task_queue=TASK_QUEUE, workflows=[TenLines]):
            args = [{"resume": {"state": {}}}, {"name": "close", "work": {}, "queue": "nobody's", "runs": 4}]
            first = await engine.client.start_workflow("Delivery", args=args, id="his", task_queue=TASK_QUEUE)
            runs = [first.first_execution_run_id or ""]
            while len(runs) < 4:
                newest = await describe_workflow(engine.client, "his")
                assert newest is not None
                runs += [newest.run_id] if newest.run_id not in runs else []
                await asyncio.sleep(0.1)
        problem = await origin_problem(engine.client, accepted, "his", runs[3])
        assert problem == "it has gone on in more than 2 runs, of which this home knows none"
        assert await origin_problem(engine.client, accepted, "his", runs[1]) != ""
        accepted.add(("his", runs[1]))  # as a worker did that was asked in its time
        assert await origin_problem(engine.client, AcceptedRuns(engine.home), "his", runs[3]) == ""
        assert ("his", runs[3]) in accepted
        assert ("his", runs[0]) not in accepted
        another_home = AcceptedRuns(fresh_home(tmp_path / "another"))
        assert ("his", runs[3]) not in another_home


@pytest.mark.timeout(300)
async def test_a_start_that_was_refused_changes_nothing_for_who_goes_on_with_the_delivery(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        phases, gates = ["build", "ship"], ["pull_request"]
        delivery = (await engine.submit(origin, phases=phases, gates=gates, config=QUIET)).delivery

        async def waits() -> bool:
            return (await delivery.describe()).pending_decision is not None

        async def begins_his_own() -> None:
            raw = {"repository": str(origin), "request": "His words", "config": QUIET}
            for wrong in ({"resume": {"run_id": "", "state": made_up(built)}}, {"reqest": "x"}):
                assert "InvalidRequest" in await he.refused("Delivery", {**raw, **wrong}, "calc-sub")

        await until(waits, 60)
        built = await he.reads("calc-sub")
        await engine.handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        await begins_his_own()
        await delivery.retry()
        assert (await delivery.request())["request"] == "Add sub"
        await until(waits, 60)
        await engine.handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        await begins_his_own()
        await fork(delivery, "implement:1", id="calc-fork")
        await rewind(delivery, "implement:2")
        await until(waits, 100)
        await engine.handle().execute_update("approve", {})
        assert (await delivery.result()).status == "delivered"
        await begins_his_own()
        with pytest.raises(BadInput, match="is delivered"):
            await delivery.retry()
        forked = engine.handle("calc-fork")
        await forked.cancel()
        with pytest.raises(WorkflowFailureError):
            await forked.result()


@pytest.mark.timeout(200)
async def test_a_notice_is_sent_for_who_it_is_about_alone_and_the_treasury_begins_with_no_table_of_a_stranger(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Receiver.open() as receiver,
        Engine.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_WEBHOOK_URL": receiver.url}) as engine,
        stranger(engine) as he,
    ):
        engine.worker()
        await built_only(engine, origin)
        await until(lambda: receiver.of("ended"), 60)
        assert [one.json["delivery_id"] for one in receiver.told] == ["calc-sub"]
        for about, begins in (("calc-sub", he.queue), ("calc-sub", ""), ("his-parent", he.queue)):
            notice = {**NOTICE, "delivery_id": about}
            call = {"child": "Notification", "raw": notice, "id": f"{about}.notice"}
            raw = call if begins else notice
            told = await he.refused("Delivery" if begins else "Notification", raw, f"{about}.x", begins or TASK_QUEUE)
            assert told == "a notice is sent for the delivery or backlog that it is about, which starts it"
        assert len(receiver.told) == 1
        await he.client.start_workflow("Treasury", TABLE, id=TREASURY, task_queue=TASK_QUEUE)
        assert (await read_budget_table(engine.client)).rules == {}
        await put_rules(engine.client, [BudgetRule(label="team-a", usd_per_day=5.0)])

        async def has_rules() -> bool:
            return (await read_budget_table(engine.client)).rules.keys() == {"label:team-a"}

        await until(has_rules, 60)
        await engine.handle(TREASURY).terminate()


@pytest.mark.timeout(180)
async def test_a_delivery_is_shown_by_its_own_runs_also_after_a_stranger_s_under_its_id(
    tmp_path: Path, ports: int
) -> None:
    """Neither a run that was refused, nor one that his own worker carried out, is the delivery's."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        delivery = (await engine.submit(origin, phases=["build"], config=QUIET)).delivery
        result, own = await delivery.result(), await delivery.describe()
        request = await delivery.request()
        told, unread = [event async for event in engine.perdure.events("calc-sub")], await delivery.unread_messages()
        await he.refused("Delivery", {"repository": "", "request": "his"}, "calc-sub")
        for queue in ("", he.queue):
            if queue:
                await engine.perdure.client.start_workflow(
                    "Treasury",
                    TABLE,
                    id=TREASURY,
                    task_queue=TASK_QUEUE,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                )
                call = {"signals": TREASURY, "name": "add", "content": {}}
                await he.starts("Delivery", call, "calc-sub", queue)
            assert (await delivery.describe()).run_id == own.run_id
            assert (await delivery.result()) == result
            assert (await delivery.request()) == request
            assert [event async for event in engine.perdure.events("calc-sub")] == told
            assert (await delivery.unread_messages()) == unread
            assert (await delivery.progress()).status == "completed"
            assert (await delivery.past()).request == request
        await engine.handle(TREASURY).terminate()


async def first_task(engine: Engine) -> int:
    """The event with which the first workflow task of the newest run was completed."""
    async for event in engine.handle().fetch_history_events():
        if event.HasField("workflow_task_completed_event_attributes"):
            return event.event_id
    raise AssertionError("no worker has seen it")


@pytest.mark.timeout(300)
async def test_a_run_is_asked_about_once_in_a_home_also_when_what_it_went_on_from_is_gone(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        delivery = (
            await engine.submit(origin, phases=["build", "ship"], gates=["pull_request"], config=QUIET)
        ).delivery

        async def waits() -> bool:
            return (await delivery.describe()).pending_decision is not None

        await until(waits, 60)
        first = await engine.handle().describe()
        await engine.handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        await delivery.retry()
        await until(waits, 60)
        second = await engine.handle().describe()
        engine.end_workers()
        gone = WorkflowExecution(workflow_id="calc-sub", run_id=first.run_id)
        deletion = DeleteWorkflowExecutionRequest(namespace=engine.client.namespace, workflow_execution=gone)
        await engine.client.workflow_service.delete_workflow_execution(deletion)

        async def is_gone() -> bool:
            return await describe_workflow(engine.client, "calc-sub", first.run_id) is None

        await until(is_gone, 60)
        engine.worker()
        again = ResetWorkflowExecutionRequest(
            namespace=engine.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id="calc-sub", run_id=second.run_id),
            workflow_task_finish_event_id=await first_task(engine),
            request_id=str(uuid.uuid4()),
            reason="as the Web UI does",
        )
        await engine.client.workflow_service.reset_workflow_execution(again)
        await until(waits, 60)
        await engine.handle().execute_update("approve", {})
        assert (await delivery.result()).status == "delivered"


NIGHT = QUIET + '[delivery]\nphases = ["plan", "build"]\n'


@pytest.mark.timeout(300)
async def test_signals_in_the_name_of_a_delivery_tell_its_backlog_nothing(tmp_path: Path, ports: int) -> None:
    """From his client; from a workflow of his; and from one under the id of a delivery that has ended."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        raw = {"repository": str(origin), "gates": ["plan"], "config": NIGHT}
        raw |= {"items": [{"id": "one", "request": "Add sub"}, {"id": "two", "request": "Add sub"}]}
        night = await he.client.start_workflow("Backlog", raw, id="night", task_queue=TASK_QUEUE)

        async def notes(count: int) -> list[str]:
            await until(lambda: has_notes(count), 60)
            return list((await night.query("progress"))["notes"])

        async def has_notes(count: int) -> bool:
            return len((await night.query("progress")).get("notes", ())) == count

        async def waits() -> bool:
            items = (await night.query("state"))["items"].values()
            return all(item.get("waiting", {}).get("gate") == "plan" for item in items)

        await until(waits, 100)
        run_id = (await engine.handle("night/one").describe()).run_id
        items = (await night.query("state"))["items"]
        for name in SIGNALS:
            content = forged(name, "night/one", run_id)
            await night.signal(name, content)
            await he.starts("Delivery", {"signals": "night", "name": name, "content": content}, "his", he.queue)
        ignored = [f"one: a signal {name} is ignored: night/one has not sent it" for name in SIGNALS]
        assert await notes(len(SIGNALS)) == ignored
        assert (await night.query("state"))["items"] == items
        assert (await engine.perdure.backlog("night").past()).landed_commits == {}
        await engine.handle("night/one").cancel()
        await until(lambda: ends(engine.handle("night/one")), 60)
        content = forged("item_ended", "night/one", run_id)
        call = {"signals": "night", "name": "item_ended", "content": content}
        await he.starts("Delivery", call, "night/one", he.queue)
        foreign = "night/one is no workflow of Perdure's: it is not on queue perdure"
        assert (await notes(len(SIGNALS) + 1))[-1] == f"one: a signal item_ended is ignored: {foreign}"
        assert (await night.query("progress"))["items"][0]["phase"] != "delivered"
        backlog = engine.perdure.backlog("night")
        assert (await backlog.past()).landed_commits == {}
        told = [event async for event in engine.perdure.events("night") if event.type == "item"]
        assert "item_ended" not in {event.data["event"] for event in told if event.data.get("commit")}
        assert {event.data["event"] for event in told} >= {"begins", "item_planned", "item_waits"}
        await night.cancel()


async def ends(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.describe()).status != WorkflowExecutionStatus.RUNNING
