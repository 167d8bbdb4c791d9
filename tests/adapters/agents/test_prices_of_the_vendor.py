"""Our price table against the one inside the vendor's command line: it is told what a reply used, and says the cost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from perdure.adapters.agents.prices import PRICES, usage_cost
from perdure.models.budget.ledger import Usage
from tests import needs

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
