"""The message a line of a screenplay becomes; the same conversation always gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from perdure.rehearsal.cache import InputUsage, tokens_of
from perdure.rehearsal.dialect import ANSWER, answer_schema, translated
from perdure.rehearsal.faults import Fault
from perdure.rehearsal.schema import answer_problem, with_empties
from perdure.rehearsal.screenplay import Line
from perdure.rehearsal.wire import (
    Block,
    Refused,
    Request,
    Summary,
    Text,
    Thinking,
    ThinkingConfig,
    ToolUse,
    canonical,
    invalid,
)
from perdure.text import nearest

Json = dict[str, Any]
Where = Callable[[], str]
"""Names a line for its author; asked only when something is wrong with it."""


def compose(line: Line, request: Request, digest: str, where: Where, fault: Fault | None) -> tuple[list[Block], str]:
    """The blocks of a reply and its stop reason. Refused when the line does not fit what was asked.

    `digest` stands for the conversation so far and makes the ids.
    """
    if fault is Fault.REFUSAL:
        return [], "refusal"
    blocks: list[Block] = []
    if line.think is not None and (block := thought(request.model, line.think, request.thinking)):
        blocks.append(block)
    calls = [(use.tool, use.input, use.unknown) for use in line.use]
    text = line.say
    if line.answer is not None and (schema := answer_schema(request)) is not None:
        calls.append((ANSWER, json.loads(_answer(line.answer, schema, where)), False))
    elif line.answer is not None:
        text = _answer(line.answer, request.json_schema, where)
    if text is not None:
        blocks.append(Text(type="text", text=text))
    offered = [tool.name for tool in request.tools]
    for number, (tool, given, unknown) in enumerate(calls):
        call = (tool, given) if unknown else translated(tool, given, request)
        if call is None:
            raise _not_offered(tool, offered, where)
        blocks.append(ToolUse(type="tool_use", id=_use_id(digest, number), name=call[0], input=call[1]))
    if fault is Fault.MAX_TOKENS:
        return _cut(blocks), "max_tokens"
    return blocks, "tool_use" if calls else "end_turn"


def summed_up(request: Request) -> list[Summary]:
    """The reply to a request for a summary of its conversation: no line of a screenplay answers it."""
    asked = sum(message.role == "assistant" for message in request.messages)
    return [Summary(type="compaction", content=f"The screenplay sums {asked} replies up.")]


def _use_id(digest: str, number: int) -> str:
    return f"toolu_{hashlib.sha256(f'{digest} {number}'.encode()).hexdigest()[:24]}"


def message(
    request: Request, digest: str, blocks: Sequence[Block | Summary], stop_reason: str, spent: InputUsage
) -> Json:
    """The whole message, as JSON replies carry it and streams build it up."""
    refused = {"type": "refusal", "category": "general_harms", "explanation": "The screenplay has the model refuse."}
    return {
        "id": f"msg_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [json.loads(canonical(block)) for block in blocks],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": refused if stop_reason == "refusal" else None,
        "usage": {
            "input_tokens": spent.fresh,
            "cache_creation_input_tokens": spent.written,
            "cache_read_input_tokens": spent.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": spent.written_5m,
                "ephemeral_1h_input_tokens": spent.written_1h,
            },
            "output_tokens": sum(map(tokens_of, blocks)) or 1,
            "service_tier": "standard",
        },
    }


def _cut(blocks: list[Block]) -> list[Block]:
    """The text that was being written ends halfway; a tool input is cut in the stream, where half of it can be sent."""
    if not blocks:
        return [Text(type="text", text="This reply is cut o")]
    *whole, last = blocks
    if isinstance(last, Text):
        last = Text(type="text", text=last.text.strip()[: max(1, len(last.text.strip()) // 2)])
    return [*whole, last]


def _answer(answer: Json, schema: Json | None, where: Where) -> str:
    if schema is not None:
        answer = with_empties(answer, schema)
    if schema is not None and (problem := answer_problem(answer, schema)):
        raise invalid(
            f"screenplay: {where()}: {problem}; the API only sends answers that follow the schema "
            "(write the JSON as say to have the model break it)"
        )
    return json.dumps(answer, ensure_ascii=False)


def _not_offered(tool: str, offered: list[str], where: Where) -> Refused:
    return invalid(
        f"screenplay: {where()}: uses tool '{tool}', the request offers {', '.join(offered) or 'none'}"
        f"{nearest(tool, offered)}; write unknown = true in the call to have the model make it up"
    )


def thought(model: str, text: str, config: ThinkingConfig | None) -> Thinking | None:
    """The block a model sends: none when thinking is off, without its text unless `display` asks for it."""
    if config and config.type == "disabled":
        return None
    shown = text if config and config.display in ("summarized", "updates") else ""
    whole = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Thinking(type="thinking", thinking=shown, signature=_sign(model, whole, shown))


def is_genuine(model: str, block: Thinking) -> bool:
    """True where this model wrote exactly this block; the text that was not shown is bound by its hash."""
    try:
        whole = base64.b64decode(block.signature, validate=True).decode("ascii").partition(".")[0]
    except ValueError:
        return False
    return block.signature == _sign(model, whole, block.thinking)


def _sign(model: str, whole: str, shown: str) -> str:
    seal = hashlib.sha256(f"{model}\n{whole}\n{shown}".encode()).hexdigest()
    return base64.b64encode(f"{whole}.{seal}".encode()).decode()
