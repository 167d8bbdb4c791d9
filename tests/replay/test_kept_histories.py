"""Histories of every released shape replay on today's code; a changed order of activities does not pass unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure.models.phases import Phase
from perdure.models.result import DeliveryResult
from perdure.plugin import perdure_plugin
from workflows import WORKFLOWS, Delivery

KEPT = sorted((Path(__file__).parent / "histories").glob("*.json"))


def _history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def test_histories_are_kept() -> None:
    assert {path.stem.split("-", 1)[1] for path in KEPT} >= {
        *("delivered-with-fixes", "tests-red", "draft", "planned", "three-deaths", "killed-and-retried"),
        *("github-issue", "waiting-for-the-forge"),
        *("waiting-at-plan", "waiting-at-question", "waiting-at-budget", "waiting-at-pull-request", "held", "decided"),
    }


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_a_kept_history_replays(path: Path) -> None:
    replayer = Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()])
    result = await replayer.replay_workflow(_history(path), raise_on_replay_failure=True)
    assert result.replay_failure is None


@workflow.defn(name="Delivery")
class Reordered(Delivery):
    """As Delivery, but planning before classifying."""

    @workflow.run
    async def run(self, raw: Any = None) -> DeliveryResult:
        return await super().run(raw)

    async def plan(self) -> None:
        self.enter(Phase.PLAN)
        await self.steps.plan()
        await self.steps.classify()


async def test_two_activities_in_another_order_fail_the_replay() -> None:
    path = next(path for path in KEPT if path.stem.endswith("planned"))
    replayer = Replayer(workflows=[Reordered], plugins=[perdure_plugin()])
    with pytest.raises(workflow.NondeterminismError):
        await replayer.replay_workflow(_history(path), raise_on_replay_failure=True)
