"""A rewind is two calls: where only the first one came, nothing is lost, and the delivery says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

import workflows.gates
from perdure.models.phases import Phase
from tests.deliveries import ADelivery
from tests.waiting import until


async def test_a_run_that_is_about_to_be_left_begins_no_turn_and_goes_on_where_the_reset_does_not_come(
    a_delivery: ADelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.gates, "RESET_COMES", timedelta(seconds=2))
    async with a_delivery(Phase.BUILD, turns_each=30) as delivery:
        await delivery.at(lambda progress: len(delivery.seen) > 1)
        run = (await delivery.handle.describe()).run_id
        await delivery.signal("rewind", from_run=run, to="implement:1", text="not for this run")
        await delivery.at(lambda progress: progress["waiting"] == "is about to be rewound to implement:1")
        await delivery.signal("hold")

        async def noted() -> bool:
            told = await delivery.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
            return "the rewind to implement" in told.current_details and "did not happen" in told.current_details

        await until(noted)
        await delivery.signal("resume")
        assert (await delivery.ended()).status == "completed"
        assert all(not work.messages for work in delivery.seen), "its words are for the run that a reset makes"


async def test_the_word_of_another_runs_rewind_replaces_what_was_said_and_held_before(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.BUILD, turns_each=5) as delivery:
        await delivery.signal("hold")
        await delivery.at(lambda progress: progress["waiting"].startswith("held"))
        await delivery.signal("say", text="for turn six: delete it")
        await delivery.signal("rewind", from_run="another run", to="implement:1", text="use tabs", id="r")
        assert (await delivery.ended()).status == "completed"
        assert [said.text for work in delivery.seen for said in work.messages] == ["use tabs"]


async def test_a_rewind_that_is_not_well_formed_is_noted_and_changes_nothing(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD) as delivery:
        await delivery.signal("rewind", form_run="x")
        assert (await delivery.ended()).status == "completed"
