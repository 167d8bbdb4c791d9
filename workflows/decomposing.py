"""A large request made into items of its backlog, by a delivery that changes nothing."""

from __future__ import annotations

from perdure.models.decisions import Gate
from perdure.models.phases import Step
from perdure.models.result import Status
from workflows.stage import Stage
from workflows.steps import Steps


async def decompose(stage: Stage, steps: Steps) -> None:
    """Items instead of a change; again until a person agrees, where one is asked. They begin when the backlog hears of
    the end."""
    state = stage.state
    if not state.plan:
        await steps.plan(step=Step.DECOMPOSE)
    while words := await steps.decision(Gate.ITEMS):
        await steps.plan(words, Step.DECOMPOSE)
    state.items = (await steps.check_plan(state.plan, "the items", items=True)).items
    state.status, state.message = Status.COMPLETED, f"decomposed into {state.title}"
