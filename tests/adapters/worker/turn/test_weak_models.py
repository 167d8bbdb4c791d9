"""Turns of a model that says nothing, with all their parts: what it leaves half done is no delivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import DELIVERY, Bench, working

from perdure.adapters.agents.builtin.opening import COMPACTED
from perdure.adapters.worker.turn.builtin_agent import COMPACTING
from perdure.models.delivery.turn import Ending
from perdure.models.errors import ModelRefusesUs
from tests.engine import HAPPY
from tests.weak_models import call_block, in_order, stream, text_block, weak_server


async def test_half_a_function_and_empty_replies_end_the_step_by_name_and_each_reply_is_paid_once(bench: Bench) -> None:
    half = stream(call_block("bash", json.dumps({"command": "echo '# unfinished' >> calc.py"})), stop="tool_use")
    async with weak_server(in_order(half, stream())) as server:
        bench.environ["ANTHROPIC_BASE_URL"] = server.url
        bench.host = bench.again()
        results = await bench.take_step(fresh=True)
        assert len(server.bodies) == 4
    assert results[-1].outcome is not None
    assert results[-1].outcome.ending is Ending.FAILED
    assert "empty, 3 in a row" in results[-1].outcome.summary
    assert bench.host.spend_log(DELIVERY).count_repeats() == (0, 0)


async def test_a_price_nobody_knows_and_a_limit_that_was_lowered_are_known_before_anything_is_bought(
    tmp_path: Path,
) -> None:
    config = 'version = 1\n[steps.review]\nmodel = "gpt-bar"\n[steps.fix_landing]\nmodel = "gpt-baz"\n'
    config += '[delivery]\nfallback = "claude-opus-5-5-20261104"\n[steps.plan]\nfallback = "gpt-foo"\n'
    async with working(tmp_path, HAPPY, config=config, budget_usd=1000.0, tokens=10) as bench:
        assert bench.prepared.agents.unpriced == ("gpt-bar", "gpt-foo")
        assert "$100.00 instead of $1,000.00: the most on this host" in bench.prepared.summary
        limits = bench.prepared.limits
        assert (limits.budget_usd, limits.most_usd, limits.most_tokens, limits.most_time_s) == (100, 100, None, 86400)


async def test_an_error_about_the_context_begins_the_conversation_anew_and_where_that_is_short_it_is_the_end(
    bench: Bench,
) -> None:
    """A server with room for one exchange; then one without room for any."""
    call = stream(call_block("bash", json.dumps({"command": "echo '# more' >> calc.py"})), stop="tool_use")
    full = (400, b'{"error": {"message": "the request exceeds the available context size (4096 tokens)"}}')

    def answer(body: dict[str, Any]) -> str | tuple[int, bytes]:
        replies = sum(message["role"] == "assistant" for message in body["messages"])
        begun_anew = COMPACTED in json.dumps(body["messages"][0])
        return stream(text_block("Add sub")) if begun_anew else call if replies < 2 else full

    async with weak_server(answer) as server:
        bench.environ["ANTHROPIC_BASE_URL"] = server.url
        bench.host = bench.again()
        results = await bench.take_step(fresh=False)
        assert [result.outcome is not None for result in results] == [False, False, False, True]
        assert COMPACTING in results[2].summary
        assert results[-1].outcome is not None
        assert results[-1].outcome.summary == "Add sub"
    async with weak_server(lambda body: full) as server:
        bench.environ["ANTHROPIC_BASE_URL"] = server.url
        with pytest.raises(ModelRefusesUs, match=r"\[steps.implement\]"):
            await bench.take(bench.work(1, bench.prepared.checkpoint), host=bench.again(), run="run-2")
        assert len(server.bodies) == 1
