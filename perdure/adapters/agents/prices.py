"""The cost of a request by published list prices, and how many tokens each model takes; the cost of a model that is not
listed is unknown (None), never zero. Used by the built-in agent and by the proxy of the others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.models.budget.ledger import Usage

PRICES_OF = "2026-11-21"
"""The day this table was last compared with the list prices in the vendor's own command line (its version 2.1.330) and
with the published pages of the models; tests/adapters/agents/test_prices.py does the first again."""

WINDOWS_OF = "2026-11-23"
"""The day WINDOWS was last compared with the published pages of the models."""

WINDOW_TOKENS = 200_000
"""Tokens that a model has at least for prompt and reply together."""

WINDOWS = dict.fromkeys(
    ("claude-fable-5-1", "claude-opus-5-5", "claude-opus-5", "claude-sonnet-5-5", "claude-haiku-5-5"), 1_000_000
)
"""Tokens of prompt and reply together, by model."""

BYTES_PER_TOKEN = 2
"""Bytes of a prompt that count as a token: source code and prose have 2.5 to 4; fewer than this was not seen."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens; `cache_write` for 5 minutes, `cache_write_1h` for an hour. Beyond `limit` prompt
    tokens `above` holds."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float
    limit: int | None = None
    above: Price | None = None

    def tier_for(self, prompt_tokens: int) -> Price:
        """Return the price that holds for a prompt of this size (everything that was sent, cached or not)."""
        if self.limit is not None and self.above is not None and prompt_tokens > self.limit:
            return self.above
        return self

    def cost_of(self, usage: Usage) -> float:
        """Return what these tokens cost in US dollars, at the price for a prompt of their size."""
        tier = self.tier_for(usage.prompt_tokens)
        return (
            usage.input_tokens * tier.input
            + usage.cache_read_tokens * tier.cache_read
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * tier.cache_write
            + usage.cache_write_1h_tokens * tier.cache_write_1h
            + usage.output_tokens * tier.output
        ) / 1_000_000


_HAIKU_LONG = Price(input=0.50, output=2.50, cache_read=0.05, cache_write=0.625, cache_write_1h=1.00)
_FIVE_TWO = Price(input=8.00, output=40.00, cache_read=0.20, cache_write=10.00, cache_write_1h=16.00)

PRICES: dict[str, Price] = {
    "claude-fable-5-2": _FIVE_TWO,  # this and the next: in the command line's list, on no page that was found
    "claude-mythos-5-2": _FIVE_TWO,
    "claude-fable-5-1": Price(input=10.00, output=50.00, cache_read=0.25, cache_write=12.50, cache_write_1h=20.00),
    "claude-opus-5-5": Price(input=4.00, output=20.00, cache_read=0.20, cache_write=5.00, cache_write_1h=8.00),
    "claude-opus-5": Price(input=5.00, output=25.00, cache_read=0.50, cache_write=6.25, cache_write_1h=10.00),
    # Its page still had 0.20 for cache reads, the price before 7 October 2026; the command line counts 0.10.
    "claude-sonnet-5-5": Price(input=2.00, output=10.00, cache_read=0.10, cache_write=2.50, cache_write_1h=4.00),
    "claude-haiku-5-5": Price(
        input=0.10,
        output=0.50,
        cache_read=0.01,
        cache_write=0.125,
        cache_write_1h=0.20,
        limit=100_000,
        above=_HAIKU_LONG,
    ),
}

_DATED = re.compile(r"-20\d{6}")


def listed_price(model: str) -> Price | None:
    """Return the price of a model by its exact name, or by that name with a date suffix (`-20261104`); else None."""
    return PRICES.get(_without_date(model))


def window_of(model: str) -> int:
    """Return the tokens that prompt and reply of a model can have together; WINDOW_TOKENS of one that is not listed."""
    return WINDOWS.get(_without_date(model), WINDOW_TOKENS)


def _without_date(model: str) -> str:
    """Return a model's name without its date suffix."""
    return model[:-9] if _DATED.fullmatch(model[-9:]) else model


def usage_cost(model: str, usage: Usage) -> float | None:
    """Return what these tokens cost in US dollars; None when the model's price is not known."""
    model_price = listed_price(model)
    return None if model_price is None else round(model_price.cost_of(usage), 6)


def max_cost(model: str, prompt_bytes: int, max_tokens: int, *, hour: bool = False) -> float | None:
    """Return the most one request can cost, in US dollars: nothing cached before, all of it cached now, the reply as
    long as allowed. None when the model's price is not known.

    hour    what is cached is kept for an hour, not for five minutes
    """
    tokens = -(-prompt_bytes // BYTES_PER_TOKEN)
    usage = Usage(cache_write_tokens=tokens, cache_write_1h_tokens=tokens if hour else 0, output_tokens=max_tokens)
    return usage_cost(model, usage)
