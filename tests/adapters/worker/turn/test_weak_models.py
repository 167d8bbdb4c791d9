"""Turns of a model that says nothing, with all their parts: what it leaves half done is no delivery."""

from __future__ import annotations

import json
from pathlib import Path

from turn_fixtures import DELIVERY, Bench, working

from perdure.models.delivery.turn import Ending
from tests.engine import HAPPY
from tests.weak_models import call_block, in_order, stream, weak_server


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
