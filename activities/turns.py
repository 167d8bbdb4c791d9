"""The agentic steps: each a sequence of activities of its name, one a turn.

Effect: one checkpoint. Looks first: the checkpoint of an earlier attempt is adopted. Key: run, step, attempt, turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity

from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.transaction import take_turn
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC
from perdure.models.turn import TurnInput, TurnResult


def turns(host: Host) -> list[Callable[..., Any]]:
    """One activity for every agentic step of the table (perdure.models.steps)."""
    return [_of(step, host) for step in AGENTIC]


def _of(step: Step, host: Host) -> Callable[..., Any]:
    @activity.defn(name=step)
    async def turn(work: TurnInput) -> TurnResult:
        return await take_turn(host, work)

    return turn
