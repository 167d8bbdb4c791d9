"""What history tells without a worker, of real workflows: deaths, waits, runs that go on from others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.client.delivery.handle import ARTIFACT_READ_BYTES
from perdure.models.delivery.turn import TextPage, TurnInput, TurnResult, VaultReadInput
from perdure.models.errors import BadInput, PerdureError
from perdure.models.phases import Phase
from perdure.render.report.gather import deaths_of
from tests.deliveries import Script, playing

REQUEST = {"repository": "/r", "request": "Add sub"}
SOON = timedelta(milliseconds=20)


@pytest.fixture(autouse=True)
def ships(script: Script) -> None:
    script.phases = (Phase.BUILD, Phase.SHIP)
    script.settings = {"hosted": True, "allow_untested": True, "turns_per_step": 2}
    script.turn = script.builds


async def test_a_death_and_a_failure_are_told_apart_and_a_wait_says_what_for(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    lost = ApplicationError("the worker died", type="WorkerDied", next_retry_delay=SOON)
    away = ApplicationError("GitHub answers 502", type="ForgeUnavailable", next_retry_delay=timedelta(seconds=1))
    script.troubles = {
        "publish_artifacts": [ApplicationError("busy", next_retry_delay=SOON)],
        "open_pull_request": [away],
    }
    deaths = [lost]

    async def dies(work: TurnInput) -> TurnResult:
        if deaths:
            raise deaths.pop()
        return await script.builds(work)

    script.turn = dies
    async with playing(client, script):
        submitted = await perdure.submit(REQUEST, id=fresh)
        assert (await submitted.delivery.result()).status == "delivered"
    past = await submitted.delivery.past()
    assert past.complete
    assert (past.request, past.newest_start) == (REQUEST, 0)
    by_name = {act.activity: act for act in past.activities}
    built = by_name["implement"]
    assert (built.died, built.silent, built.tries, built.attempt, built.turn) == (True, False, 2, 1, 1)
    assert built.began is not None
    assert built.ended is not None
    assert built.scheduled < built.began <= built.ended
    assert built.result is not None
    assert built.result["summary"] == "turn 1"
    assert (by_name["publish_artifacts"].died, by_name["publish_artifacts"].tries) == (False, 2)
    (wait,) = past.waits
    assert wait.reason.startswith("GitHub answers 502")
    assert wait.until is not None
    assert (wait.until - wait.since).total_seconds() >= 0.9
    assert wait.until <= by_name["open_pull_request"].scheduled, "the try that came after it"


@workflow.defn(name="Delivery", sandboxed=False)
class Beatless:
    """Its activity is expected to send a heartbeat each second."""

    @workflow.run
    async def run(self, request: dict[str, str]) -> None:
        await workflow.execute_activity(
            "implement",
            task_queue=request["queue"],
            heartbeat_timeout=timedelta(seconds=1),
            schedule_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(initial_interval=SOON),
        )


async def test_a_worker_that_is_no_longer_heard_of_is_told_from_one_that_was_seen_to_die(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    queue = f"queue-{fresh}"

    @activity.defn(name="implement")
    async def sends_no_heartbeat() -> None:
        if activity.info().attempt == 1:
            await asyncio.Event().wait()

    async with Worker(client, task_queue=queue, workflows=[Beatless], activities=[sends_no_heartbeat]):
        await client.execute_workflow("Delivery", {"queue": queue}, id=fresh, task_queue=queue)
    (act,) = (await perdure.delivery(fresh).past()).activities
    assert (act.died, act.silent, act.tries) == (True, True, 2)
    (death,) = deaths_of([act])
    assert death.silent


async def test_runs_that_go_on_from_others_are_one_story(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    script.turn = script.endless
    async with playing(client, script):
        submitted = await perdure.submit(REQUEST, id=fresh)
        assert (await submitted.delivery.result()).reason == "limits"
        first = await submitted.delivery.past()
        script.turn = script.builds
        again = await submitted.delivery.retry()
        assert (await again.result()).status == "delivered"
    past = await again.past()
    assert past.complete
    assert past.newest_start == len(first.activities)
    assert past.activities[: past.newest_start] == first.activities
    assert [act.activity for act in past.activities].count("implement") == 3


async def test_what_runs_now_has_no_end_and_what_never_was_is_not_found(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    submitted = await perdure.submit(REQUEST, id=fresh)
    past = await submitted.delivery.past()
    assert (past.request, past.activities, past.waits) == (REQUEST, (), ())
    await client.get_workflow_handle(fresh).terminate()
    with pytest.raises(BadInput, match="no delivery never-was"):
        await perdure.delivery("never-was").past()


@pytest.mark.story
async def test_an_artifact_comes_in_pages_whole_or_not_at_all(client: Client, perdure: Perdure, fresh: str) -> None:
    kept = {"whole": b"\x00\xff" * 5000, "endless": b"", "damaged": b"other"}
    names = {hashlib.sha256(data).hexdigest(): name for name, data in kept.items()}
    names["0" * 64] = "damaged"

    @activity.defn(name="read")
    async def read(work: VaultReadInput) -> TextPage:
        assert work.what == "artifact64"
        name = names[work.checkpoint]
        size = 40_000 if name == "endless" else 4_000
        data = bytes(size) if name == "endless" else kept[name][work.offset : work.offset + size]
        end = work.offset + size
        return TextPage(
            text=base64.b64encode(data).decode(), next=end if name == "endless" or end < len(kept[name]) else None
        )

    delivery, queue = perdure.delivery(fresh), f"host-{fresh}"
    assert not await delivery.has_pollers(queue)
    async with Worker(client, task_queue=queue, activities=[read]):
        sha256 = hashlib.sha256(kept["whole"]).hexdigest()
        assert await delivery.artifact(sha256, queue) == kept["whole"]
        assert await delivery.artifact(f"artifact:sha256:{sha256}", queue) == kept["whole"]
        assert await delivery.has_pollers(queue)
        with pytest.raises(PerdureError, match="arrived damaged"):
            await delivery.artifact("0" * 64, queue)
        with pytest.raises(PerdureError, match="too large"):
            await delivery.artifact(hashlib.sha256(b"").hexdigest(), queue)
    assert ARTIFACT_READ_BYTES / 40_000 < 500, "pages"
