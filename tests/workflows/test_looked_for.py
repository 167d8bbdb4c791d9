"""A backlog looks for its deliveries at the server: each end is told apart, and where it stopped it can go on."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.testing import ActivityEnvironment

from activities.workflow_lookup import look_for, resume_point
from perdure.client import Perdure
from perdure.client.submit import start_workflow
from perdure.models.backlog.landing import (
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    ResumeInput,
    ResumeResult,
)
from perdure.models.delivery.request import parse_request
from perdure.models.phases import Phase
from tests.deliveries import Script, playing
from tests.waiting import patient

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


async def ended(client: Client, id: str) -> None:
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
        await ended(client, done)
        script.settings = {"fails": "SetupFailed"}
        first[failed] = await begun(client, failed)
        await ended(client, failed)
        first[refused] = await begun(client, refused, {**REQUEST, "phases": ["brew"]})
        await ended(client, refused)
        script.settings, script.turn = {}, script.endless
        first[cancelled] = await begun(client, cancelled)
        await client.get_workflow_handle(cancelled).cancel()
        await ended(client, cancelled)
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
        await ended(client, fresh)
        made = await resumed(client, fresh)
        assert made.request is not None
        resume = parse_request(made.request).resume
        assert resume is not None
        assert (resume.run_id, resume.state["turns"]["checkpoint"]) == (first, "c3")
        script.turn = script.builds
        await perdure.delivery(fresh).retry()
        await ended(client, fresh)
    assert await perdure.delivery(fresh).request() == made.request
    assert (await found(client, fresh))[fresh].status == "completed"
    assert (await resumed(client, fresh)).reason == "it is delivered"


async def test_one_that_left_nothing_behind_has_nothing_to_go_on_from(client: Client, fresh: str) -> None:
    assert (await resumed(client, fresh)).reason == "there is no such delivery"
    await begun(client, fresh)
    await client.get_workflow_handle(fresh).terminate()
    nothing = await resumed(client, fresh)
    assert (nothing.request, nothing.reason) == (None, "it left nothing behind to go on from")
