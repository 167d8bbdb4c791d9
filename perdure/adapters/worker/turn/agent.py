"""Agents and their turns, as the transaction of a turn knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from perdure.adapters.agents.builtin.promises import ReviewPromises
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.waiting_agents import WaitingAgent
from perdure.models.config import StepSettings
from perdure.models.turn import TurnInput, TurnResult

Message = dict[str, Any]


@dataclass(frozen=True)
class TurnContext:
    """A turn that is to be taken, with what an agent needs for it; the worktree is at the turn's checkpoint.

    messages  the conversation so far, the step's opening in a first turn, with what people have said since
    promised  the changed promises that a review has to answer for; None: none
    """

    host: Host
    session: WorkspaceSession
    work: TurnInput
    run_id: str
    messages: list[Message]
    promised: ReviewPromises | None

    @property
    def settings(self) -> StepSettings:
        """Return the settings of the turn's step."""
        settings: StepSettings = getattr(self.session.contract.config.steps, self.work.step)
        return settings


class Agent(Protocol):
    """Whoever takes the turns of a step. `chosen.needed` says what it has to be able to."""

    async def run_turn(self, turn: TurnContext, waiting: WaitingAgent | None) -> TurnResult:
        """Begin, or go on from the turn's checkpoint, let one model request through, run its tools, make the next
        checkpoint, and return the turn's result.

        waiting  the agent's process as it stands after the turn before, which is this method's to use or to stop; None:
                 there is none
        """
        ...
