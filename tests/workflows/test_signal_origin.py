"""The signals of a backlog's deliveries, when others send them: a client in a delivery's name, a workflow of a
stranger's, and one who repeats what a delivery has sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from tests.attack.stranger_client import SIGNALS, TenLines, forged
from tests.deliveries import at, playing, reset


async def events_of(handle: WorkflowHandle[Any, Any], kind: str) -> list[Any]:
    """The events of a kind in a workflow's history."""
    return [event async for event in handle.fetch_history_events() if event.HasField(kind)]  # type: ignore[arg-type]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sender", ["client", "workflow"])
async def test_a_signal_that_its_delivery_has_not_sent_changes_nothing_and_is_noted_once(
    client: Client, fresh: str, sender: str
) -> None:
    branch = Branch(one="a", two="b")
    branch.holding, branch.real_looks = {"one": asyncio.Event()}, client
    async with playing(client, branch), Worker(client, task_queue=f"{fresh}-his", workflows=[TenLines]):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}))
        await until(handle, lambda of: of["one"] == "building")
        delivery = f"{fresh}/one"
        run_id = (await client.get_workflow_handle(delivery).describe()).run_id
        state = await handle.query("state")

        async def send(name: str, content: dict[str, Any]) -> None:
            if sender == "client":
                return await handle.signal(name, content)
            call, id = {"signals": fresh, "name": name, "content": content}, f"{fresh}-his"
            return await client.execute_workflow("Delivery", call, id=id, task_queue=id)

        for name in SIGNALS:
            for signal_sender in (delivery, delivery, f"{fresh}-his"):
                await send(name, forged(name, signal_sender, run_id))
        progress = await at(handle, lambda progress: len(progress.get("notes", ())) >= len(SIGNALS))
        assert progress["notes"] == [f"one: a signal {name} is ignored: {delivery} has not sent it" for name in SIGNALS]
        assert phases(progress) == {"one": "building", "two": "after"}
        state_then = await handle.query("state")
        assert (state_then["items"], state_then.get("landing")) == (state["items"], state.get("landing"))
        branch.holding["one"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert branch.landed == ["one", "two"]
    assert len(progress["notes"]) == len(SIGNALS)


@pytest.mark.timeout(120)
async def test_a_turn_to_land_that_the_backlog_has_not_granted_is_not_taken(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.looking = [""], asyncio.Event()  # while the branch follows, nobody has the turn
    branch.holding = {"two": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        await until(handle, lambda of: of == {"one": "landed", "two": "building"})
        await handle.execute_update("follow", {})
        await until(handle, lambda _: branch.follows)
        branch.holding["two"].set()
        await until(handle, lambda of: of["two"] == "landing")
        delivery = client.get_workflow_handle(f"{fresh}/two")
        for seq in (1, 1, 2):
            await delivery.signal("landing_granted", {"seq": seq})
        await at(delivery, lambda progress: "its turn to land" in progress["waiting"])
        assert branch.landed == ["one"], "it has no turn"
        branch.looking.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}


@pytest.mark.timeout(120)
async def test_a_signal_that_a_client_sends_once_more_counts_once(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding, branch.fails = {"two": asyncio.Event()}, {"one"}
    branch.real_looks = client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, parallel=2))
        await until(handle, lambda of: of["one"] == "failed")
        signaled = await events_of(handle, "workflow_execution_signaled_event_attributes")
        sent = [event.workflow_execution_signaled_event_attributes for event in signaled]
        (end,) = [signal for signal in sent if signal.signal_name == "item_ended"]
        assert end.external_workflow_execution.workflow_id == f"{fresh}/one"
        (content,) = await client.data_converter.decode_wrapper(end.input)
        branch.fails = set()
        branch.holding["one"] = asyncio.Event()
        await handle.execute_update("retry", {"item": "one"})
        await until(handle, lambda of: of["one"] == "building")
        for _ in range(2):
            await handle.signal("item_ended", content)
        note = f"one: a signal item_ended is ignored: {fresh}/one has not sent it"
        assert (await at(handle, lambda progress: note in progress.get("notes", ())))["notes"].count(note) == 1
        for event in branch.holding.values():
            event.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}


@pytest.mark.timeout(120)
async def test_a_backlog_that_is_reset_looks_up_deliveries_whose_signals_have_lost_their_sender(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b")
    branch.holding, branch.real_looks = {"two": asyncio.Event()}, client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, parallel=2))
        await until(handle, lambda of: of["one"] == "landed" and of["two"] == "building")
        started = await events_of(handle, "child_workflow_execution_started_event_attributes")
        completed = await events_of(handle, "workflow_task_completed_event_attributes")
        await reset(handle, next(one.event_id for one in completed if one.event_id > started[-1].event_id))
        branch.holding["two"].set()
        progress = await ended(client.get_workflow_handle(fresh))
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert branch.landed == ["one", "two"]
