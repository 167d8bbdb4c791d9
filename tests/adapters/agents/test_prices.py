"""Our price table, and the vendor's command line that is told what a reply used."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from perdure.adapters.agents.prices import PRICES, WINDOW_TOKENS, max_cost, usage_cost, window_of
from perdure.models.budget.ledger import Usage
from tests import needs


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


SHORT = Usage(
    input_tokens=1_009,
    cache_read_tokens=20_011,
    cache_write_tokens=7_001,
    cache_write_1h_tokens=4_003,
    output_tokens=503,
)
LONG = Usage(
    input_tokens=10_009,
    cache_read_tokens=200_003,
    cache_write_tokens=70_001,
    cache_write_1h_tokens=40_009,
    output_tokens=5_003,
)
"""Within and beyond the size from which a prompt costs more. Numbers that no exchange of two prices would hide."""

WITHIN_S = 60.0


def events(model: str, usage: Usage) -> bytes:
    tokens = {
        "input_tokens": usage.input_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_write_1h_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": tokens}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": tokens},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told).encode()


class Api:
    """A Messages API whose every reply says that it used `usage`."""

    usage = SHORT
    url = ""

    async def answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.Response(body=events(asked["model"], self.usage), content_type="text/event-stream")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.router.add_post("/v1/messages", api.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        api.url = f"http://{host}:{port}"
        yield api
    finally:
        await runner.cleanup()


async def counted(api: Api, model: str, home: Path) -> dict[str, Any]:
    """The command line's account of one prompt with one reply."""
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "sk-rehearsal",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    program = needs.find_program("claude")
    assert program is not None
    words = (program, "--bare", "-p", "Say done.", "--output-format", "json", "--model", model, "--max-turns", "1")
    process = await asyncio.create_subprocess_exec(
        *words, cwd=home, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.needs("claude")
@pytest.mark.parametrize("usage", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("model", sorted(PRICES))
async def test_a_reply_costs_what_the_vendors_own_command_line_counts_for_it(
    model: str, usage: Usage, api: Api, tmp_path: Path
) -> None:
    api.usage = usage
    found = await counted(api, model, tmp_path / "home")
    assert found["modelUsage"][model]["costBasis"] == "list", "its price for a model it does not know says nothing"
    assert found["total_cost_usd"] == pytest.approx(usage_cost(model, usage), abs=1e-6)
