"""Agent processes between two turns, kept by their worker: each waits, in its sandbox, for the answer to its next
request, until the next turn claims it or it has waited too long. The host holds them; the turns claim and keep them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from perdure.models.delivery.turn import TurnInput
from perdure.models.phases import Step

AGENT_IDLE_S = 60.0
"""The time that an agent waits for its next turn: it has 200 MB, and is started again from its checkpoint in two
seconds."""

IDLE_VARIABLE = "PERDURE_AGENT_IDLE_S"
"""The environment variable that shortens AGENT_IDLE_S, for tests."""


@dataclass(frozen=True)
class AgentPosition:
    """The place at which an agent waits: after this turn of this run, with the worktree at this checkpoint."""

    run_id: str
    step: Step
    attempt: int
    turn: int
    checkpoint: str

    @classmethod
    def before_turn(cls, work: TurnInput, run_id: str) -> AgentPosition:
        """Return the place that a turn goes on from."""
        return cls(run_id, work.step, work.attempt, work.turn - 1, work.checkpoint)


class WaitingAgent(Protocol):
    """An agent's process that waits for its next turn."""

    @property
    def alive(self) -> bool: ...

    async def stop(self) -> None:
        """End the agent and all that it started; twice is fine."""
        ...


class WaitingAgents:
    """The agents of one worker that wait for their next turn, one a delivery at most, for `idle_s` seconds at most."""

    def __init__(self, idle_s: float = AGENT_IDLE_S) -> None:
        self._idle_s = idle_s
        self._waiting: dict[str, tuple[AgentPosition, WaitingAgent]] = {}
        self._idle_tasks: set[asyncio.Task[None]] = set()

    async def claim(self, work: TurnInput, run_id: str) -> WaitingAgent | None:
        """Return the agent that waits for exactly this turn, which is the caller's to use or stop from now on; any
        other one that waits for the delivery is stopped, and None returned.

        None also for a turn with messages from people: they are a prompt, and an agent takes one only when it starts.
        """
        position, agent = self._waiting.pop(work.delivery, (None, None))
        if agent is None:
            return None
        if position == AgentPosition.before_turn(work, run_id) and agent.alive and not work.messages:
            return agent
        await agent.stop()
        return None

    def keep(self, delivery: str, position: AgentPosition, agent: WaitingAgent) -> None:
        """Keep an agent for the delivery's next turn, and start a task that ends it where that does not come within the
        idle time."""
        self._waiting[delivery] = position, agent
        idle_task = asyncio.get_running_loop().create_task(self._end_when_idle(delivery, agent))
        self._idle_tasks.add(idle_task)
        idle_task.add_done_callback(self._idle_tasks.discard)

    async def close(self) -> None:
        """End all waiting agents, because the worker ends."""
        for task in [*self._idle_tasks]:
            task.cancel()
        while self._waiting:
            _, (_, agent) = self._waiting.popitem()
            await agent.stop()

    async def _end_when_idle(self, delivery: str, agent: WaitingAgent) -> None:
        """Wait for the idle time, then end the agent if it still waits."""
        await asyncio.sleep(self._idle_s)
        if self._waiting.get(delivery, (None, None))[1] is agent:
            del self._waiting[delivery]
            await agent.stop()
