"""A reminder to a step that wants to end with edits that no test has seen; it is given once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.edit import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.tool_calls import calls_in_transcript, count_engine_texts
from perdure.models.config import TestCommand
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.text import one_line

UNTESTED = "Not tested since your last edit"
"""The beginning of the reminder; it is looked for in the transcript, so that a crash does not grant another one."""

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


def untested_reminder(step: Step, transcript: Sequence[Message], tests: Sequence[TestCommand]) -> str | None:
    """Return what a step is told that is about to end with untested edits; None where there is no reason for it, or it
    was told before.

    transcript  the messages that the last reply answers
    tests       the repository's test commands; without any there is nothing to run
    """
    spec = STEPS[step]
    if not (tests and spec.writes and spec.gets_test_commands) or count_engine_texts(transcript, UNTESTED):
        return None
    if not _has_untested_edits(transcript, tests):
        return None
    commands = ", ".join(f"`{one_line(_shell_command(test), _COMMAND_CHARS)}`" for test in tests[:_COMMANDS_NAMED])
    more = f" and {len(tests) - _COMMANDS_NAMED} more" if len(tests) > _COMMANDS_NAMED else ""
    return (
        f"{UNTESTED}: run {commands}{more} first, or the part of it that concerns the change, and mend what is red. "
        "If it cannot be run or has nothing to say here, finish. Either way give your whole final answer again: only "
        "the last one is used. This is said once."
    )


def _has_untested_edits(transcript: Sequence[Message], tests: Sequence[TestCommand]) -> bool:
    """Return whether a file was changed and no command has run tests since."""
    is_edited = False
    for call in _successful_calls(transcript):
        if call["name"] in (EDIT.name, WRITE.name):
            is_edited = True
        elif call["name"] == BASH.name and runs_tests(str(call["input"].get("command", "")), tests):
            is_edited = False
    return is_edited


def _successful_calls(transcript: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield the tool calls of a conversation in order, without those that came back as mistakes."""
    failed_ids = {
        block["tool_use_id"]
        for message in transcript
        if message["role"] == "user"
        for block in message["content"]
        if block.get("type") == "tool_result" and block.get("is_error")
    }
    yield from (
        call
        for call in calls_in_transcript(transcript)
        if call["id"] not in failed_ids and isinstance(call["input"], dict)
    )


def runs_tests(command: str, tests: Sequence[TestCommand]) -> bool:
    """Return whether a command holds a test command, the word that names its runner, or the name of a well-known
    runner."""
    command_words = set(_WORD.findall(command))
    return any(
        test.command in command or not command_words.isdisjoint({*_runner_words(test), *_WELL_KNOWN}) for test in tests
    )


def _runner_words(test: TestCommand) -> list[str]:
    """Return the first word of a test command that is no launcher, option or variable, as a list; its last word where
    there is no such."""
    try:
        parts = shlex.split(test.command)
    except ValueError:
        parts = test.command.split()
    candidates = [part.rpartition("/")[2] for part in parts if not part.startswith("-") and "=" not in part]
    names = [word for word in candidates if word and not _LAUNCHERS.fullmatch(word)]
    return _WORD.findall(names[0])[:1] if names else parts[-1:]


def _shell_command(test: TestCommand) -> str:
    """Return a test command with a `cd` to its directory before it."""
    return f"cd {shlex.quote(test.directory)} && {test.command}" if test.directory else test.command
