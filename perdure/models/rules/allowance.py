"""The money, tokens and time a delivery may still spend: pure decisions over its state, for the workflow before each
step and turn, and for the worker before it lets a request of an agent, built-in or CLI, reach a model. Unknown is
unknown, never zero."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from math import inf

from perdure.models.budget.ledger import Spend, SpendingLimits, Usage
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.work import PreparedWorkspace
from perdure.text import format_money


class Limit(StrEnum):
    """A limit of a delivery that can be reached: its dollars, tokens or time, a price nobody knows, a budget of the
    day."""

    USD = "usd"
    TOKENS = "tokens"
    TIME = "time"
    PRICE = "price"
    DAY = "day"


def budget_usd(state: DeliveryState, prepared: PreparedWorkspace) -> float:
    """Return the delivery's budget in dollars, with what people have added to it: at most that of its host."""
    total_usd, most_usd = prepared.limits.budget_usd + state.budget.extra_usd, prepared.limits.most_usd
    return total_usd if most_usd is None else min(total_usd, most_usd)


def paid_usd(state: DeliveryState) -> float:
    """Return the dollars paid over all runs, with those that replies of unknown outcome may have cost. Of the spend log
    and the recorded usage the larger sum counts; what has no known price adds nothing."""
    return max(
        state.spending.spend.counted_usd, (state.spending.usage.cost_usd or 0.0) + state.spending.spend.at_risk_usd
    )


def used_tokens(usage: Usage, spend: Spend) -> int:
    """Return the tokens used over all runs, with those that replies of unknown outcome may have used.

    Of `usage` and the spend log the larger one counts, so that a rewind or a retry does not make any forgotten.
    """
    return max(spend.tokens, usage.tokens) + spend.at_risk_tokens


def time_left(state: DeliveryState, prepared: PreparedWorkspace, since: datetime, now: datetime) -> timedelta:
    """Return what is left of the time limit, with what people have added, negative once it is over.

    since  when the limit began to run, moved on by every wait for a person, which so does not use it up
    """
    return timedelta(seconds=prepared.limits.time_s + state.budget.extra_time_s) - (now - since)


def time_over_reason(state: DeliveryState, prepared: PreparedWorkspace) -> str:
    """Return one line for people that says that the time limit is over, and how long it was."""
    return f"the time limit of {timedelta(seconds=prepared.limits.time_s + state.budget.extra_time_s)} is over"


def reached_limit(
    state: DeliveryState, prepared: PreparedWorkspace, since: datetime, now: datetime, *, paying: bool = True
) -> tuple[Limit, str] | None:
    """Return the limit that is reached, time first, then dollars, tokens and an unknown price, and the reason for
    people; None: the next piece of work may begin.

    paying  a model's reply comes next; False: a commit or a test run, which is free: only the time can refuse it

    When no person can be asked (`prepared.decisions.asks` False), work that costs nothing begins even when the time is
    over, because its own time limit ends it, and an unknown price is no limit.
    """
    if (prepared.decisions.asks or paying) and time_left(state, prepared, since, now) <= timedelta(0):
        return Limit.TIME, time_over_reason(state, prepared)
    if not paying:
        return None
    spend = state.spending.spend
    if round(paid_usd(state), 6) >= round(budget_usd(state, prepared), 6):
        return Limit.USD, f"{format_money(paid_usd(state), budget_usd(state, prepared))} are spent"
    used_token_count = used_tokens(state.spending.usage, spend)
    token_limit = prepared.limits.budget_tokens + state.budget.extra_tokens
    if prepared.limits.budget_tokens and used_token_count >= token_limit:
        return Limit.TOKENS, f"{used_token_count:,} of {token_limit:,} tokens are used"
    if not prepared.decisions.asks:
        return None
    if models := [model for model in prepared.agents.unpriced if model not in state.budget.unpriced_models]:
        return Limit.PRICE, f"the price of {', '.join(models)} is not known: what this costs cannot be counted"
    if not state.budget.unpriced and (spend.usd is None or state.spending.usage.cost_usd is None):
        return Limit.PRICE, "the price of a model is not known: what this costs cannot be counted"
    return None


def spending_limits(state: DeliveryState, prepared: PreparedWorkspace) -> SpendingLimits:
    """Return the most that the delivery may have paid in all when its agent sends a further request within a turn.

    `day_usd` is None when no shared budget covers it; `tokens` is 0 when there is no limit; `unpriced` says that
    requests of unknown price are allowed.
    """
    return SpendingLimits(
        usd=budget_usd(state, prepared),
        day_usd=state.budget.reservation.ceiling + state.children.usd if prepared.limits.shared_budgets else None,
        tokens=prepared.limits.budget_tokens + state.budget.extra_tokens if prepared.limits.budget_tokens else 0,
        unpriced=state.budget.unpriced or not prepared.decisions.asks,
    )


def day_limits_only(limits: SpendingLimits | None) -> SpendingLimits | None:
    """Return limits of which only the shared budget of the day is left; None when there are no limits, or none of a
    day.

    They are for a request that was decided on before: the delivery's own budget was checked then.
    """
    if limits is None or limits.day_usd is None:
        return None
    return SpendingLimits(usd=inf, day_usd=limits.day_usd, unpriced=True)


def exceeded_limit(limits: SpendingLimits, spend: Spend, usd: float | None, tokens: int) -> tuple[Limit, str] | None:
    """Return the limit that a request could exceed, and the reason for people; None: the limits cover it.

    spend   what was paid until now
    usd     the most that the request can cost; None: not known
    tokens  the most that it can send and receive

    A request without cost and tokens is always covered. Dollars of a day's budget were reserved before; for a model of
    unknown price none can be, so its request counts as 0 there.
    """
    if usd == 0.0 and not tokens:
        return None
    if limits.day_usd is not None and round(spend.counted_usd + (usd or 0.0), 6) > round(limits.day_usd, 6):
        reserved_usd = max(limits.day_usd - spend.counted_usd, 0.0)
        return (
            Limit.DAY,
            f"{format_money(reserved_usd)} are reserved of the day's budget, "
            f"and the next request may cost {format_money(usd, unknown='nobody knows what')}",
        )
    if usd is None and not limits.unpriced:
        return Limit.PRICE, "the price of a model is not known: what its next request costs cannot be counted"
    if round(spend.counted_usd + (usd or 0.0), 6) > round(limits.usd, 6):
        spent = f"{format_money(spend.counted_usd, limits.usd)} are spent"
        return (
            Limit.USD,
            f"{spent}, and the agent's next request may cost {format_money(usd, unknown='nobody knows what')}",
        )
    used_token_count = spend.tokens + spend.at_risk_tokens
    if limits.tokens and used_token_count + tokens > limits.tokens:
        return (
            Limit.TOKENS,
            f"{used_token_count:,} of {limits.tokens:,} tokens are used, and the next request may have {tokens:,}",
        )
    return None
