"""People are told what a delivery waits for and how it ended; it neither waits for that nor fails by it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from notice_fixtures import PLANNED, TOLD, gated, plans, telling
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import TimeSkipper, WorkflowEnvironment
from temporalio.worker import Replayer

from perdure.adapters.worker.attempt import DEATHS_PER_TURN
from perdure.client import Perdure
from perdure.client.doctor import NoticeAttempt, failed_notices, send_trial_notice
from perdure.local.places import temporal_binary
from perdure.models.delivery.work import EscalationSettings
from perdure.models.errors import InvalidRequest, WorkCutOff
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import Script
from tests.engine import until
from tests.receiver import Receiver, genuine
from tests.waiting import patient
from workflows import WORKFLOWS
from workflows.notification import NOTIFY_FOR_TIME

__all__ = ["gated"]


async def notifications(client: Client, id: str) -> list[tuple[str, WorkflowExecutionStatus | None]]:
    """Event and status of what was told of a delivery, the oldest first; asked of the delivery's own history."""
    found = []
    async for event in client.get_workflow_handle(id).fetch_history_events():
        started = event.start_child_workflow_execution_initiated_event_attributes
        if started.workflow_id:
            described = await client.get_workflow_handle(started.workflow_id).describe()
            found.append((started.workflow_id, described.status))
    return found


async def test_what_dies_before_anything_is_prepared_is_told_where_anybody_wants_to_hear(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    gated.settings = {"asks": True}
    gated.troubles = {"prepare": [WorkCutOff("the sandbox was killed")] * DEATHS_PER_TURN}
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url) as host:
        host.journal(fresh).record_deciders(EscalationSettings(asks=True, notifies=True))
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        (waiting,) = await until(lambda: receiver.of("waiting"))
        assert waiting.json["gate"] == "deaths"
        assert waiting.json["words"].startswith("prepare was cut off 3 times: the sandbox was killed (3 times)")
        way = waiting.json["decisions"][0]
        assert await client.get_workflow_handle(fresh).execute_update(way["update"], way["said"])
        assert (await submitted.delivery.result()).status == "completed"


async def test_a_gate_and_the_end_are_told_signed_and_once(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url + "/hook"):
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        (waiting,) = await until(lambda: receiver.of("waiting"))
        (way, *_) = waiting.json["decisions"]
        handle = client.get_workflow_handle(fresh)
        assert (await handle.execute_update(way["update"], way["said"])).startswith("approved: plan")
        result = await submitted.delivery.result()
        (ended,) = await until(lambda: receiver.of("ended"))
        assert ended.json["result"] == result.model_dump(mode="json")
        assert ended.json["delivery_id"] == fresh
        assert waiting.id != ended.id
        assert all(genuine(told) for told in receiver.told)
        assert len(receiver.told) == 2
        over = {WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.CANCELED}
        async with asyncio.timeout(patient(60)):  # they end after their answer has arrived
            while not (ends := {status for _, status in await notifications(client, fresh)}) <= over:
                await asyncio.sleep(0.05)
        assert WorkflowExecutionStatus.COMPLETED in ends, "only a gate's is called off, when the gate is decided"
        history = await handle.fetch_history()
        kinds = [EventType.Name(event.event_type) for event in history.events]
        assert len([kind for kind in kinds if "CHILD_WORKFLOW" in kind]) <= 6
        assert receiver.url not in history.to_json()
    replayed = await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_what_fails_is_sent_again_under_the_same_id_and_the_others_do_not_wait(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as flaky, Receiver.open() as well, telling(client, gated, tmp_path, flaky.url, well.url):
        flaky.answers = [(503, {"retry-after": "1"}), (429, {"retry-after": "1"})]  # a second, two for the next
        await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: len(flaky.told) == 3)
        assert len({told.id for told in flaky.told + well.told}) == 1
        assert len({told.body for told in flaky.told}) == 1
        assert len(well.told) == 1
        await client.get_workflow_handle(fresh).terminate()


async def test_one_who_says_no_is_noted_in_the_delivery_which_goes_on(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url + "/secret-path"):
        receiver.answers = [(410, {})]
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        handle = client.get_workflow_handle(fresh)

        async def noted() -> str:
            text = await handle.query("__temporal_workflow_metadata")
            return str(text) if "not all were told" in str(text) else ""

        words = await until(noted)
        assert "answered 410" in words
        assert "secret-path" not in words
        await handle.execute_update("approve", {})
        assert (await submitted.delivery.result()).status == "completed"
        assert "secret-path" not in (await handle.fetch_history()).to_json()


async def test_a_delivery_ends_while_whoever_should_be_told_of_it_does_not_answer_and_is_told_later(
    client: Client, script: Script, fresh: str, tmp_path: Path
) -> None:
    script.phases, script.settings, script.turn = (Phase.PLAN,), dict(TOLD), plans
    async with Receiver.open() as receiver, telling(client, script, tmp_path, receiver.url):
        receiver.answers = [(0, {}), (503, {})]
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        assert (await submitted.delivery.result()).status == "completed"
        ((_, status),) = await notifications(client, fresh)
        assert status is WorkflowExecutionStatus.RUNNING
        receiver.answers = [(503, {"retry-after": "1"})]
        receiver.released.set()
        (ended, *_) = await until(lambda: receiver.of("ended"))
        assert ended.json["result"]["status"] == "completed"


async def test_what_was_decided_meanwhile_is_not_told_any_more(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url):
        receiver.answers = [(503, {"retry-after": "3000"})]
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        await client.get_workflow_handle(fresh).execute_update("approve", {})
        await submitted.delivery.result()
        (waiting, _), *_ = await notifications(client, fresh)

        async def gone() -> bool:
            return (await client.get_workflow_handle(waiting).describe()).status is WorkflowExecutionStatus.CANCELED

        await until(gone)
        assert len(receiver.of("waiting")) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("end", ["decided", "cancelled"])
async def test_what_was_decided_while_no_worker_ran_is_not_told_by_the_next(
    client: Client, gated: Script, fresh: str, tmp_path: Path, end: str
) -> None:
    async with Receiver.open() as receiver:
        async with telling(client, gated, tmp_path, receiver.url):
            receiver.answers = [(503, {"retry-after": "1"})]
            await Perdure(client).submit(PLANNED, id=fresh)
            (waiting,) = await until(lambda: receiver.of("waiting"))
        handle = client.get_workflow_handle(fresh)
        if end == "decided":
            await handle.signal("decide", {"update": "approve", "said": {"of": waiting.json["of"]}})
        else:
            await handle.cancel()
        await asyncio.sleep(2.5)  # the second try is due before a worker is there
        async with telling(client, gated, tmp_path, receiver.url):
            await until(lambda: receiver.of("ended"))

            async def over() -> bool:
                running = "WorkflowType = 'Notification' AND ExecutionStatus = 'Running'"
                return not [
                    told async for told in client.list_workflows(f"{running} AND WorkflowId STARTS_WITH '{fresh}'")
                ]

            await until(over, every=0.3)
        assert [told.json["event"] for told in receiver.told] == ["waiting", "ended"]


HALF = RawValue(
    Payload(metadata={"encoding": b"json/plain"}, data=b'{"repository": "/srv/\\ud83d", "reqest": "\\ud83d"}')
)
REFUSED: dict[str, tuple[str, list[Any], str]] = {
    "a request": ("Delivery", [{**PLANNED, "reqest": 1}], "reqest: unknown field (did you mean request?)"),
    "half a character": ("Delivery", [HALF], "expected one JSON object, got what cannot be read"),
    "a retry": (
        "Delivery",
        [{**PLANNED, "resume": {"run_id": "r", "state": {"steps": 5}}}],
        "resume.state.steps: ",
    ),
    "what was begun": ("Delivery", [PLANNED], "no such base"),
    "a backlog": ("Backlog", [{"repository": "/srv/calc", "items": [{"id": "a b"}]}], "items.0."),
    "a backlog's state": ("Backlog", [{"repository": "/srv/calc"}, {"items": 5}], "items: "),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", REFUSED)
async def test_a_refused_request_says_in_its_progress_and_to_people_that_it_has_ended(
    client: Client, gated: Script, fresh: str, tmp_path: Path, kind: str
) -> None:
    workflow, args, reason = REFUSED[kind]
    if kind == "what was begun":
        gated.troubles = {"prepare": [InvalidRequest("no such base")]}
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url):
        handle = await client.start_workflow(workflow, args=args, id=fresh, task_queue=TASK_QUEUE)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "InvalidRequest"
        progress = await handle.query("progress")
        assert progress["message"].startswith(reason)
        ended = ("not_delivered", "invalid_request") if workflow == "Delivery" else ("failed", None)
        assert (progress["status"], progress.get("reason")) == ended
        (told,) = await until(lambda: receiver.told)
        assert (told.json["event"], told.json["delivery_id"], told.json["run_id"]) == (
            "ended",
            fresh,
            progress["run_id"],
        )
        assert reason in told.json["text"]
        assert told.json["result"]["status"] == ended[0]
        history = await handle.fetch_history()
    replayed = await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_of_a_refused_request_nobody_is_told_who_has_not_subscribed(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with telling(client, gated, tmp_path):
        handle = await client.start_workflow("Delivery", {"reqest": 1}, id=fresh, task_queue=TASK_QUEUE)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert await notifications(client, fresh) == []


async def test_a_cancelled_delivery_tells_that_it_was(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url):
        await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        handle = client.get_workflow_handle(fresh)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        (ended,) = await until(lambda: receiver.of("ended"))
        assert ended.json["result"]["status"] == "cancelled"


async def test_a_run_that_leaves_the_workers_memory_while_it_waits_tells_nothing_twice(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url, cache=0):
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        await client.get_workflow_handle(fresh).query("progress")
        await client.get_workflow_handle(fresh).execute_update("approve", {})
        await submitted.delivery.result()
        await until(lambda: receiver.of("ended"))
        assert [told.json["event"] for told in receiver.told] == ["waiting", "ended"]


async def test_an_address_that_fails_for_as_long_as_it_is_tried_fails_the_notification_alone(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url + "/secret"):
        receiver.answers = [(404, {})]
        await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        ((notification, _),) = await notifications(client, fresh)
        with pytest.raises(WorkflowFailureError) as failure:
            await client.get_workflow_handle(notification).result()
        await client.get_workflow_handle(fresh).terminate()
        cause = failure.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == "NotTold"
        assert cause.message == f"{receiver.url.removeprefix('http://')} answered 404"
        with pytest.raises(WorkflowFailureError) as refused:
            await client.execute_workflow("Notification", {"id": 5}, id=f"m-{fresh}", task_queue=TASK_QUEUE)
        assert "not a notice" in str(refused.value.cause)


async def rewind(client: Client, id: str, event: int) -> None:
    """To before what follows the workflow task that `event` ended."""
    request = ResetWorkflowExecutionRequest(
        namespace="default",
        workflow_execution=WorkflowExecution(workflow_id=id),
        reason="rewound by a test",
        workflow_task_finish_event_id=event,
        request_id=f"{id}-{event}",
    )
    await client.workflow_service.reset_workflow_execution(request)


async def test_what_is_asked_again_after_a_rewind_is_told_again_as_something_new(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url):
        await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        await rewind(client, fresh, 4)
        first, second = await until(lambda: len(receiver.of("waiting")) == 2 and receiver.of("waiting"))
        assert first.id != second.id
        assert first.json["of"] == second.json["of"]
        await client.get_workflow_handle(fresh).terminate()


async def test_a_delivery_is_rewound_while_somebody_is_still_to_be_told_of_it(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as receiver, telling(client, gated, tmp_path, receiver.url):
        receiver.answers = [(503, {"retry-after": "3000"})]
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        await until(lambda: receiver.of("waiting"))
        handle = client.get_workflow_handle(fresh)
        ends = [
            event.event_id
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        await rewind(client, fresh, ends[-1])
        await handle.execute_update("approve", {})
        assert (await submitted.delivery.result()).status == "completed"
        await until(lambda: receiver.of("ended"))


async def test_a_test_is_told_to_all_once_and_says_of_each_what_came_of_it(
    client: Client, gated: Script, tmp_path: Path
) -> None:
    async with Receiver.open() as well, Receiver.open() as no, Receiver.open() as later:
        no.answers, later.answers = [(404, {})], [(503, {"retry-after": "3000"})]
        hosts = [receiver.url.removeprefix("http://") for receiver in (later, well, no)]
        async with telling(client, gated, tmp_path, later.url, well.url, no.url):
            tried = await send_trial_notice(client)
        assert sorted(tried, key=lambda one: hosts.index(one.summary.partition(" ")[0])) == [
            NoticeAttempt(delivered=False, summary=f"{hosts[0]} answered 503"),
            NoticeAttempt(delivered=True, summary=f"{hosts[1]} answered 204"),
            NoticeAttempt(delivered=False, summary=f"{hosts[2]} answered 404"),
        ]
        (told,) = well.told
        assert told.json["event"] == "test"
        assert genuine(told)
        assert len(later.told) == 1, "it is not tried again"
        assert not [words for words in await failed_notices(client) if "notify-test" in words]


async def test_a_test_says_that_the_worker_has_nobody_to_tell(client: Client, gated: Script, tmp_path: Path) -> None:
    async with telling(client, gated, tmp_path):
        (tried,) = await send_trial_notice(client)
    assert not tried.delivered
    assert tried.summary.startswith("this worker has no such address")


async def test_of_several_who_do_not_answer_each_is_named(
    client: Client, gated: Script, fresh: str, tmp_path: Path
) -> None:
    async with Receiver.open() as one, Receiver.open() as other, telling(client, gated, tmp_path, one.url, other.url):
        one.answers, other.answers = [(500, {"retry-after": "3000"})], [(502, {"retry-after": "3000"})]
        submitted = await Perdure(client).submit(PLANNED, id=fresh)

        async def named() -> str:
            words = "".join(await submitted.delivery.failed_notices())
            return words if "500" in words and "502" in words else ""

        words = await until(named)
        assert f"{one.url.removeprefix('http://')} answered 500, tried once" in words
        await client.get_workflow_handle(fresh).terminate()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_an_address_that_fails_for_a_day_is_given_up_and_named(script: Script, tmp_path: Path) -> None:
    flag = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    start = WorkflowEnvironment.start_time_skipping_v2
    async with (
        Receiver.open() as receiver,
        await start(dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=flag) as server,
    ):
        address = server.client.service_client.config.target_host
        client = await Client.connect(address, plugins=[perdure_plugin()])
        async with telling(client, script, tmp_path, receiver.url, of_anybody=True):
            receiver.answers = [(500, {"retry-after": "3600"})] * 30
            handle = await client.start_workflow(
                "Notification",
                {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "d", "delivery_id": "d",
                 "run_id": "r", "repository": "/r", "request": "x", "summary": "y"},
                id="d.notice-1",
                task_queue=TASK_QUEUE,
            )  # fmt: skip
            await until(lambda: receiver.told)
            host = receiver.url.removeprefix("http://")
            assert await until(lambda: failed_notices(client, "d")) == [f"{host} answered 500, tried once"]
            clock = TimeSkipper(client)
            await clock.fast_forward(handle, NOTIFY_FOR_TIME - timedelta(hours=1))

            async def ended() -> bool:
                if (await handle.describe()).status is WorkflowExecutionStatus.FAILED:
                    return True
                await clock.fast_forward(handle, timedelta(hours=1))
                return False

            await until(ended, every=0.3)
            assert len(receiver.told) >= 2
            assert await failed_notices(client) == [f"d: {host} answered 500"]
