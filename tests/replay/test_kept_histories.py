"""Histories of every released shape replay on today's code; a changed order of activities does not pass unnoticed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from perdure.models.delivery.result import DeliveryResult
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.replay.record import HISTORIES, name_of, read
from workflows import WORKFLOWS, Delivery

KEPT = sorted(HISTORIES.glob("*.json*"))


def test_histories_are_kept() -> None:
    assert {name_of(path) for path in KEPT} >= {
        *("delivered-with-fixes", "tests-red", "draft", "planned", "three-deaths", "killed-and-retried"),
        *("github-issue", "waiting-for-the-forge"),
        *("waiting-at-plan", "waiting-at-question", "waiting-at-budget", "waiting-at-tests", "waiting-at-pull-request"),
        *("decided", "answered", "edited", "waiting-at-an-edited-plan", "rejected-and-mended", "told-apart"),
        *("waiting-at-deaths", "tried-again-after-deaths"),
        *("waiting-at-deaths-of-prepare", "prepared-again-after-deaths"),
        *("held", "held-and-resumed", "cancelled-at-a-gate", "expired", "notifying", "notification", "not-told"),
        *("tampered", "before-it-continued", "continued-and-waiting", "continued"),
        *("waiting-for-the-treasury", "shared-budget", "treasury", "treasury-ended"),
        *("treasury-before-it-continued", "treasury-continued"),
        *("backlog", "landed", "landed-after-a-conflict", "followed", "stacked", "delivered-in-a-stack"),
        *("specialists", "tasks", "task", "task-beside", "backlog-crowded", "landed-in-its-turn"),
        *("attempts", "attempts-after-red", "attempt", "attempt-red"),
        *("backlog-with-attempts", "item-with-attempts", "backlog-that-left-a-stack", "stack-followed"),
        *("waiting-for-the-day", "covered-by-the-day"),
        *("waiting-at-items", "backlog-waiting-at-items", "decomposed", "backlog-decomposed"),
    }


@pytest.mark.timeout(240)
async def test_the_kept_histories_replay() -> None:
    """All with one replayer: preparing it costs as much as most histories do."""

    async def kept() -> AsyncIterator[WorkflowHistory]:
        for path in KEPT:
            yield read(path)

    replayer = Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()])
    failed, paths = {}, iter(KEPT)
    async with replayer.workflow_replay_iterator(kept()) as results:
        async for result in results:
            name = next(paths).name.partition(".json")[0]
            if result.replay_failure is not None:
                failed[name] = result.replay_failure
    assert failed == {}
    assert next(paths, None) is None, "all of them"


@workflow.defn(name="Delivery")
class Reordered(Delivery):
    """As Delivery, but planning before classifying."""

    @workflow.run
    async def run(self, raw: Any = None, *more: Any) -> DeliveryResult:
        return await super().run(raw, *more)

    async def make_plan(self) -> None:
        self.enter_phase(Phase.PLAN)
        await self.steps.plan()
        await self.steps.classify()


async def test_two_activities_in_another_order_fail_the_replay() -> None:
    path = next(path for path in KEPT if name_of(path) == "planned")
    replayer = Replayer(workflows=[Reordered], plugins=[perdure_plugin()], workflow_runner=UnsandboxedWorkflowRunner())
    with pytest.raises(workflow.NondeterminismError):
        await replayer.replay_workflow(read(path), raise_on_replay_failure=True)
