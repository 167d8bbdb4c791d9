"""A change with a secret in it is published in no way, whether or not anybody reviewed it."""

from __future__ import annotations

from typing import Any

import pytest
from people_fixtures import Company, waiting
from temporalio.client import Client
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.delivery.work import InspectResult
from perdure.models.phases import Phase

LEAK = InspectResult(blockers=1, secrets=1, summary="1 blocker: a GitHub token in calc.py")
ASKED: dict[str, Any] = {"repository": "/r", "request": "Add sub"}


@pytest.fixture
def company() -> Company:
    """No test and no review finds anything: what is published rests on the engine's own look alone."""
    company = Company()
    company.verdicts, company.blockers = [], []
    return company


async def test_the_branch_of_a_change_with_a_secret_is_not_pushed(client: Client, company: Company, fresh: str) -> None:
    company.asks(Phase.BUILD, inspects=True)
    company.found = [LEAK]
    asked = {**ASKED, "phases": ["build"], "branch": "feature", "push": True}
    async with playing(client, company):
        result = await (await Perdure(client).submit(asked, id=fresh)).delivery.result()
    assert (result.status, result.reason, company.pushed) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"


async def test_a_draft_of_what_could_not_be_delivered_may_lack_everything_but_hold_no_secret(
    client: Client, company: Company, fresh: str
) -> None:
    company.asks(Phase.BUILD, Phase.SHIP, inspects=True, on_failure="draft")
    company.found = [LEAK]
    async with playing(client, company):
        result = await (await Perdure(client).submit(ASKED, id=fresh)).delivery.result()
    assert (result.status, result.reason, company.shipped) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"


async def test_a_secret_that_came_with_what_a_person_asked_for_at_the_pull_request_is_not_published(
    client: Client, company: Company, fresh: str
) -> None:
    company.asks(Phase.BUILD, Phase.SHIP, inspects=True, gates=("pull_request",))
    company.found, company.commits = [InspectResult(), LEAK], ["h1", "h2"]
    async with playing(client, company):
        submitted = await Perdure(client).submit(ASKED, id=fresh)
        handle = client.get_workflow_handle(fresh)
        await waiting(handle)
        await handle.execute_update("reject", {"note": "show how it is called"})
        result = await submitted.delivery.result()
    assert (result.status, result.reason, company.shipped) == ("not_delivered", "blockers", [])
    assert result.message == f"nothing was pushed: {LEAK.summary}"
