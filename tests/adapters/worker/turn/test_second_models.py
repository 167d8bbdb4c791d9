"""The model of a step: the second one, its summary of a full conversation, and what it missed in its cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from turn_fixtures import DELIVERY, Bench, vault, working

from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.agents.builtin.opening import COMPACT_TURNS
from perdure.adapters.agents.prices import PRICES
from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.worker.turn import builtin_agent, paid_replies
from perdure.adapters.worker.turn.builtin_agent import COMPACTING, MISS_TOKENS, SUMMED_UP, cache_miss_reason
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.turn import Contract, Ending, TurnResult
from perdure.models.errors import ModelUnavailable
from tests.adapters.agents.builtin.replies import reply, text

FIRST, SECOND = "claude-sonnet-5-5", "claude-opus-5-5"

AWAY = f"""
[[line]]
step = "implement"
model = "{FIRST}"
fault = "{{fault}}"
times = 99
"""

SAYS = f"""
[[line]]
step = "implement"
model = "{SECOND}"
say = "Add sub"
"""


@asynccontextmanager
async def bench(root: Path, fault: str, *, fallback: str | None = SECOND, then: str = SAYS) -> AsyncIterator[Bench]:
    config = "version = 1\n[setup]\ncommands = []\n"
    config += f'[steps.implement]\nfallback = "{fallback}"\n' if fallback else ""
    line = AWAY.format(fault=fault) + ("retry_after = 0.06\n" if fault.isdigit() else "")
    async with working(root, line + then, phases=("build",), config=config) as made:
        yield made


async def test_the_second_model_takes_over_a_refused_step_from_its_opening_and_each_is_priced_by_its_own_row(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, "refusal") as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        assert (refused.outcome, refused.model) == (None, SECOND)
        assert refused.summary == f"turn 1 · goes on with {SECOND}: the model refused (general_harms)"
        again = await made.take(made.work(1, made.prepared.checkpoint), host=made.again())
        assert (again.checkpoint, again.adopted, again.model) == (refused.checkpoint, True, SECOND)
        done = await made.take(made.work(2, refused.checkpoint))
        assert done.outcome is not None
        assert (done.outcome.ending, done.model) == (Ending.DONE, SECOND)
        first, then = made.rehearsal.calls
        assert first.body["messages"] == then.body["messages"], "the opening: nothing was done yet"
        for result, model in ((refused, FIRST), (done, SECOND)):
            assert result.usage.cost_usd == round(PRICES[model].cost_of(result.usage), 6) > 0
        total = made.host.spend_log(DELIVERY).total_spend()
        assert total.usd == pytest.approx((refused.usage.cost_usd or 0) + (done.usage.cost_usd or 0))


async def test_a_second_refusal_ends_the_step(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", then=AWAY.format(fault="refusal").replace(FIRST, SECOND)) as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        ended = await made.take(made.work(2, refused.checkpoint))
        assert ended.outcome is not None
        assert ended.outcome.ending is Ending.REFUSED


async def test_a_price_that_nobody_knows_is_no_reason_not_to_go_on(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", fallback="a-gateways", then=SAYS.replace(SECOND, "a-gateways")) as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        done = await made.take(made.work(2, refused.checkpoint))
        assert done.outcome is not None
        assert done.usage.cost_usd is None
        assert done.spend.usd is None


async def test_an_overload_is_waited_for_with_patience_and_then_the_second_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_replies, "PACE_WAIT_S", 0.3)
    async with bench(tmp_path, "529") as made:
        over = await made.take(made.work(1, made.prepared.checkpoint))
        assert (over.outcome, over.model, over.usage.tokens) == (None, SECOND, 0)
        assert over.summary == f"turn 1 · goes on with {SECOND}: its API is overloaded"
        assert over.waited_s >= 0.3, "the delivery's time does not run meanwhile"
        assert {call.outcome for call in made.rehearsal.calls} == {"529"}
        monkeypatch.undo()  # the key's pause holds for the second model, too
        done = await made.take(made.work(2, over.checkpoint))
        assert done.outcome is not None
        assert made.rehearsal.calls[-1].body["model"] == SECOND
        assert made.host.spend_log(DELIVERY).total_spend().at_risk_usd == 0


@pytest.mark.parametrize(("fault", "fallback"), [("429", SECOND), ("529", None)])
async def test_a_rate_limit_and_an_overload_without_a_second_model_are_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, fallback: str | None
) -> None:
    monkeypatch.setattr(paid_replies, "PACE_WAIT_S", 0.2)
    async with bench(tmp_path, fault, fallback=fallback) as made:
        with pytest.raises(ModelUnavailable, match="too little"):
            await made.take(made.work(1, made.prepared.checkpoint))


async def test_without_a_second_model_a_refusal_ends_the_step(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", fallback=None) as made:
        ended = await made.take(made.work(1, made.prepared.checkpoint))
        assert ended.outcome is not None
        assert ended.outcome.ending is Ending.REFUSED


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


async def test_each_turn_asks_about_the_one_before_it_and_nothing_is_missed(bench: Bench) -> None:
    checkpoint = bench.prepared.checkpoint
    for turn in (1, 2, 3):
        result = await bench.take(bench.work(turn, checkpoint))
        checkpoint = result.checkpoint
        assert "missed" not in result.summary
    asked = [call.body.get("diagnostics") for call in bench.rehearsal.calls]
    assert asked[0] is None
    assert all(one and one["previous_message_id"].startswith("msg_") for one in asked[1:])
    assert bench.rehearsal.report()["cache_misses"] == {}


async def test_a_changed_prompt_is_named_in_the_turns_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin_agent, "MISS_TOKENS", 0)
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    store = vault(bench)
    _, _, terms = store.get_artifact(DELIVERY, bench.prepared.contract).partition(b"\n")
    contract = Contract.model_validate_json(terms)
    other = contract.model_copy(update={"prompts": {"implement": "Work otherwise."}})
    changed = await asyncio.to_thread(bench.host.store_contract, store, other)
    second = await bench.take(bench.work(2, first.checkpoint).model_copy(update={"contract": changed}))
    assert second.summary.startswith("turn 2 · cache missed: system changed · ")
    assert bench.rehearsal.report()["cache_misses"] == {"system_changed": 1}


def answered(read: int, missed: str = "", size: int = MISS_TOKENS) -> Reply:
    return replace(reply(text("x")), usage=Usage(input_tokens=size - read, cache_read_tokens=read), missed=missed)


@pytest.mark.parametrize(
    ("said", "after", "words"),
    [
        (answered(0), "msg_1", "cache missed: expired"),
        (answered(0), None, ""),
        (answered(0, size=100), "msg_1", ""),
        (answered(MISS_TOKENS // 2), "msg_1", ""),
        (answered(10, "messages changed"), "msg_1", "cache missed: messages changed"),
    ],
)
def test_nothing_read_for_no_reason_of_ours_has_expired(said: Reply, after: str | None, words: str) -> None:
    assert cache_miss_reason(said, after) == words
