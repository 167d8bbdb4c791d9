"""A retry goes on with what the run before has bought: neither the review of the same tree nor its tokens twice."""

from __future__ import annotations

import pytest
from people_cast import WHOLE, Company
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from workflow_cast import playing

from perdure.client import Perdure
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Step
from perdure.models.result import DeliveryResult, TestsStatus

REFUSED = ApplicationError("no", type="ForgeRefused", non_retryable=True)


@pytest.fixture
def company() -> Company:
    company = Company()
    company.asks()
    company.verdicts, company.blockers = [], []
    return company


async def retried(client: Client, company: Company, id: str) -> tuple[DeliveryResult, DeliveryResult, list[Step]]:
    """How it ended, how its retry did, and the retry's turns."""
    async with playing(client, company):
        delivery = (await Perdure(client).submit(WHOLE, id=id)).delivery
        first = await delivery.result()
        company.seen.clear()
        await delivery.retry()
        return first, await delivery.result(), [work.step for work in company.seen]


async def test_a_retry_after_a_failure_in_ship_alone_buys_no_second_review_of_the_same_tree(
    client: Client, company: Company, fresh: str
) -> None:
    company.troubles = {"open_pull_request": [REFUSED]}
    first, second, turns = await retried(client, company, fresh)
    assert (first.reason, second.status) == ("forge_refused", "delivered")
    assert turns == []
    assert second.review == first.review
    assert second.review.report is not None


async def test_a_retry_whose_tests_are_red_now_has_the_mended_tree_reviewed(
    client: Client, company: Company, fresh: str
) -> None:
    company.troubles = {"open_pull_request": [REFUSED]}
    company.verdicts = [TestsStatus.GREEN, TestsStatus.RED]
    company.commits = ["h1", "h2"]
    _, second, turns = await retried(client, company, fresh)
    assert (second.status, second.head_sha) == ("delivered", "h2")
    assert turns == ["fix_tests", "review"]


async def test_tokens_and_dollars_of_a_result_are_those_of_all_runs(
    client: Client, company: Company, fresh: str
) -> None:
    company.spend, company.usage = (
        Spend(usd=0.9),
        Usage(input_tokens=5, cache_read_tokens=40, output_tokens=3, cost_usd=0.9),
    )
    company.troubles = {"open_pull_request": [REFUSED]}
    _, second, _ = await retried(client, company, fresh)
    usage = second.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.cost_usd) == (5, 40, 3, 0.9)
