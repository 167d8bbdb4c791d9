"""What is sent is kept for an hour where a conversation waits longer than the cache lives by itself."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.agents.builtin.conversation import LONG_S, expects_long_wait, model_request_for
from perdure.adapters.agents.builtin.model import Model, max_cost_usd
from perdure.adapters.agents.builtin.model_request import ModelRequest
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.adapters.agents.builtin.replies import OPENING, use

CONTRACT = Contract(
    delivery="d", repository="r", request="q", base="main", base_sha="4", branch="b", config=RepositoryConfig(version=1)
)


def said(call: dict[str, Any]) -> list[dict[str, Any]]:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
    return [OPENING, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize(
    ("transcript", "tests_s", "long"),
    [
        ([OPENING], 0, False),
        ([OPENING], LONG_S, True),
        (said(use("bash", command="make")), LONG_S - 1, False),
        (said(use("bash", command="make", timeout=120)), 0, False),
        (said(use("bash", command="make", timeout=600)), 0, True),
        (said(use("bash", command="make", timeout="long")), 0, False),
        (said(use("ask", text="Which?")), 0, True),
        (said(use("assume", question="Which?")), 0, False),
    ],
)
def test_long_tests_long_commands_and_questions_to_people_are_long_waits(
    transcript: list[dict[str, Any]], tests_s: float, long: bool
) -> None:
    assert expects_long_wait(transcript, tests_s) is long


def marks(question: ModelRequest) -> set[str]:
    body = question.body()
    blocks = [*body["system"], *(block for message in body["messages"] for block in message["content"])]
    found = [body["cache_control"], *(block["cache_control"] for block in blocks if "cache_control" in block)]
    return {mark.get("ttl", "5m") for mark in found}


def test_then_every_mark_is_for_an_hour_and_the_most_it_can_cost_is_more() -> None:
    quick = model_request_for(Step.IMPLEMENT, CONTRACT, [OPENING], tests_s=10)
    slow = model_request_for(Step.IMPLEMENT, CONTRACT, [OPENING], tests_s=600)
    assert (marks(quick), marks(slow)) == ({"5m"}, {"1h"})
    below, above = max_cost_usd(quick), max_cost_usd(slow)
    assert below is not None
    assert above is not None
    assert above > below
    assert quick.key() != slow.key()


async def test_what_was_sent_is_still_there_after_ten_minutes_and_what_it_cost_to_keep_is_counted() -> None:
    now = 0.0
    transcript = [{"role": "user", "content": [{"type": "text", "text": "words " * 2000}]}]
    async with Rehearsal(Screenplay.parse('[[line]]\nsay = "Done."'), clock=lambda: now) as twin:
        model = Model("sk-rehearsal-0123456789", twin.url)
        for tests_s, kept in ((600.0, True), (0.0, False)):
            question = model_request_for(Step.FIX_TESTS, CONTRACT, transcript, tests_s=tests_s)
            now += 4000
            first = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
            now += 600
            second = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
            assert first.usage.cache_write_1h_tokens == (first.usage.cache_write_tokens if kept else 0)
            assert (second.usage.cache_read_tokens > 0) is kept
        await model.aclose()
