"""The agentic steps: each a sequence of activities of its name, one a turn.

Effect: one checkpoint. Looks first: the checkpoint of an earlier attempt is adopted. Key: run, step, attempt, turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import activity

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.sealed_facts import plan_fact, seal_review, seal_texts
from perdure.adapters.worker.turn.transaction import take_turn
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.turn import Ending, TurnInput, TurnResult
from perdure.models.phases import Step


def turn_activities(host: Host) -> list[Callable[..., Any]]:
    """Return one activity for every agentic step of the table (perdure.models.delivery.steps); each takes one turn."""
    return [_turn_activity(step, host) for step in AGENTIC]


def _turn_activity(step: Step, host: Host) -> Callable[..., Any]:
    """Return the activity that takes one turn of this step on this host; its name is the step's."""

    @activity.defn(name=step)
    async def turn(work: TurnInput) -> TurnResult:
        result = await take_turn(host, work)
        await in_thread(seal_texts, host.facts(work.delivery), result)
        if step in (Step.PLAN, Step.DECOMPOSE) and result.outcome is not None and result.outcome.ending is Ending.DONE:
            fact = plan_fact(result.outcome.artifact, str(result.outcome.data.get("title", "")))
            await in_thread(host.facts(work.delivery).seal_facts, fact)
        if step is Step.REVIEW:
            vault = Workspace.open(host.home, work.delivery).vault
            await in_thread(seal_review, host.facts(work.delivery), vault, work, result)
        return result

    return turn
