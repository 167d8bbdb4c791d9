"""Those who do not hear: who asks is told at once, and a day of it ends the telling alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from notice_fixtures import PLANNED, gated, telling
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import TimeSkipper, WorkflowEnvironment

from perdure.client import Perdure
from perdure.client.doctor import NoticeAttempt, failed_notices, send_trial_notice
from perdure.local.places import temporal_binary
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from tests.deliveries import Script
from tests.engine import until
from tests.receiver import Receiver, genuine
from workflows.notification import NOTIFY_FOR_TIME

__all__ = ["gated"]


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
        async with telling(client, script, tmp_path, receiver.url):
            receiver.answers = [(500, {"retry-after": "3600"})] * 30
            handle = await client.start_workflow(
                "Notification",
                {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "d", "delivery_id": "d",
                 "run_id": "r", "repository": "/r", "request": "x", "words": "y"},
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
