"""The tools of each step, and the calls of one reply, carried out one after another, in order; beside them what a
message holds (calls, texts) and what a reply does, in words for people. Used by the rest of the built-in agent and by
the turns of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.model_request import UNREADABLE
from perdure.adapters.agents.builtin.tools.ask import ASK, ASSUME
from perdure.adapters.agents.builtin.tools.base import AgentTool, Toolbox, ToolCall, ToolError
from perdure.adapters.agents.builtin.tools.bash import BASH, end_all
from perdure.adapters.agents.builtin.tools.files import EDIT, READ, WRITE, check_edited_file
from perdure.adapters.agents.builtin.tools.search_tools import GLOB, GREP
from perdure.adapters.agents.text import first_line, without_thoughts
from perdure.models.delivery.steps import STEPS
from perdure.models.phases import Step
from perdure.text import one_line, shorten

WRITING_TOOLS: tuple[AgentTool[Any], ...] = (BASH, EDIT, GLOB, GREP, READ, WRITE)
READING_TOOLS: tuple[AgentTool[Any], ...] = (BASH, GLOB, GREP, READ)

DESCRIPTION_CHARS = 80

_DETAIL_FIELDS = (
    "path",
    "file_path",
    "filePath",
    "absolute_path",
    "pattern",
    "text",
    "question",
    "query",
    "url",
    "input",
)
"""Fields that say what a call is about, of our tools and of those of other agents."""

_PATCHED_FILES = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
"""The files of a patch as Codex writes it."""


def tools_of(step: Step, *, questions: bool = True) -> tuple[AgentTool[Any], ...]:
    """Return the tools of a step: none for classify, no writing ones for plan and review; sorted by name, so that
    requests share a prefix.

    questions   whether a person may be asked; where not, assumptions are written down
    """
    if step is Step.CLASSIFY:
        return ()
    question_tools = (ASK if questions else ASSUME,) if STEPS[step].may_ask else ()
    return (*question_tools, *(WRITING_TOOLS if STEPS[step].writes else READING_TOOLS))


def tool_definitions(step: Step, *, questions: bool = True) -> tuple[dict[str, Any], ...]:
    """Return the definitions of a step's tools as the Messages API takes them."""
    return tuple(tool.definition() for tool in tools_of(step, questions=questions))


def calls_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool_use blocks of an assistant message, in order."""
    return [block for block in message["content"] if block.get("type") == "tool_use"]


def calls_in_transcript(transcript: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the tool_use blocks of a whole conversation, in order."""
    return (call for message in transcript if message["role"] == "assistant" for call in calls_in(message))


def texts_in(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message, in order."""
    return [block["text"] for block in message["content"] if block.get("type") == "text"]


def is_empty_reply(message: dict[str, Any]) -> bool:
    """Return whether an assistant message neither calls a tool nor says anything in letters or digits."""
    return not calls_in(message) and not first_line(without_thoughts("\n".join(texts_in(message))), DESCRIPTION_CHARS)


_CALL_MARKS = re.compile(
    r"^\s*(?:<\|?tool_calls?\b|<function_calls?>|<function=|<invoke name=|\[TOOL_CALLS?\]|<\|python_tag\|>|<｜tool"
    r"|✿FUNCTION|(?:<\|channel\|>)?commentary to=)",
    re.MULTILINE,
)
"""Beginnings of lines by which models write a tool call where their server does not parse it."""

_CALL_NAMES = ("name", "tool", "tool_name", "function", "action")
_CALL_INPUTS = ("arguments", "parameters", "input", "args", "params", "action_input")


def writes_call_as_text(text: str, tools: Sequence[str]) -> bool:
    """Return whether a text holds a call of one of these tools as models write it: by the marks of their templates, as
    a JSON object that names tool and input, or as `tool(name="value"`. False without tools."""
    if not tools:
        return False
    names = "|".join(map(re.escape, tools))
    if _CALL_MARKS.search(text) or re.search(rf"^\s*(?:{names})\(\w+\s*=\s*[\"'\[\d]", text, re.MULTILINE):
        return True
    if re.search(rf"^\s*Action: *(?:{names})\s*$", text, re.MULTILINE):
        return True
    return any(_is_call(value, tools, 4) for value in _json_values(text))


def _json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values that begin a line of a text, one after another."""
    decoder, position = json.JSONDecoder(), 0
    while (begin := _JSON_BEGIN.search(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            position = begin.end()
        else:
            yield value


_JSON_BEGIN = re.compile(r"^[ \t]*[{\[]", re.MULTILINE)


def _is_call(value: object, tools: Sequence[str], depth: int) -> bool:
    """Return whether a JSON value, or one of the first in it, is an object that names one of the tools and an input."""
    if isinstance(value, dict):
        named = any(isinstance(value.get(name), str) and value[name] in tools for name in _CALL_NAMES)
        if named and not value.keys().isdisjoint(_CALL_INPUTS):
            return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and any(_is_call(part, tools, depth - 1) for part in list(parts)[:20])


def count_engine_texts(transcript: Iterable[dict[str, Any]], mark: str) -> int:
    """Count the texts in user messages that begin with `mark`, the beginning of one kind of the engine's own messages.
    They are counted in the transcript, so that a crash does not grant the model another one."""
    texts = (text for message in transcript if message["role"] == "user" for text in texts_in(message))
    return sum(text.startswith(mark) for text in texts)


async def run_calls(message: dict[str, Any], toolbox: Toolbox, step: Step) -> list[dict[str, Any]]:
    """Carry out a reply's tool calls one after another, and return one tool_result block each, in order. A mistake of
    the model's is a result with `is_error`. Background commands are killed after the last call, whatever happens.

    Raises Superseded (by `toolbox.check`), SandboxUnavailable, WorkCutOff when the sandbox was killed, and
    cancellation; every command is dead by then.
    """
    blocks = calls_in(message)
    try:
        return [await _run_call(blocks, place, toolbox, step) for place in range(len(blocks))]
    finally:
        await end_all(toolbox)


async def _run_call(blocks: Sequence[dict[str, Any]], index: int, toolbox: Toolbox, step: Step) -> dict[str, Any]:
    """Carry out the tool call at `index` and return its tool_result block, with the mistakes that a checker finds in an
    edited file; a ToolError becomes a block with `is_error`. Raises Superseded, SandboxUnavailable, and WorkCutOff when
    the sandbox was killed."""
    toolbox.check()
    block = blocks[index]
    call = ToolCall(block["id"], step, toolbox)
    try:
        text = await _call_tool(block, call)
    except ToolError as mistake:
        return tool_result(block, str(mistake), is_error=True)
    mistakes = await check_edited_file(blocks, index, call)
    return tool_result(block, f"{text}\n{mistakes}" if mistakes else text)


async def _call_tool(block: dict[str, Any], call: ToolCall) -> str:
    """Run the tool that a call names, and return the text of its result. Raises ToolError for a tool that the step does
    not have, a wrong input, and what the tool itself refuses."""
    tools = {tool.name: tool for tool in tools_of(call.step, questions=call.box.questions)}
    tool = tools.get(block["name"])
    if tool is None:
        raise ToolError(f"there is no tool {one_line(block['name'], 50)!r} in this step; there are: {', '.join(tools)}")
    if isinstance(block["input"], dict) and UNREADABLE in block["input"]:
        raise ToolError(
            f"the call's input could not be used, nothing was run: {block['input']['problem']}; call it again"
        )
    return await tool.call(block["input"], call)


def tool_result(block: dict[str, Any], text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool_result block for a tool_use block, in text that can be encoded whatever a file is called."""
    encodable = text.encode("utf-8", "replace").decode()
    result_block = {"type": "tool_result", "tool_use_id": block["id"], "content": encodable}
    return {**result_block, "is_error": True} if is_error else result_block


def describe_reply(message: dict[str, Any]) -> str:
    """Return what a reply does, for people: "edit src/x.py, pytest -q"; at most 80 characters on one line. Without tool
    calls it is the first line of its text, or "no answer"."""
    calls = [_describe_call(block) for block in calls_in(message)]
    if calls:
        return shorten(", ".join(calls), DESCRIPTION_CHARS)
    return first_line("\n".join(texts_in(message)), DESCRIPTION_CHARS) or "no answer"


def command_in(call: dict[str, Any]) -> str:
    """Return the shell's command in a call, by any name that an agent has for it; empty: it has none."""
    call_input = call["input"] if isinstance(call["input"], dict) else {}
    command = call_input.get("command") or call_input.get("cmd") or ""
    return command if isinstance(command, str) else " ".join(map(str, command)) if isinstance(command, list) else ""


def _describe_call(block: dict[str, Any]) -> str:
    """Return what one call does, at most DESCRIPTION_CHARS on one line: its command, or its tool's name with the files
    or the text it is about."""
    if command := one_line(command_in(block), DESCRIPTION_CHARS):
        return command
    call_input = block["input"] if isinstance(block["input"], dict) else {}
    detail = next((call_input[name] for name in _DETAIL_FIELDS if call_input.get(name)), "")
    patched_files = _PATCHED_FILES.findall(str(detail))
    return one_line(f"{block['name'].lower()} {' '.join(patched_files) or detail}", DESCRIPTION_CHARS)
