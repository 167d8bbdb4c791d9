"""Agents between two turns: ended when nobody comes in time, and a time that is no number is refused."""

from __future__ import annotations

import pytest

from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.waiting_agents import IDLE_VARIABLE, AgentPosition, WaitingAgents
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from tests.waiting import until


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
