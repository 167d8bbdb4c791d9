"""Agents as a turn knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from perdure.adapters.agents.builtin.promised import Promised
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.live import Waiting
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.config import StepSettings
from perdure.models.turn import TurnInput, TurnResult

Message = dict[str, Any]


@dataclass(frozen=True)
class TurnToTake:
    """A turn that is to be taken: its worktree is at its checkpoint.

    told  the conversation so far, the step's opening in a first turn, with what people have said since
    """

    host: Host
    session: WorkspaceSession
    work: TurnInput
    run_id: str
    told: list[Message]
    promised: Promised | None

    @property
    def settings(self) -> StepSettings:
        """Those of its step."""
        found: StepSettings = getattr(self.session.contract.config.steps, self.work.step)
        return found


class Agent(Protocol):
    """The one who takes the turns of a step. `chosen.needed` says what it has to be able to."""

    async def take(self, turn: TurnToTake, waiting: Waiting | None) -> TurnResult:
        """Begin, or go on from the turn's checkpoint, let one request through, do its tools, and make the next
        checkpoint.

        waiting  the agent's process as it stands after the turn before, which is this method's to use or to stop; None:
                 there is none
        """
        ...
