"""A turn that a request of its agent would have taken beyond a limit: asked for, and done again with more room."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_fixtures import Fleet, at_work, shared
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.budget.ledger import LimitReached, Spend, SpendingLimits
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from perdure.models.rules.allowance import exceeded_limit
from tests.deliveries import BUILT, ADelivery, Script

WORDS = "$0.05 of $0.10 are spent, and the agent's next request may cost $0.16"


def stopped(limit: str, words: str, spend: Spend) -> ApplicationError:
    reached = LimitReached(limit=limit, reason=words, spend=spend)
    return ApplicationError(words, reached, type="BudgetReached", non_retryable=True)


class Greedy(Script):
    """Its first turn asks for `upper` more than its own reply."""

    def __init__(self, **upper: Any) -> None:
        super().__init__()
        self.usd, self.tokens = upper.get("usd", 0.16), upper.get("tokens", 10)
        self.rooms: list[SpendingLimits | None] = []
        self.turn = self.asks_for_more

    async def asks_for_more(self, work: TurnInput) -> TurnResult:
        self.rooms.append(work.spending_limits)
        assert work.spending_limits is not None
        spend = Spend(usd=0.05, tokens=20)
        if (over := exceeded_limit(work.spending_limits, spend, self.usd, self.tokens)) is not None:
            raise stopped(*over, spend)
        return await self.plays(work)


@pytest.mark.parametrize(
    ("upper", "added", "limit"),
    [({}, {"usd": 1}, "usd"), ({"tokens": 100, "usd": 0.01}, {"tokens": 500}, "tokens"), ({"usd": None}, {}, "price")],
)
async def test_more_of_the_limit_is_asked_for_and_the_same_turn_is_done_with_it(
    a_delivery: ADelivery, upper: dict[str, Any], added: dict[str, Any], limit: str
) -> None:
    script = Greedy(**upper)
    async with a_delivery(Phase.BUILD, script=script, budget_usd=0.1, budget_tokens=100) as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.limit) == ("budget", limit)
        assert script.paid == 0
        update = "add_budget" if added else "approve"
        await delivery.update(update, of=asked.target, **added)
        assert (await delivery.ended()).status == "completed"
    before, after = script.rooms[:2]
    assert before == SpendingLimits(usd=0.1, tokens=100)
    changed = {"usd": 1.1, "tokens": 100} if limit == "usd" else {"usd": 0.1, "tokens": 600}
    assert after == (SpendingLimits(**changed) if added else SpendingLimits(usd=0.1, tokens=100, unpriced=True))


async def test_who_says_no_ends_it_and_where_nobody_is_asked_it_ends_by_itself(
    a_delivery: ADelivery, client: Client
) -> None:
    script = Greedy()
    async with a_delivery(Phase.BUILD, script=script, budget_usd=0.1) as delivery:
        await delivery.pending()
        await delivery.reject("no more")
        result = await delivery.ended()
        assert (result.status, result.reason, result.message) == (
            "not_delivered",
            "budget",
            f"{WORDS}; rejected: no more",
        )
        script.settings["asks"] = False
        alone = await (await Perdure(client).submit(BUILT, id=f"{delivery.id}-alone")).delivery.result()
        assert (alone.status, alone.reason, alone.message) == ("not_delivered", "budget", WORDS)


async def test_a_block_of_the_days_budget_that_is_used_up_within_a_turn_is_followed_by_the_next(
    client: Client, fresh: str
) -> None:
    """It begins a turn, pays all of its block in it, and asks for more."""
    fleet, rooms = Fleet(), list[float]()

    async def works(work: TurnInput) -> TurnResult:
        assert work.spending_limits is not None
        assert work.spending_limits.day_usd is not None
        rooms.append(work.spending_limits.day_usd)
        if len(rooms) < 3:
            fleet.paid[work.delivery] = work.spending_limits.day_usd
            raise stopped(
                "day", "what was reserved of the day's budget is spent", Spend(usd=work.spending_limits.day_usd)
            )
        return await fleet.works(work)

    fleet.turn, fleet.turns = works, 1
    async with shared(client, fleet, 5.0), at_work(client, fleet):
        result = await (await Perdure(client).submit(BUILT, id=fresh)).delivery.result()
    assert result.status == "completed"
    assert rooms == [0.5, 1.0, 1.5], "a tenth of the day's each time"
