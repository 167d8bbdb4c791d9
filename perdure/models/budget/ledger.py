"""Models of the cost of model replies: usage, spending, limits, and the limit that a request was stopped at. Unknown is
unknown, never zero."""

from __future__ import annotations

from perdure.models.base import HistoryModel


class Usage(HistoryModel):
    """Tokens of one or more replies, and their price in US dollars; None when a model's price is not known.

    `cache_write_1h_tokens` are those of `cache_write_tokens` that were written for an hour, which costs more.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        prices_known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=round((self.cost_usd or 0) + (other.cost_usd or 0), 6) if prices_known else None,
        )

    def covers(self, other: Usage) -> bool:
        """Return True when this is at least as much as the other, in tokens, and in dollars as far as its own are
        known; what the other does not know this does not know better."""
        cheaper = self.cost_usd is not None and (other.cost_usd is None or self.cost_usd < other.cost_usd)
        return self.tokens >= other.tokens and not cheaper

    @property
    def prompt_tokens(self) -> int:
        """Return all tokens that were sent: new ones, those written to the cache and those read from it."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def tokens(self) -> int:
        """Return all tokens as a limit counts them: sent and received together, cached ones too."""
        return self.prompt_tokens + self.output_tokens


class Spend(HistoryModel):
    """The spending of a delivery so far, over all its runs, as its spend log has it.

    `usd` is the sum of settled replies; None when a price is not known: `known_usd` is then the sum of the others.
    `at_risk_usd` is the upper bound of requests that were sent and never settled (a worker died while the reply
    came in). `tokens` and `at_risk_tokens` are the same in tokens, read and written; 0 where nobody wrote them down.
    """

    usd: float | None = 0.0
    at_risk_usd: float = 0.0
    known_usd: float = 0.0
    tokens: int = 0
    at_risk_tokens: int = 0

    @property
    def counted_usd(self) -> float:
        """Return the dollars that count against a budget: money at risk does, and one unknown price hides no other."""
        return (self.known_usd if self.usd is None else self.usd) + self.at_risk_usd


class SpendingLimits(HistoryModel):
    """The most that a delivery may have paid in all, over all its runs, when an agent wants to send a request.

    usd       dollars, those at risk counted
    day_usd   the same under its budgets of the day, as far as they are reserved; None: it is under none
    tokens    sent and received; 0: no limit
    unpriced  a request whose price is not known may be sent
    """

    usd: float
    day_usd: float | None = None
    tokens: int = 0
    unpriced: bool = False


class LimitReached(HistoryModel):
    """A limit that a request could have exceeded, so that it was not sent.

    limit   its name; reason: what is spent and what the request may cost, in one line
    spend   what was paid until then
    usd     the most that this request can cost; None: not known
    """

    limit: str
    reason: str
    spend: Spend
    usd: float | None = None
