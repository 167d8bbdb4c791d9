"""Turns end: at the step's limit, at the budget, at the time limit, and where the agent itself ends them."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.phases import Phase
from tests.deliveries import Script, playing
from tests.waiting import patient

BUILD = {"repository": "/r", "request": "Add sub", "phases": ["build"]}


async def deliver(client: Client, script: Script, id: str, **settings: object) -> DeliveryResult:
    script.phases, script.settings = (Phase.BUILD,), settings
    async with playing(client, script):
        submitted = await Perdure(client).submit(BUILD, id=id)
        return await submitted.delivery.result()


def steps(result: DeliveryResult) -> list[tuple[str, str]]:
    return [(step.step, step.status) for step in result.steps]


async def test_a_step_that_does_not_end_is_ended_at_its_turn_limit(client: Client, script: Script, fresh: str) -> None:
    result = await deliver(client, script, fresh, turns_per_step=3)
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert [(work.turn, work.checkpoint) for work in script.seen] == [(1, "c0"), (2, "c1"), (3, "c2")]
    assert steps(result) == [("prepare", "done"), ("implement", "failed")]
    assert result.steps[-1].turns == 3
    assert result.steps[-1].cost_usd == 0.3


async def test_no_turn_begins_when_the_budget_is_spent(client: Client, script: Script, fresh: str) -> None:
    result = await deliver(client, script, fresh, budget_usd=0.25)
    assert (result.reason, result.message) == ("budget", "$0.30 of $0.25 are spent")
    assert len(script.seen) == 3
    assert steps(result)[-1] == ("implement", "failed")


async def test_money_at_risk_and_money_known_count_where_a_price_is_not_known(
    client: Client, script: Script, fresh: str
) -> None:
    async def unknown(work: TurnInput) -> TurnResult:
        spend = Spend(usd=None, known_usd=0.2, at_risk_usd=0.1)
        return TurnResult(checkpoint="c", summary="goes on", usage=Usage(cost_usd=None), spend=spend)

    script.turn = unknown
    result = await deliver(client, script, fresh, budget_usd=0.3)
    assert (result.reason, len(script.seen)) == ("budget", 1)
    assert result.steps[-1].cost_usd is None, "an unknown price is no zero"


async def test_a_delivery_whose_time_is_over_says_so_and_leaves_no_step_running(
    client: Client, script: Script, fresh: str
) -> None:
    async def slow(work: TurnInput) -> TurnResult:
        await asyncio.sleep(0.4)
        return await script.endless(work)

    script.turn = slow
    result = await deliver(client, script, fresh, time_s=1.0)
    assert result.reason == "limits"
    assert "time limit" in result.message
    assert steps(result)[-1] == ("implement", "failed")


@pytest.mark.parametrize(("ending", "reason"), [(Ending.REFUSED, "refused"), (Ending.LOOPING, "limits")])
async def test_an_agent_that_ends_badly_ends_the_delivery(
    client: Client, script: Script, fresh: str, ending: Ending, reason: str
) -> None:
    async def ends(work: TurnInput) -> TurnResult:
        return TurnResult(checkpoint="c", summary="", outcome=Outcome(ending=ending, summary="why"))

    script.turn = ends
    result = await deliver(client, script, fresh)
    assert result.reason == reason
    assert result.message.endswith(": why")


async def test_a_final_failure_of_an_activity_is_the_deliverys_reason(
    client: Client, script: Script, fresh: str
) -> None:
    async def fails(work: TurnInput) -> TurnResult:
        raise ApplicationError("no key", type="ModelRefusesUs", non_retryable=True)

    script.turn = fails
    result = await deliver(client, script, fresh)
    assert (result.reason, result.message) == ("refused", "no key")
    assert result.next[-1] == f"perdure retry {fresh}"


async def test_a_retry_goes_on_within_the_step_that_was_cut_off(
    client: Client, script: Script, fresh: str, perdure: Perdure
) -> None:
    await deliver(client, script, fresh, turns_per_step=2)
    script.settings = {"turns_per_step": 2}
    async with playing(client, script):
        delivery = await perdure.delivery(fresh).retry(budget_usd=3)
        result = await delivery.result()
    assert result.reason == "limits"
    assert [work.turn for work in script.seen] == [1, 2, 3, 4]
    assert script.seen[2].checkpoint == "c2"
    assert (await delivery.request())["budget_usd"] == 3


async def test_a_tidying_up_that_fails_costs_nobody_the_result(client: Client, script: Script, fresh: str) -> None:
    script.closes = False
    result = await deliver(client, script, fresh, turns_per_step=1)
    assert result.reason == "limits"
    assert result.usage.cost_usd == 0.1


async def test_the_list_shows_phase_status_branch_and_cost_where_the_server_has_the_attributes(
    client: Client, script: Script, fresh: str, perdure: Perdure
) -> None:
    script.spend = Spend(usd=0.1234)
    await deliver(client, script, fresh, turns_per_step=1, attributes=True)
    async with asyncio.timeout(patient(15)):
        while not (listed := await perdure.list(query=f"WorkflowId = '{fresh}' AND PerdureStatus = 'not_delivered'")):
            await asyncio.sleep(0.1)
    assert (listed[0].repository, listed[0].phase, listed[0].cost_usd) == ("/r", "build", 0.1234)


async def test_a_step_of_one_activity_that_fails_is_recorded_as_failed(
    client: Client, script: Script, fresh: str
) -> None:
    result = await deliver(client, script, fresh, fails="SetupFailed")
    assert (result.reason, steps(result)) == ("setup_failed", [("prepare", "failed")])
