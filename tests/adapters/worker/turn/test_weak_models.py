"""Turns of a model that says nothing, with all their parts: what it leaves half done is no delivery."""

from __future__ import annotations

import json

from turn_fixtures import DELIVERY, Bench

from perdure.models.delivery.turn import Ending
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
