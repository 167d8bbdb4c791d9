"""The message that a line of a screenplay becomes; the same conversation always gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from perdure.rehearsal.cache import InputUsage, tokens_of
from perdure.rehearsal.dialect import ANSWER_TOOL, answer_schema, translate_call
from perdure.rehearsal.faults import Fault
from perdure.rehearsal.schema import answer_problem, fill_empties
from perdure.rehearsal.screenplay import Line
from perdure.rehearsal.wire import (
    ApiRefusal,
    Block,
    Request,
    Summary,
    Text,
    Thinking,
    ThinkingConfig,
    ToolUse,
    canonical_json,
    invalid_request,
)
from perdure.text import nearest

Json = dict[str, Any]
Where = Callable[[], str]
"""Callback that names a line for its author; called only when something is wrong with the line."""


def compose_reply(
    line: Line, request: Request, digest: str, where: Where, fault: Fault | None
) -> tuple[list[Block], str]:
    """Return the blocks of the reply that a line makes, and its stop reason.

    `digest` stands for the conversation so far and makes the ids. Raises ApiRefusal when the line does not fit the
    request: a tool that is not offered, an answer that breaks the schema.
    """
    if fault is Fault.REFUSAL:
        return [], "refusal"
    blocks: list[Block] = []
    if line.think is not None and (block := thinking_block(request.model, line.think, request.thinking)):
        blocks.append(block)
    calls = [(scripted.tool, scripted.input, scripted.unknown) for scripted in line.use]
    text = line.say
    if line.answer is not None and (schema := answer_schema(request)) is not None:
        calls.append((ANSWER_TOOL, json.loads(_answer_text(line.answer, schema, where)), False))
    elif line.answer is not None:
        text = _answer_text(line.answer, request.json_schema, where)
    if text is not None:
        blocks.append(Text(type="text", text=text))
    offered = [tool.name for tool in request.tools]
    for number, (tool, arguments, unknown) in enumerate(calls):
        call = (tool, arguments) if unknown else translate_call(tool, arguments, request)
        if call is None:
            raise _not_offered_error(tool, offered, where)
        blocks.append(ToolUse(type="tool_use", id=_use_id(digest, number), name=call[0], input=call[1]))
    if fault is Fault.MAX_TOKENS:
        return _cut_last_block(blocks), "max_tokens"
    return blocks, "tool_use" if calls else "end_turn"


def summary_blocks(request: Request) -> list[Summary]:
    """Return the reply to a request for a summary of its conversation: no line of a screenplay answers it."""
    reply_count = sum(message.role == "assistant" for message in request.messages)
    return [Summary(type="compaction", content=f"The screenplay sums {reply_count} replies up.")]


def _use_id(digest: str, number: int) -> str:
    """Return the id of a reply's tool call, made of the conversation's digest and the call's number."""
    return f"toolu_{hashlib.sha256(f'{digest} {number}'.encode()).hexdigest()[:24]}"


def build_message(
    request: Request, digest: str, blocks: Sequence[Block | Summary], stop_reason: str, input_usage: InputUsage
) -> Json:
    """Build the whole message, as JSON replies carry it and streams put it together."""
    stop_details = {
        "type": "refusal",
        "category": "general_harms",
        "explanation": "The screenplay has the model refuse.",
    }
    return {
        "id": f"msg_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [json.loads(canonical_json(block)) for block in blocks],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": stop_details if stop_reason == "refusal" else None,
        "usage": {
            "input_tokens": input_usage.fresh,
            "cache_creation_input_tokens": input_usage.written,
            "cache_read_input_tokens": input_usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": input_usage.written_5m,
                "ephemeral_1h_input_tokens": input_usage.written_1h,
            },
            "output_tokens": sum(map(tokens_of, blocks)) or 1,
            "service_tier": "standard",
        },
    }


def _cut_last_block(blocks: list[Block]) -> list[Block]:
    """Return the blocks with the last text cut in half, as max_tokens cuts it.

    A tool input in last place is cut in the stream, where half of it can be sent. Without blocks, return one with a
    text that breaks off.
    """
    if not blocks:
        return [Text(type="text", text="This reply is cut o")]
    *complete, last = blocks
    if isinstance(last, Text):
        last = Text(type="text", text=last.text.strip()[: max(1, len(last.text.strip()) // 2)])
    return [*complete, last]


def _answer_text(answer: Json, schema: Json | None, where: Where) -> str:
    """Return an answer as JSON text, with the empty values that the schema requires and the screenplay left out.

    Raises ApiRefusal when it breaks the schema.
    """
    if schema is not None:
        answer = fill_empties(answer, schema)
    if schema is not None and (problem := answer_problem(answer, schema)):
        raise invalid_request(
            f"screenplay: {where()}: {problem}; the API only sends answers that follow the schema "
            "(write the JSON as say to have the model break it)"
        )
    return json.dumps(answer, ensure_ascii=False)


def _not_offered_error(tool: str, offered: list[str], where: Where) -> ApiRefusal:
    """Return the refusal to raise for a line that uses a tool which the request does not offer."""
    return invalid_request(
        f"screenplay: {where()}: uses tool '{tool}', the request offers {', '.join(offered) or 'none'}"
        f"{nearest(tool, offered)}; write unknown = true in the call to have the model make it up"
    )


def thinking_block(model: str, text: str, config: ThinkingConfig | None) -> Thinking | None:
    """Return the thinking block that a model sends, signed; None when thinking is off.

    Its text is left out unless the request's `display` asks for it.
    """
    if config and config.type == "disabled":
        return None
    shown = text if config and config.display in ("summarized", "updates") else ""
    text_digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Thinking(type="thinking", thinking=shown, signature=_sign_thinking(model, text_digest, shown))


def is_genuine_thinking(model: str, block: Thinking) -> bool:
    """Return whether this model wrote exactly this block; the signature binds the hash of text that was not shown."""
    try:
        text_digest = base64.b64decode(block.signature, validate=True).decode("ascii").partition(".")[0]
    except ValueError:
        return False
    return block.signature == _sign_thinking(model, text_digest, block.thinking)


def _sign_thinking(model: str, text_digest: str, shown: str) -> str:
    """Return a thinking block's signature, which binds the model, the hash of its whole text, and the shown text."""
    seal = hashlib.sha256(f"{model}\n{text_digest}\n{shown}".encode()).hexdigest()
    return base64.b64encode(f"{text_digest}.{seal}".encode()).decode()
