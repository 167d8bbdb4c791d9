"""A delivery that waits for people: bound to what they decide, counted once, at no cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from workflow_cast import Cast, playing

from perdure.client import Perdure
from perdure.models.decisions import Asked
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Phase
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult

PLANNED = {"repository": "/r", "request": "Add sub", "phases": ["plan"]}


async def plans(work: TurnInput) -> TurnResult:
    said = work.materials.get("words", "")
    data: dict[str, Any] = {"kind": "feature"} if work.step == "classify" else {"title": "Add sub" + said}
    artifact = "" if work.step == "classify" else f"{work.attempt:0>64}"
    outcome = Outcome(ending=Ending.DONE, summary="done", data=data, artifact=artifact)
    return TurnResult(checkpoint="c1", summary="turn 1", usage=Usage(), spend=Spend(usd=0.0), outcome=outcome)


async def waiting(handle: WorkflowHandle[Any, Any]) -> Asked:
    async with asyncio.timeout(30):
        while True:
            progress = await handle.query("progress")
            if progress["asked"]:
                return Asked.model_validate(progress["asked"])
            await asyncio.sleep(0.05)


async def test_a_rejected_plan_is_made_again_with_the_words_and_the_approval_names_the_plan(
    client: Client, cast: Cast, fresh: str
) -> None:
    cast.phases, cast.settings, cast.turn = (Phase.PLAN,), {"asks": True, "gates": ("plan",)}, plans
    async with playing(client, cast):
        submitted = await Perdure(client).submit(PLANNED, id=fresh)
        handle = client.get_workflow_handle(fresh)
        first = await waiting(handle)
        assert (first.gate, first.words) == ("plan", "approve the plan: Add sub")
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("approve", {"of": "beef"})
        assert f"it waits for plan {first.of}, not for beef" in str(refusal.value.cause)
        assert await handle.execute_update("reject", {"note": " with types"}) == f"rejected: plan {first.of}"
        second = await waiting(handle)
        assert second.of != first.of
        assert second.words == "approve the plan: Add sub with types"
        assert await handle.execute_update("reject", {"of": first.of, "note": "again"}) == "counted before: rejected"
        assert await handle.execute_update("approve", {}) == f"approved: plan {second.of}"
        result = await submitted.delivery.result()
    assert result.status == "completed", result.message
    assert [(step.step, step.attempt) for step in result.steps] == [
        ("prepare", 1), ("classify", 1), ("plan", 1), ("plan", 2),
    ]  # fmt: skip
