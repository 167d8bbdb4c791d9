"""A rewind is two calls: where only the first one came, nothing is lost, and the delivery says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from people_fixtures import BUILT, Company, at
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client
from workflow_fixtures import playing

import workflows.gates
from perdure.client import Perdure
from perdure.models.phases import Phase
from tests.waiting import until


@pytest.fixture
def company() -> Company:
    return Company()


@pytest.fixture
async def played(client: Client, company: Company) -> AsyncIterator[None]:
    async with playing(client, company):
        yield


@pytest.mark.usefixtures("played")
async def test_a_run_that_is_about_to_be_left_begins_no_turn_and_goes_on_where_the_reset_does_not_come(
    client: Client, company: Company, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.gates, "RESET_COMES", timedelta(seconds=2))
    company.turns_each = 30  # so many that it is still at it when it hears of the rewind
    company.asks(Phase.BUILD)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    await at(handle, lambda progress: len(company.seen) > 1)
    run = (await handle.describe()).run_id
    await handle.signal("rewind", {"from_run": run, "to": "implement:1", "text": "not for this run"})
    await at(handle, lambda progress: progress["waiting"] == "is about to be rewound to implement:1")
    await handle.signal("hold", {})

    async def noted() -> bool:
        told = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return "the rewind to implement" in told.current_details and "did not happen" in told.current_details

    await until(noted)
    await handle.signal("resume", {})
    assert (await Perdure(client).delivery(fresh).result()).status == "completed"
    assert all(not work.messages for work in company.seen), "its words are for the run that a reset makes"


@pytest.mark.usefixtures("played")
async def test_the_word_of_another_runs_rewind_replaces_what_was_said_and_held_before(
    client: Client, company: Company, fresh: str
) -> None:
    company.turns_each = 5
    company.asks(Phase.BUILD)
    handle = client.get_workflow_handle(fresh)
    await Perdure(client).submit(BUILT, id=fresh)
    await handle.signal("hold", {})
    await at(handle, lambda progress: progress["waiting"].startswith("held"))
    await handle.signal("say", {"text": "for turn six: delete it"})
    await handle.signal("rewind", {"from_run": "another run", "to": "implement:1", "text": "use tabs", "id": "r"})
    assert (await Perdure(client).delivery(fresh).result()).status == "completed"
    assert [said.text for work in company.seen for said in work.messages] == ["use tabs"]


@pytest.mark.usefixtures("played")
async def test_a_rewind_that_is_not_well_formed_is_noted_and_changes_nothing(
    client: Client, company: Company, fresh: str
) -> None:
    company.asks(Phase.BUILD)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    await handle.signal("rewind", {"form_run": "x"})
    assert (await Perdure(client).delivery(fresh).result()).status == "completed"
