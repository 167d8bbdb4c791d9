"""Agents between two turns: each waits, in its sandbox, for the answer to its next request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from perdure.models.phases import Step
from perdure.models.turn import TurnInput

AGENT_IDLE_S = 60.0
"""For an agent that waits for its next turn: it has 200 MB, and is begun again from its checkpoint in two seconds."""

IDLE = "PERDURE_AGENT_IDLE_S"
"""The variable that shortens it, for tests."""


@dataclass(frozen=True)
class Standing:
    """The place at which an agent waits: after this turn of this run, with the worktree at this checkpoint."""

    run_id: str
    step: Step
    attempt: int
    turn: int
    checkpoint: str

    @classmethod
    def before(cls, work: TurnInput, run_id: str) -> Standing:
        """The place that a turn goes on from."""
        return cls(run_id, work.step, work.attempt, work.turn - 1, work.checkpoint)


class Waiting(Protocol):
    """An agent's process that waits."""

    @property
    def alive(self) -> bool: ...

    async def stop(self) -> None:
        """End it and all that it started; twice is fine."""
        ...


class WaitingAgents:
    """The agents of one worker that wait for their next turn, one a delivery at most, for `idle_s` seconds at most."""

    def __init__(self, idle_s: float = AGENT_IDLE_S) -> None:
        self._idle_s = idle_s
        self._waiting: dict[str, tuple[Standing, Waiting]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self, work: TurnInput, run_id: str) -> Waiting | None:
        """The agent that waits for exactly this turn, which is the caller's from now on; any other one is ended.

        None for a turn with words from people, too: they are a prompt, and an agent takes one when it begins.
        """
        standing, agent = self._waiting.pop(work.delivery, (None, None))
        if agent is None:
            return None
        if standing == Standing.before(work, run_id) and agent.alive and not work.said:
            return agent
        await agent.stop()
        return None

    def keep(self, delivery: str, standing: Standing, agent: Waiting) -> None:
        """It waits for its next turn, and is ended where that does not come in time."""
        self._waiting[delivery] = standing, agent
        ending = asyncio.get_running_loop().create_task(self._end_later(delivery, agent))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all of them: the worker ends."""
        for task in [*self._ending]:
            task.cancel()
        while self._waiting:
            _, (_, agent) = self._waiting.popitem()
            await agent.stop()

    async def _end_later(self, delivery: str, agent: Waiting) -> None:
        await asyncio.sleep(self._idle_s)
        if self._waiting.get(delivery, (None, None))[1] is agent:
            del self._waiting[delivery]
            await agent.stop()
