"""A step that wants to end with edits that no test has seen: it is told so, once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.edit import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.run import calls_of, times_told
from perdure.models.config import TestCommand
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.text import one_line

UNTESTED = "Not tested since your last edit"
"""The beginning of the word; it is looked for in the transcript, so that a crash does not grant another one."""

_COMMANDS_NAMED, _COMMAND_CHARS = 3, 200

_LAUNCHERS = re.compile(
    r"bash|bundle|bun|cargo|deno|dotnet|env|exec|go|gradlew?|make|mvnw?|nice|node|npm|npx|pnpm|poetry|py|python3?|run|sh"
    r"|time|timeout|uv|yarn"
)
"""Words of a command that say nothing about tests: many other commands begin with them."""

_WELL_KNOWN = {
    "ctest",
    "jest",
    "mocha",
    "nox",
    "phpunit",
    "pytest",
    "rspec",
    "test",
    "tests",
    "tox",
    "unittest",
    "vitest",
}

_WORD = re.compile(r"[\w:+.-]+")

Message = dict[str, Any]


def untested(step: Step, transcript: Sequence[Message], tests: Sequence[TestCommand]) -> str | None:
    """The word to a step that is about to end; None where there is no reason for one.

    transcript  what was asked so far
    tests       the repository's test commands; without any there is nothing to run
    """
    about = STEPS[step]
    if not (tests and about.writes and about.tested) or times_told(transcript, UNTESTED):
        return None
    if not _edited_last(transcript, tests):
        return None
    commands = ", ".join(f"`{one_line(_in_place(one), _COMMAND_CHARS)}`" for one in tests[:_COMMANDS_NAMED])
    more = f" and {len(tests) - _COMMANDS_NAMED} more" if len(tests) > _COMMANDS_NAMED else ""
    return (
        f"{UNTESTED}: run {commands}{more} first, or the part of it that concerns the change, and mend what is red. "
        "If it cannot be run or has nothing to say here, finish. Either way give your whole final answer again: only "
        "the last one is used. This is said once."
    )


def _edited_last(transcript: Sequence[Message], tests: Sequence[TestCommand]) -> bool:
    """True where a file was changed, and no command has run tests since."""
    edited = False
    for call in _carried_out(transcript):
        if call["name"] in (EDIT.name, WRITE.name):
            edited = True
        elif call["name"] == BASH.name and runs_tests(str(call["input"].get("command", "")), tests):
            edited = False
    return edited


def _carried_out(transcript: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Calls in order, without those that came back as mistakes."""
    wrong = {
        block["tool_use_id"]
        for message in transcript
        if message["role"] == "user"
        for block in message["content"]
        if block.get("type") == "tool_result" and block.get("is_error")
    }
    yield from (call for call in calls_of(transcript) if call["id"] not in wrong and isinstance(call["input"], dict))


def runs_tests(command: str, tests: Sequence[TestCommand]) -> bool:
    """True where a command holds a test command, its first telling word, or the name of a well-known runner."""
    words = set(_WORD.findall(command))
    return any(test.command in command or not words.isdisjoint({*_telling(test), *_WELL_KNOWN}) for test in tests)


def _telling(test: TestCommand) -> list[str]:
    try:
        parts = shlex.split(test.command)
    except ValueError:
        parts = test.command.split()
    plain = [part.rpartition("/")[2] for part in parts if not part.startswith("-") and "=" not in part]
    telling = [word for word in plain if word and not _LAUNCHERS.fullmatch(word)]
    return _WORD.findall(telling[0])[:1] if telling else parts[-1:]


def _in_place(test: TestCommand) -> str:
    return f"cd {shlex.quote(test.directory)} && {test.command}" if test.directory else test.command
