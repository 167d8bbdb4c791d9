"""The tools of each step, and the calls of one reply, carried out one after another, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.tools.ask import ASK, ASSUME
from perdure.adapters.agents.builtin.tools.background import end_all
from perdure.adapters.agents.builtin.tools.base import Tool, Toolbox, ToolCall
from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.check import checked
from perdure.adapters.agents.builtin.tools.edit import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.agents.builtin.tools.read import READ
from perdure.adapters.agents.builtin.tools.searching import GLOB, GREP
from perdure.adapters.agents.text import first_line
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.text import one_line, shortened

ALL: tuple[Tool[Any], ...] = (BASH, EDIT, GLOB, GREP, READ, WRITE)
READING: tuple[Tool[Any], ...] = (BASH, GLOB, GREP, READ)

DESCRIPTION_CHARS = 80

_TELLING = ("path", "file_path", "filePath", "absolute_path", "pattern", "text", "question", "query", "url", "input")
"""Fields that tell what a call is about, of our tools and of those of other agents."""

_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
"""The files of a patch as Codex writes it."""


def tools_of(step: Step, *, questions: bool = True) -> tuple[Tool[Any], ...]:
    """None for classify; no writing ones for plan and review; sorted by name, so that requests share a prefix.

    questions   whether a person may be asked; where not, assumptions are written down
    """
    if step is Step.CLASSIFY:
        return ()
    asking = (ASK if questions else ASSUME,) if STEPS[step].asks else ()
    return (*asking, *(ALL if STEPS[step].writes else READING))


def tools_for(step: Step, *, questions: bool = True) -> tuple[dict[str, Any], ...]:
    """The step's tool definitions as the Messages API takes them."""
    return tuple(tool.definition() for tool in tools_of(step, questions=questions))


def calls_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool_use blocks of an assistant message, in order."""
    return [block for block in message["content"] if block.get("type") == "tool_use"]


def calls_of(transcript: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those of a whole conversation, in order."""
    return (call for message in transcript if message["role"] == "assistant" for call in calls_in(message))


def texts_in(message: dict[str, Any]) -> list[str]:
    """The texts of a message, in order."""
    return [block["text"] for block in message["content"] if block.get("type") == "text"]


def times_told(transcript: Iterable[dict[str, Any]], mark: str) -> int:
    """The number of words of ours to the model that begin with this: a crash does not grant another one."""
    told = (text for message in transcript if message["role"] == "user" for text in texts_in(message))
    return sum(text.startswith(mark) for text in told)


async def run_calls(message: dict[str, Any], toolbox: Toolbox, step: Step) -> list[dict[str, Any]]:
    """Carry out a reply's tool calls; one tool_result block each, in order.

    A mistake of the model's is a result with `is_error`. Raised are only: Superseded (by `toolbox.check`),
    SandboxUnavailable, and cancellation; every command is dead by then.
    """
    blocks = calls_in(message)
    try:
        return [await _result(blocks, place, toolbox, step) for place in range(len(blocks))]
    finally:
        await end_all(toolbox)


async def _result(blocks: Sequence[dict[str, Any]], place: int, toolbox: Toolbox, step: Step) -> dict[str, Any]:
    toolbox.check()
    block = blocks[place]
    call = ToolCall(block["id"], step, toolbox)
    try:
        text = await _run(block, call)
    except ToolError as mistake:
        return result(block, str(mistake), error=True)
    wrong = await checked(blocks, place, call)
    return result(block, f"{text}\n{wrong}" if wrong else text)


async def _run(block: dict[str, Any], call: ToolCall) -> str:
    tools = {tool.name: tool for tool in tools_of(call.step, questions=call.box.questions)}
    tool = tools.get(block["name"])
    if tool is None:
        raise ToolError(f"there is no tool {one_line(block['name'], 50)!r} in this step; there are: {', '.join(tools)}")
    return await tool.call(block["input"], call)


def result(block: dict[str, Any], text: str, *, error: bool = False) -> dict[str, Any]:
    """A tool_result block for a tool_use block, in text that can be encoded whatever a file is called."""
    clean = text.encode("utf-8", "replace").decode()
    found = {"type": "tool_result", "tool_use_id": block["id"], "content": clean}
    return {**found, "is_error": True} if error else found


def describe(message: dict[str, Any]) -> str:
    """Describe a reply for people: "edit src/x.py, pytest -q"; at most 80 characters on one line."""
    calls = [_call_words(block) for block in calls_in(message)]
    if calls:
        return shortened(", ".join(calls), DESCRIPTION_CHARS)
    return first_line("\n".join(texts_in(message)), DESCRIPTION_CHARS) or "no answer"


def command_in(call: dict[str, Any]) -> str:
    """The shell's command in a call, by any name that an agent has for it; empty: it has none."""
    given = call["input"] if isinstance(call["input"], dict) else {}
    command = given.get("command") or given.get("cmd") or ""
    return command if isinstance(command, str) else " ".join(map(str, command)) if isinstance(command, list) else ""


def _call_words(block: dict[str, Any]) -> str:
    if command := one_line(command_in(block), DESCRIPTION_CHARS):
        return command
    given = block["input"] if isinstance(block["input"], dict) else {}
    words = next((given[name] for name in _TELLING if given.get(name)), "")
    changed = _PATCHED.findall(str(words))
    return one_line(f"{block['name'].lower()} {' '.join(changed) or words}", DESCRIPTION_CHARS)
