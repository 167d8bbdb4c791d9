"""The rest a delivery may still spend: pure decisions over its state. Unknown is unknown, never zero."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from math import inf

from perdure.models.ledger import Room, Spend, Usage
from perdure.models.state import DeliveryState
from perdure.models.webui.details import dollars
from perdure.models.work import Prepared


class Limit(StrEnum):
    USD = "usd"
    TOKENS = "tokens"
    TIME = "time"
    PRICE = "price"
    DAY = "day"


def budget_usd(state: DeliveryState, prepared: Prepared) -> float:
    return prepared.budget_usd + state.extra_usd


def paid(state: DeliveryState) -> float:
    """Dollars, over all runs: money at risk counts, and one unknown price hides no other."""
    return max(state.spend.paid, (state.usage.cost_usd or 0.0) + state.spend.at_risk_usd)


def used_tokens(usage: Usage, spend: Spend) -> int:
    """Over all runs, as far as the spend log knows them: a rewind or a retry forgets none; tokens at risk count."""
    return max(spend.tokens, usage.tokens) + spend.at_risk_tokens


def time_left(state: DeliveryState, prepared: Prepared, since: datetime, now: datetime) -> timedelta:
    """Of the limit, which waiting for people does not use up. `since`: when it began to run."""
    return timedelta(seconds=prepared.time_s + state.extra_time_s) - (now - since)


def time_over(state: DeliveryState, prepared: Prepared) -> str:
    return f"the time limit of {timedelta(seconds=prepared.time_s + state.extra_time_s)} is over"


def breach(
    state: DeliveryState, prepared: Prepared, since: datetime, now: datetime, *, paying: bool = True
) -> tuple[Limit, str] | None:
    """Return the limit that is reached, and that in words; None while there is room for what comes next.

    paying  a model's reply comes next: a commit or a test run costs nothing, and is kept from nobody for money

    Where nobody is asked, what costs nothing begins all the same, and its own time limit ends it.
    """
    if (prepared.asks or paying) and time_left(state, prepared, since, now) <= timedelta(0):
        return Limit.TIME, time_over(state, prepared)
    if not paying:
        return None
    spend = state.spend
    if round(paid(state), 6) >= round(budget_usd(state, prepared), 6):
        return Limit.USD, f"${paid(state):.2f} of {dollars(budget_usd(state, prepared))} are spent"
    used = used_tokens(state.usage, spend)
    most = prepared.budget_tokens + state.extra_tokens
    if prepared.budget_tokens and used >= most:
        return Limit.TOKENS, f"{used:,} of {most:,} tokens are used"
    if prepared.asks and not state.unpriced and (spend.usd is None or state.usage.cost_usd is None):
        return Limit.PRICE, "the price of a model is not known: what this costs cannot be counted"
    return None


def room(state: DeliveryState, prepared: Prepared) -> Room:
    """The most that a turn may pay for beyond the reply that it was begun for."""
    return Room(
        usd=budget_usd(state, prepared),
        day_usd=state.purse.ceiling + state.tasks_usd if prepared.treasury else None,
        tokens=prepared.budget_tokens + state.extra_tokens if prepared.budget_tokens else 0,
        unpriced=state.unpriced or not prepared.asks,
    )


def of_the_day(room: Room | None) -> Room | None:
    """The room for a request that was decided before: only the day's budgets have to cover it."""
    if room is None or room.day_usd is None:
        return None
    return Room(usd=inf, day_usd=room.day_usd, unpriced=True)


def beyond(room: Room, spend: Spend, usd: float | None, tokens: int) -> tuple[Limit, str] | None:
    """Return the limit that a request of at most so many dollars (None: not known) and tokens could go beyond, and that
    in words; None where it is covered.

    What it may cost of a day's budget was reserved before; of a model whose price is not known nothing can be.
    """
    if usd == 0.0 and not tokens:
        return None
    if room.day_usd is not None and round(spend.paid + (usd or 0.0), 6) > round(room.day_usd, 6):
        rest, most = max(room.day_usd - spend.paid, 0.0), usd or 0.0
        return Limit.DAY, f"${rest:.2f} are reserved of the day's budget, and the next request may cost ${most:.2f}"
    if usd is None and not room.unpriced:
        return Limit.PRICE, "the price of a model is not known: what its next request costs cannot be counted"
    if round(spend.paid + (usd or 0.0), 6) > round(room.usd, 6):
        spent = f"${spend.paid:.2f} of {dollars(room.usd)} are spent"
        return Limit.USD, f"{spent}, and the agent's next request may cost ${usd or 0.0:.2f}"
    used = spend.tokens + spend.at_risk_tokens
    if room.tokens and used + tokens > room.tokens:
        return Limit.TOKENS, f"{used:,} of {room.tokens:,} tokens are used, and the next request may have {tokens:,}"
    return None
