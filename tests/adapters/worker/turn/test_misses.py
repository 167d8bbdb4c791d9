"""A miss of the model's cache in the middle of a conversation is named, with its reason, in the turn's own line."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from turn_fixtures import DELIVERY, Bench, vault

from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.worker.turn import builtin_agent
from perdure.adapters.worker.turn.builtin_agent import MISS_TOKENS, cache_miss_reason
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.turn import Contract
from tests.adapters.agents.builtin.replies import reply, text


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
