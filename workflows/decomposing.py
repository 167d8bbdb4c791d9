"""A large request made into items of its backlog, by a delivery that changes nothing."""

from __future__ import annotations

from perdure.models.decisions import Gate
from perdure.models.phases import Step
from perdure.models.result import Status
from workflows.step_runner import StepRunner
from workflows.steps import Steps


async def decompose_request(runner: StepRunner, steps: Steps) -> None:
    """Make the request into items of its backlog instead of a change, and complete the delivery with them.

    Where a person is asked, the items are planned again with each rejection's note, until they agree. The items start
    when the backlog hears that the delivery has ended.
    """
    state = runner.state
    if not state.plan:
        await steps.plan(step=Step.DECOMPOSE)
    while note := await steps.ask_gate(Gate.ITEMS):
        await steps.plan(note, Step.DECOMPOSE)
    state.items = (await steps.check_plan(state.plan, "the items", items=True)).items
    state.status, state.message = Status.COMPLETED, f"decomposed into {state.title}"
