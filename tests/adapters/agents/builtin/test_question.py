from __future__ import annotations

import base64
import dataclasses
import json
import struct
from typing import Any

import pytest

from perdure.adapters.agents.builtin.model import ModelRequest, Reply, max_cost_usd, max_total_tokens
from perdure.models.budget.ledger import Usage

QUESTION = ModelRequest(
    model="claude-sonnet-5-5",
    max_tokens=1000,
    effort=None,
    system="Step: implement",
    tools=(),
    messages=({"role": "user", "content": [{"type": "text", "text": "hello"}]},),
    schema=None,
)


def conversation(turns: int, calls: int = 1) -> tuple[dict[str, Any], ...]:
    """`turns` replies with tool calls and their results, after an opening."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "opening"}]}]
    for turn in range(turns):
        ids = [f"toolu_{turn}_{call}" for call in range(calls)]
        uses = [{"type": "tool_use", "id": i, "name": "bash", "input": {"command": i}} for i in ids]
        results = [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ids]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    return tuple(messages)


def sent(question: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(question.body())
    return body


def marks(body: dict[str, Any]) -> int:
    return json.dumps(body).count('"cache_control"')


@pytest.mark.parametrize(("turns", "expected"), [(0, 2), (1, 3), (2, 4), (30, 4)])
def test_a_request_never_has_more_than_four_cache_marks(turns: int, expected: int) -> None:
    assert marks(sent(dataclasses.replace(QUESTION, messages=conversation(turns, calls=12)))) == expected


def test_the_previous_two_user_messages_are_marked_at_their_last_block() -> None:
    messages = sent(dataclasses.replace(QUESTION, messages=conversation(4, calls=3)))["messages"]
    marked = [
        (i, j) for i, m in enumerate(messages) for j, block in enumerate(m["content"]) if "cache_control" in block
    ]
    assert marked == [(4, 2), (6, 2)]


def test_marks_are_made_for_the_request_and_never_reach_the_transcript() -> None:
    messages = conversation(5)
    before = json.dumps(messages)
    dataclasses.replace(QUESTION, messages=messages).body()
    assert json.dumps(messages) == before


def test_a_transcript_that_was_stored_with_other_key_order_asks_the_same_bytes() -> None:
    stored = tuple(json.loads(json.dumps(message, sort_keys=True)) for message in conversation(3))
    one, two = (dataclasses.replace(QUESTION, messages=m) for m in (conversation(3), stored))
    assert one.body() == two.body()
    assert one.key() == two.key()


def test_the_key_changes_with_everything_that_is_asked() -> None:
    others = [
        dataclasses.replace(QUESTION, model="claude-opus-5-5"),
        dataclasses.replace(QUESTION, max_tokens=1001),
        dataclasses.replace(QUESTION, effort="high"),
        dataclasses.replace(QUESTION, system="Step: plan"),
        dataclasses.replace(QUESTION, tools=({"name": "bash", "input_schema": {"type": "object"}},)),
        dataclasses.replace(QUESTION, messages=conversation(1)),
        dataclasses.replace(QUESTION, schema={"type": "object"}),
    ]
    assert len({question.key() for question in (QUESTION, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("claude-opus-5-5", True),
        ("claude-haiku-5-5", True),
        ("claude-fable-5-1", True),
        ("claude-sonnet-4-6", True),
        ("claude-opus-4-7-20260416", True),
        ("claude-sonnet-4-5", False),
        ("claude-haiku-4-5-20251001", False),
        ("gateway/claude-opus-5-5", False),
    ],
)
def test_only_models_that_take_adaptive_thinking_are_asked_for_it(model: str, thinks: bool) -> None:
    body = sent(dataclasses.replace(QUESTION, model=model))
    assert body.get("thinking") == ({"type": "adaptive", "display": "summarized"} if thinks else None)


def test_empty_texts_and_messages_that_the_api_sent_are_not_sent_back_to_it() -> None:
    replies = (
        {"role": "assistant", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "again"}]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "yes"}]},
        {"role": "user", "content": [{"type": "text", "text": "more"}]},
    )
    messages = sent(dataclasses.replace(QUESTION, messages=(*QUESTION.messages, *replies)))["messages"]
    assert [block["text"] for message in messages for block in message["content"]] == [
        "hello", "(no answer)", "again", "yes", "more",
    ]  # fmt: skip


def test_a_reply_survives_storage_byte_for_byte() -> None:
    thinking = {"type": "thinking", "thinking": "hm – ü", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "edit", "input": {"z": 1, "a": None}}
    reply = Reply(
        message={"role": "assistant", "content": [thinking, use]},
        stop_reason="tool_use",
        model="claude-sonnet-5-5",
        usage=Usage(input_tokens=3, cost_usd=None),
        request_id="req_1",
    )
    data = reply.to_json()
    assert Reply.from_json(data) == reply
    assert Reply.from_json(data).to_json() == data


def test_half_a_stored_reply_is_not_a_reply() -> None:
    data = Reply({"role": "assistant", "content": []}, "end_turn", "m", Usage()).to_json()
    with pytest.raises((ValueError, KeyError)):
        Reply.from_json(data[:-5])


def test_the_upper_bound_grows_with_conversation_and_reply() -> None:
    small = max_cost_usd(QUESTION)
    longer = max_cost_usd(dataclasses.replace(QUESTION, messages=conversation(50)))
    wordier = max_cost_usd(dataclasses.replace(QUESTION, max_tokens=16_000))
    assert small is not None
    assert longer is not None
    assert wordier is not None
    assert small < longer < wordier
    assert max_cost_usd(dataclasses.replace(QUESTION, model="unknown")) is None


def test_the_most_tokens_are_more_than_any_reply_to_it_can_have() -> None:
    tokens, prompt = max_total_tokens(QUESTION), len(json.dumps(sent(QUESTION)))
    assert prompt / 4 + QUESTION.max_tokens < tokens <= prompt + QUESTION.max_tokens
    wordier = dataclasses.replace(QUESTION, max_tokens=QUESTION.max_tokens + 7)
    assert max_total_tokens(wordier) == tokens + 7
    assert max_total_tokens(dataclasses.replace(QUESTION, model="unknown")) > QUESTION.max_tokens, "no price is needed"


def picture(width: int, height: int, size: int) -> dict[str, Any]:
    """An image block with `size` bytes that say they are a PNG of so many pixels."""
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    data = base64.b64encode(start + bytes(size)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def with_content(*blocks: dict[str, Any]) -> ModelRequest:
    return dataclasses.replace(QUESTION, messages=({"role": "user", "content": list(blocks)},))


def test_a_picture_is_reserved_for_by_its_pixels_however_many_bytes_it_has() -> None:
    text = {"type": "text", "text": "look"}
    without = max_cost_usd(with_content(text))
    small, large = (max_cost_usd(with_content(picture(1280, 2000, size), text)) for size in (1_000, 3_000_000))
    assert without is not None
    assert small is not None
    assert small == large
    assert 3414 * 2.5 / 1e6 <= small - without < 3500 * 2.5 / 1e6
    odd = picture(1, 1, 90_000)
    odd["source"]["data"] = base64.b64encode(bytes(90_000)).decode()
    bound = max_cost_usd(with_content(odd, text))
    assert bound is not None
    assert bound > without + 50_000 * 2.5 / 1e6, "what is not understood counts as text"


def test_reserving_for_a_picture_leaves_the_question_as_it_was() -> None:
    question = with_content(picture(10, 10, 10))
    before = question.key()
    max_cost_usd(question)
    assert question.key() == before
