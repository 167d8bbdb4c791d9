"""The cost of a request by published list prices; that of a model not listed is "unknown", never zero."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.models.ledger import Usage

PRICES_OF = "2026-11-21"
"""The day this table was last compared with the published prices."""

BYTES_PER_TOKEN = 2
"""Source code and prose have 2.5 to 4 bytes a token; fewer bytes a token than this was not seen."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens; `cache_write` for 5 minutes. Beyond `limit` prompt tokens `above` holds."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    limit: int | None = None
    above: Price | None = None

    def at(self, prompt_tokens: int) -> Price:
        """The price that holds for a prompt of this size (everything that was sent, cached or not)."""
        if self.limit is not None and self.above is not None and prompt_tokens > self.limit:
            return self.above
        return self

    def of(self, usage: Usage) -> float:
        tier = self.at(usage.prompt_tokens)
        return (
            usage.input_tokens * tier.input
            + usage.cache_read_tokens * tier.cache_read
            + usage.cache_write_tokens * tier.cache_write
            + usage.output_tokens * tier.output
        ) / 1_000_000


# The long-context tier is published for input and output; its cache prices follow the same factor of five.
_HAIKU_LONG = Price(input=0.50, output=2.50, cache_read=0.05, cache_write=0.625)

PRICES: dict[str, Price] = {
    "claude-fable-5-1": Price(input=10.00, output=50.00, cache_read=1.00, cache_write=12.50),
    "claude-opus-5-5": Price(input=4.00, output=20.00, cache_read=0.20, cache_write=5.00),
    # Cache reads may have become cheaper (0.10) in October 2026, by one source only: the higher price is kept.
    "claude-sonnet-5-5": Price(input=2.00, output=10.00, cache_read=0.20, cache_write=2.50),
    "claude-haiku-5-5": Price(
        input=0.10, output=0.50, cache_read=0.01, cache_write=0.125, limit=100_000, above=_HAIKU_LONG
    ),
}

_DATED = re.compile(r"-20\d{6}")


def listed(model: str) -> Price | None:
    """The price of a model by its exact name, or by that name with a date suffix (`-20261104`); else None."""
    if model in PRICES:
        return PRICES[model]
    name, suffix = model[:-9], model[-9:]
    return PRICES.get(name) if _DATED.fullmatch(suffix) else None


def price(model: str, usage: Usage) -> float | None:
    """Return what these tokens cost in US dollars; None when the model's price is not known."""
    found = listed(model)
    return None if found is None else round(found.of(usage), 6)


def worst_price(model: str, prompt_bytes: int, max_tokens: int) -> float | None:
    """The most one request can cost: nothing cached before, all of it cached now, the reply as long as allowed."""
    tokens = -(-prompt_bytes // BYTES_PER_TOKEN)
    return price(model, Usage(cache_write_tokens=tokens, output_tokens=max_tokens))
