"""A retry goes on with what the run before has bought: neither the review of the same tree nor its tokens twice."""

from __future__ import annotations

import pytest
from people_fixtures import WHOLE, Company
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import DeliveryResult, TestsStatus
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import TestVerdict
from perdure.models.phases import Step

REFUSED = ApplicationError("no", type="ForgeRefused", non_retryable=True)


@pytest.fixture
def company() -> Company:
    company = Company()
    company.asks()
    company.verdicts, company.blockers = [], []
    return company


async def retried(client: Client, company: Company, id: str) -> tuple[DeliveryResult, DeliveryResult, list[Step]]:
    """Its end, the end of its retry, and the retry's turns."""
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


class Breaking(Company):
    """The model goes away in this turn; what was asked there, in both runs, is `asked`."""

    def __init__(self, step: Step, attempt: int, turn: int) -> None:
        super().__init__()
        self.asks()
        self.there, self.away = (step, attempt, turn), True
        self.asked: list[TurnInput] = []
        self.turn, self.turns_each = self.goes_away, 3

    async def goes_away(self, work: TurnInput) -> TurnResult:
        if (work.step, work.attempt, work.turn) == self.there:
            self.asked.append(work.model_copy(update={"started_run_suffix": ""}))  # a rewind would be told by it
            if self.away:
                self.away = False
                raise ApplicationError("no credit", type="ModelRefusesUs", non_retryable=True)
        return await self.plays(work)

    def verdict(self, attempt: int) -> TestVerdict:
        """Of the newest commit. Another report each time, though it be about the same."""
        newest = str(len(self.commits))
        return super().verdict(attempt).model_copy(update={"report": f"r{attempt}", "fingerprint": newest})


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_retry_goes_on_in_the_middle_of_any_fix_of_the_tests(
    client: Client, fresh: str, attempt: int, turn: int
) -> None:
    """The very turn is asked for again, so its reply is found where it was bought."""
    company = Breaking(Step.FIX_TESTS, attempt, turn)
    red = [TestsStatus.RED] * attempt
    company.verdicts, company.blockers = [*red, red[-1], *[TestsStatus.RED] * (2 - attempt), TestsStatus.GREEN], []
    company.commits = ["h1", "h2", "h3"]
    first, second, turns = await retried(client, company, fresh)
    assert (first.reason, second.status) == ("refused", "delivered")
    assert len(company.asked) == 2
    assert company.asked[0] == company.asked[1]
    fixed = [(work.attempt, work.turn) for work in company.seen if work.step is Step.FIX_TESTS]
    assert fixed == [(a, t) for a in (1, 2) for t in (1, 2, 3) if (a, t) >= (attempt, turn)]
    assert turns[-1] == "review"


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_retry_goes_on_in_the_middle_of_the_second_fix_of_the_review(
    client: Client, fresh: str, turn: int
) -> None:
    company = Breaking(Step.FIX_REVIEW, 2, turn)
    company.verdicts, company.blockers = [], [1, 1, 0]
    company.commits = ["h1", "h2", "h3"]
    first, second, _ = await retried(client, company, fresh)
    assert (first.reason, second.status) == ("refused", "delivered")
    assert len(company.asked) == 2
    assert company.asked[0] == company.asked[1]
    fixed = [(work.attempt, work.turn) for work in company.seen if work.step is Step.FIX_REVIEW]
    assert fixed == [(2, turn) for turn in range(turn, 4)]


async def test_fixes_of_a_retry_are_numbered_on_and_as_many_as_if_there_had_been_none_before(
    client: Client, company: Company, fresh: str
) -> None:
    company.asks(test_fixes=2)
    company.verdicts = [TestsStatus.RED] * 6
    first, second, turns = await retried(client, company, fresh)
    assert (first.message, second.message) == ("tests are red after 2 fixes",) * 2
    fixed = [work.attempt for work in company.seen if work.step is Step.FIX_TESTS]
    assert (turns, fixed) == (["fix_tests", "fix_tests"], [3, 4])
