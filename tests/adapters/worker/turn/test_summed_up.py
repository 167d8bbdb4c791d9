"""A full conversation begins anew with the model's summary, which is bought once, or without it where there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from turn_fixtures import DELIVERY, Bench, vault, working

from perdure.adapters.agents.builtin.opening import COMPACT_TURNS
from perdure.adapters.agents.prices import PRICES
from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.worker.turn.builtin_agent import COMPACTING, SUMMED_UP
from perdure.models.delivery.turn import Ending, TurnResult

SUMMARY = f"The screenplay sums {COMPACT_TURNS} replies up."

_TURN = """
[[line]]
step = "implement"
turn = {n}
lacks = ["replies up", "What you did last"]
use = [{{ tool = "bash", input = {{ command = "echo {n} >> notes.txt" }} }}]
"""

PLAYS = (
    "".join(_TURN.format(n=n) for n in range(1, COMPACT_TURNS + 1))
    + """
[[line]]
step = "implement"
say = "Add sub"
"""
)


@asynccontextmanager
async def full(root: Path, monkeypatch: pytest.MonkeyPatch, head: str = "") -> AsyncIterator[tuple[Bench, TurnResult]]:
    """A bench and the last turn before the conversation is made shorter."""
    monkeypatch.setenv("PERDURE_MODEL_WINDOW", "1000")
    config = "version = 1\n[setup]\ncommands = []\n"
    async with working(root, head + PLAYS, phases=("build",), config=config) as made:
        checkpoint = made.prepared.checkpoint
        for turn in range(1, COMPACT_TURNS + 1):
            result = await made.take(made.work(turn, checkpoint))
            checkpoint = result.checkpoint
        yield made, result


async def test_the_models_summary_stands_in_place_of_the_turns_and_is_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with full(tmp_path, monkeypatch) as (made, before):
        anew = await made.take(made.work(COMPACT_TURNS + 1, before.checkpoint))
        assert (anew.outcome, anew.summary) == (None, f"turn {COMPACT_TURNS + 1} · {SUMMED_UP}")
        call = made.rehearsal.calls[-1]
        assert call.body["compaction"] == {"type": "summarize"}
        assert anew.usage.cache_read_tokens >= before.usage.cache_read_tokens > 0, "it is sent as the turns were"
        price = PRICES[call.body["model"]].cost_of(anew.usage)
        assert anew.usage.cost_usd == round(price, 6) > 0
        asked = len(made.rehearsal.calls)
        again = await made.take(made.work(COMPACT_TURNS + 1, before.checkpoint), run="run-1", host=made.again())
        assert (again.checkpoint, len(made.rehearsal.calls)) == (anew.checkpoint, asked)
        [message] = read_transcript(vault(made), anew.checkpoint)
        words = [block["text"] for block in message["content"]]
        assert any(SUMMARY in text for text in words)
        assert any("+8" in text for text in words), "the diff"
        assert not any("What you did last" in text for text in words)
        done = await made.take(made.work(COMPACT_TURNS + 2, anew.checkpoint))
        assert done.outcome is not None
        assert done.outcome.ending is Ending.DONE
        assert "compaction" not in made.rehearsal.calls[-1].body
        assert made.host.spend_log(DELIVERY).count_repeats() == (0, 0)


async def test_an_api_without_summaries_costs_nothing_and_the_turns_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with full(tmp_path, monkeypatch, "sums_up = false\n") as (made, before):
        anew = await made.take(made.work(COMPACT_TURNS + 1, before.checkpoint))
        assert (anew.outcome, anew.summary) == (None, f"turn {COMPACT_TURNS + 1} · {COMPACTING}")
        assert made.rehearsal.calls[-1].status == 400
        assert (anew.usage.tokens, made.host.spend_log(DELIVERY).total_spend().at_risk_usd) == (0, 0)
        [message] = read_transcript(vault(made), anew.checkpoint)
        assert any("What you did last" in block["text"] for block in message["content"])
