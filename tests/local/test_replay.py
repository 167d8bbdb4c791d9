"""Histories are replayed in a process of their own, on the workflow code that is installed."""

from __future__ import annotations

import json

import pytest
from temporalio.client import WorkflowHistory

from perdure.local.replay import replay_histories
from perdure.models.errors import PerdureError
from tests.replay.record import HISTORIES, name_of, read


def kept(shape: str, *, altered: bool = False) -> WorkflowHistory:
    (path,) = [path for path in HISTORIES.iterdir() if name_of(path) == shape]
    history = read(path)
    if not altered:
        return history
    events = json.loads(history.to_json())  # somebody would rather have planned before classifying
    names = {"classify": "plan", "plan": "classify"}
    for event in events["events"]:
        scheduled = event.get("activityTaskScheduledEventAttributes", {}).get("activityType", {})
        scheduled["name"] = names.get(scheduled.get("name"), scheduled.get("name"))
    return WorkflowHistory.from_json(history.workflow_id, events)


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
