"""Deliveries beside each other whose model server answers one request at a time: the others wait, through a death."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.test_run import push_commit
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, until
from tests.waiting import patient

SLOW = HAPPY.replace("[[line]]\n", "[[line]]\nseconds = 1.0\n")
WAITS = "waiting for one of 1 place: other requests to the model's server are under way"


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_deliveries_wait_for_their_turn_at_the_model_show_it_and_lose_nothing_in_a_death(
    tmp_path: Path, ports: int
) -> None:
    names = ("one", "two", "three", "four")
    origins = [make_target(tmp_path / f"{name}.git") for name in names]
    async with Engine.open(tmp_path, SLOW, ports=ports, env={"PERDURE_MODEL_AT_ONCE": "1"}) as engine:
        worker = engine.worker()
        submitted = {
            name: await engine.submit(origin, id=name, **BUILT) for name, origin in zip(names, origins, strict=True)
        }

        async def waiting() -> list[str]:
            """The deliveries that wait, as everybody sees them."""
            described = {name: await each.delivery.describe() for name, each in submitted.items()}
            return [
                name
                for name, each in described.items()
                if any(activity.details.get("doing") == WAITS for activity in each.pending)
            ]

        async def several_wait() -> list[str]:
            found = await waiting()
            return found if len(found) >= 2 else []

        first = (await until(several_wait))[0]
        cancelled = submitted.pop(first)
        await cancelled.delivery.cancel()
        async with asyncio.timeout(patient(20)):
            assert (await cancelled.delivery.result()).status == "cancelled"

        await until(several_wait if len(submitted) > 2 else waiting)
        worker.kill()
        engine.worker()
        results = [await finished(each, engine) for each in submitted.values()]
        assert [result.status for result in results] == ["delivered"] * 3, [result.message for result in results]
        assert [result.receipt.replies_paid_twice for result in results] == [0] * 3
        assert engine.rehearsal is not None
        calls = sorted((call for call in engine.rehearsal.calls if not call.dropped), key=lambda call: call.began_at)
        overlaps = [
            (before.number, after.number)
            for before, after in pairwise(calls)
            if after.began_at < before.ended_at - 0.5  # a reply has arrived before its server knows
        ]
        assert not overlaps


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_tests_run_while_a_turn_that_waits_for_its_reply_holds_the_only_slot_of_turns(
    tmp_path: Path, ports: int
) -> None:
    silent = HAPPY.replace("[[line]]\n", "[[line]]\nseconds = 3600.0\n")
    origins = [make_target(tmp_path / f"{name}.git") for name in ("one", "two")]
    push_commit(origins[1], "topic", "Break add")
    async with Engine.open(tmp_path, silent, ports=ports, env={"PERDURE_SLOTS": "1"}) as engine:
        engine.worker()
        waiting = await engine.submit(origins[0], id="one", **BUILT)
        await until(engine.model_calls)
        tested = await engine.submit(origins[1], id="two", branch="topic", phases=["test"], fix=False)

        async def has_verdict() -> bool:
            begun = set[int]()
            async for event in engine.handle("two").fetch_history_events():
                if event.activity_task_scheduled_event_attributes.activity_type.name == "run_tests":
                    begun.add(event.event_id)
                if event.activity_task_completed_event_attributes.scheduled_event_id in begun:
                    return True
            return False

        await until(has_verdict)
        assert engine.rehearsal is not None
        assert not engine.rehearsal.calls[0].ended_at, "the turn holds the only slot"
        await waiting.delivery.cancel()
        assert (await finished(tested, engine)).reason == "tests_red"
