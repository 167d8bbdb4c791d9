"""Background tasks, and agents between two turns, end with their worker."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host, run_in_background
from perdure.adapters.worker.waiting_agents import IDLE_VARIABLE, AgentPosition, WaitingAgents
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from tests.waiting import until


async def test_what_goes_on_beside_the_work_has_ended_with_it_and_asyncio_has_nothing_to_complain_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    async def for_ever(name: str) -> None:
        try:
            seen.append(f"{name} begins")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append(f"{name} ends")

    with caplog.at_level(logging.ERROR, "asyncio"):
        async with run_in_background(for_ever("a"), for_ever("b")):
            await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "complained of when it is dropped"
    assert seen == ["a begins", "b begins", "a ends", "b ends"]
    assert caplog.text == ""


async def test_one_that_failed_is_told_at_the_end_and_has_not_stopped_the_others() -> None:
    looked = 0

    async def fails() -> None:
        raise ValueError("no descriptors")

    async def looks() -> None:
        nonlocal looked
        while True:
            looked += 1
            await asyncio.sleep(0)

    async def works() -> None:
        async with run_in_background(fails(), looks()):
            await asyncio.sleep(0)
            before = looked
            await asyncio.sleep(0.01)
            assert looked > before

    with pytest.raises(ValueError, match="no descriptors"):
        await works()
    before = looked
    await asyncio.sleep(0.01)
    assert looked == before, "it went on after the work"


class Agent:
    """A process that can be ended."""

    alive = True

    async def stop(self) -> None:
        self.alive = False


async def test_an_agent_whose_next_turn_does_not_come_is_ended_and_another_one_is_not() -> None:
    waiting, early, late = WaitingAgents(idle_s=0.05), Agent(), WaitingAgents()
    kept = Agent()
    waiting.keep("one", AgentPosition("run", Step.IMPLEMENT, 1, 1, "c"), early)
    late.keep("one", AgentPosition("run", Step.IMPLEMENT, 1, 1, "c"), kept)
    await until(lambda: not early.alive)
    assert kept.alive
    await late.close()
    assert not kept.alive


@pytest.mark.parametrize("words", ["soon", "0", "inf"])
def test_a_time_that_is_none_is_refused_with_its_variable(words: str, home: Home) -> None:
    with pytest.raises(BadInput, match="is not a number of seconds") as refused:
        Host.from_environment(home, {IDLE_VARIABLE: words})
    assert (refused.value.where, refused.value.fix) == (IDLE_VARIABLE, "set it to 60, or unset it")
