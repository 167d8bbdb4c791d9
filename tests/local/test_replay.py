"""Histories are replayed in a process of their own, on the workflow code that is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from perdure.local.replay import replay_histories
from perdure.models.errors import PerdureError

KEPT = Path(__file__).parents[1] / "replay" / "histories"


def kept(shape: str, *, altered: bool = False) -> WorkflowHistory:
    path = next(path for path in sorted(KEPT.glob("*.json")) if path.stem.endswith(shape))
    text = path.read_text()
    if altered:  # somebody would rather have planned before classifying
        events = json.loads(text)
        names = {"classify": "plan", "plan": "classify"}
        for event in events["events"]:
            told = event.get("activityTaskScheduledEventAttributes", {}).get("activityType", {})
            told["name"] = names.get(told.get("name"), told.get("name"))
        text = json.dumps(events)
    return WorkflowHistory.from_json(path.stem, text)


async def test_true_histories_replay_and_an_altered_one_is_told_from_them() -> None:
    first, altered, last = await replay_histories([kept("planned"), kept("planned", altered=True), kept("tests-red")])
    assert (first, last) == ("", "")
    assert altered.startswith("NondeterminismError: ")
    assert "'plan' does not match" in altered
    assert "\n" not in altered


async def test_a_replay_that_cannot_be_carried_out_says_so_and_judges_nothing() -> None:
    broken = WorkflowHistory.from_json("x", {"events": []})
    with pytest.raises(PerdureError, match="could not be carried out"):
        await replay_histories([broken])
