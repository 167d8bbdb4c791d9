from __future__ import annotations

import pytest

from perdure.adapters.agents.prices import WINDOW_TOKENS, max_cost, usage_cost, window_of
from perdure.models.budget.ledger import Usage


def test_an_unknown_model_costs_unknown_and_never_zero() -> None:
    assert usage_cost("my-gateway/llama", Usage(input_tokens=1000)) is None
    assert max_cost("my-gateway/llama", 1000, 1000) is None


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("claude-sonnet-5-5", True),
        ("claude-sonnet-5-5-20261104", True),
        ("claude-sonnet-5-50", False),
        ("claude-sonnet-5-5-latest", False),
        ("claude-sonnet-5", False),
        ("CLAUDE-SONNET-5-5", False),
    ],
)
def test_a_model_is_priced_by_its_exact_name_or_with_a_date(model: str, known: bool) -> None:
    assert (usage_cost(model, Usage(input_tokens=1)) is not None) is known


def test_every_kind_of_token_has_its_own_price() -> None:
    usage = Usage(
        input_tokens=1_000_000, cache_read_tokens=1_000_000, cache_write_tokens=1_000_000, output_tokens=1_000_000
    )
    assert usage_cost("claude-opus-5-5", usage) == 4.00 + 0.20 + 5.00 + 20.00


def test_what_is_kept_for_an_hour_costs_more_to_write_than_what_is_kept_for_five_minutes() -> None:
    usage = Usage(cache_write_tokens=3_000_000, cache_write_1h_tokens=1_000_000)
    assert usage_cost("claude-opus-5-5", usage) == 2 * 5.00 + 8.00
    assert usage.prompt_tokens == 3_000_000, "part of what was written, not beside it"
    assert (usage + usage).cache_write_1h_tokens == 2_000_000
    worst = max_cost("claude-opus-5-5", prompt_bytes=2_000_000, max_tokens=0, hour=True)
    assert worst == usage_cost("claude-opus-5-5", Usage(cache_write_tokens=1_000_000, cache_write_1h_tokens=1_000_000))


def test_the_long_context_price_begins_above_the_whole_prompt_cached_parts_included() -> None:
    at = Usage(input_tokens=50_000, cache_read_tokens=50_000)
    above = Usage(input_tokens=50_001, cache_read_tokens=50_000)
    assert usage_cost("claude-haiku-5-5", at) == pytest.approx(0.05 * 0.10 + 0.05 * 0.01, abs=1e-6)
    assert usage_cost("claude-haiku-5-5", above) == pytest.approx(0.050001 * 0.50 + 0.05 * 0.05, abs=1e-6)


def test_the_worst_price_is_above_what_the_same_text_would_really_cost() -> None:
    worst = max_cost("claude-sonnet-5-5", prompt_bytes=40_000, max_tokens=16_000)
    real = usage_cost("claude-sonnet-5-5", Usage(cache_write_tokens=10_000, output_tokens=16_000))
    assert worst is not None
    assert real is not None
    assert worst > real


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("claude-sonnet-5-5", 1_000_000), ("claude-haiku-5-5-20261007", 1_000_000), ("a-gateways", WINDOW_TOKENS)],
)
def test_a_window_is_the_models_own_and_a_safe_one_where_it_is_not_known(model: str, tokens: int) -> None:
    assert window_of(model) == tokens
