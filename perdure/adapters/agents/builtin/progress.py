"""Steps that make no progress: they go in circles (two versions of the files in turn, tests run again unchanged,
nothing new, much read and nothing changed), or want to end with edits that no test has seen, of which they are reminded
once. Circles are looked for in the turns of every agent, untested edits in those of the built-in one.

In a circle the model is warned first; a step that goes on all the same is ended. A false alarm costs a delivery and a
late one some turns: every limit is far above what honest work was seen to need, and a message from a person starts the
count again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.files import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.tool_calls import (
    calls_in,
    calls_in_transcript,
    command_in,
    count_engine_texts,
    texts_in,
)
from perdure.adapters.agents.builtin.user_messages import texts_from_people
from perdure.adapters.git.messages import StoredMessage, computed_once
from perdure.models.base import Message
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.steps import STEPS
from perdure.models.phases import Step
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


def untested_reminder(step: Step, transcript: Sequence[Message], tests: Sequence[TestCommand]) -> str | None:
    """Return what a step is told that is about to end with untested edits. None for a step that changes no files or is
    given no test commands, without edits since tests ran last, and when it was told before.

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
    """Return whether a file was changed by edit or write and no command of bash has run tests since; failed calls do
    not count."""
    is_edited = False
    for call in _successful_calls(transcript):
        if call["name"] in (EDIT.name, WRITE.name):
            is_edited = True
        elif call["name"] == BASH.name and runs_tests(str(call["input"].get("command", "")), tests):
            is_edited = False
    return is_edited


def _successful_calls(transcript: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield the tool calls of a conversation in order, without those that came back as mistakes or whose input is no
    object."""
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
    runner; False without test commands."""
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


ALTERNATING_WARN, ALTERNATING_STOP = 6, 12
"""Times in a row that the files come back to what they were two changes before: trying a change by taking it out and
putting it back takes two or three."""

RETESTING_WARN, RETESTING_STOP = 5, 10
"""Runs of one test command with one result and no change in between: three tell a flaky test."""

STANDING_WARN, STANDING_STOP = 6, 12
"""Turns in a row whose calls were all made before, with the same results, since the last change."""

GROWING_WARN, GROWING_STOP = (30, 100_000), (50, 200_000)
"""Turns without a change in a step that writes, and the characters they added: a hard bug is found in some twenty."""

TURNS_AFTER_WARNING = 3
"""Turns that a step has after the warning, however far beyond the limit it is."""

TREES_SEEN = 200
"""Checkpoints whose trees are compared: far more than any limit, and one call of git."""

STUCK = "You are going in circles"
"""The beginning of the warning; it is looked for in the transcript, so that a crash does not grant another one."""

_NUMBER = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d+(?:\.\d+)?")
"""Left out of results that are compared: times, process ids and addresses change with every run."""

_WAITING = frozenset({"write_stdin", "BashOutput", "TaskOutput", "read_bash"})
"""Tools of other agents that look after a command that goes on: they are called again and again while it does."""


class CircleKind(StrEnum):
    """The kinds of circles, as people read them."""

    ALTERNATING = "two versions of the files in turn"
    RETESTING = "the same test run again and again, unchanged"
    STANDING = "no progress"
    GROWING = "a growing conversation without a change"


@dataclass(frozen=True)
class DetectedCircle:
    """A circle that a step is in. `count`: as its kind counts; `warning`: for the model, None when it has had it;
    `must_end`: the step is to be ended."""

    kind: CircleKind
    count: int
    warning: str | None
    must_end: bool

    def __str__(self) -> str:
        return f"{self.kind}: {self.count} times"


@dataclass(frozen=True)
class _TurnContent:
    """A turn as far as its two messages tell: hashes of its calls and test runs with their results, the characters it
    added, and, of the texts in the user message after it, the warnings and whether one is a person's."""

    calls: tuple[tuple[bytes, bytes], ...]
    test_runs: tuple[tuple[bytes, bytes], ...]
    chars: int
    warnings: tuple[str, ...]
    has_person: bool


@dataclass(frozen=True)
class _TurnSummary:
    """A turn's content, the trees before and after it, and the warnings that it was given."""

    content: _TurnContent
    before: str
    after: str
    warnings: tuple[str, ...]


def find_circle(
    transcript: Sequence[Message], trees: Sequence[str], tests: Sequence[TestCommand] = (), *, writes: bool = True
) -> DetectedCircle | None:
    """Return the circle (a repetition without progress) that a step is in: first one that must end the step, else one
    that the model is to be warned of now; None when there is neither, also while a warning that was given still has
    time to work.

    transcript  ends with the user message that follows the newest finished turn
    trees       of the files before the first turn and after each finished one, or the newest of these
    tests       the repository's test commands, by which a command counts as a test run
    writes      the step changes files; else a growing conversation without a change is no circle
    """
    turns = _collect_turns(transcript, trees, tests)
    unchanged = _turns_since_change(turns)
    return_count = _count_returns(turns)
    candidates = [
        _judge_circle(
            CircleKind.ALTERNATING, return_count, ALTERNATING_WARN, ALTERNATING_STOP, turns[-4 * return_count :]
        ),
        _judge_circle(CircleKind.RETESTING, _count_retests(unchanged), RETESTING_WARN, RETESTING_STOP, unchanged),
        _judge_circle(CircleKind.STANDING, _count_repeats(unchanged), STANDING_WARN, STANDING_STOP, unchanged),
    ]
    if writes and (growth := _count_growing_turns(unchanged)):
        candidates.append(_judge_circle(CircleKind.GROWING, growth, GROWING_WARN[0], GROWING_STOP[0], unchanged))
    detected = [circle for circle in candidates if circle is not None]
    return next(
        (circle for circle in detected if circle.must_end),
        next((circle for circle in detected if circle.warning), None),
    )


def may_be_in_circle(transcript: Sequence[Message], tests: Sequence[TestCommand] = ()) -> bool:
    """Return False where `find_circle` finds no circle, whatever the trees are, so that nobody has to read them from
    git; else True."""
    turns = _collect_turns(transcript, (), tests)
    return len(turns) >= min(ALTERNATING_WARN, STANDING_WARN) or _count_retests(turns) >= RETESTING_WARN


def last_warning(transcript: Sequence[Message]) -> str:
    """Return the newest warning about a circle in a conversation; empty: none."""
    texts = [text for message in transcript if message["role"] == "user" for text in texts_in(message)]
    return next((line for text in reversed(texts) for line in text.splitlines() if line.startswith(STUCK)), "")


def _judge_circle(
    kind: CircleKind, count: int, warn_at: int, stop_at: int, turns: Sequence[_TurnSummary]
) -> DetectedCircle | None:
    """Return the circle of one kind with `count` repetitions; None below `warn_at`.

    Where no warning of this kind stands in these turns, the circle has one for the model, and must not end the step
    yet. Else it has none, and must end the step when `count` is `stop_at` or more and TURNS_AFTER_WARNING turns or more
    were made since the warning.
    """
    if count < warn_at:
        return None
    mark = f"{STUCK}: {kind}"
    turns_since_warning = next(
        (n for n, turn in enumerate(reversed(turns)) if any(mark in text for text in turn.warnings)), None
    )
    if turns_since_warning is None:
        return DetectedCircle(
            kind, count, f"{mark} ({count} times). {_ADVICE[kind]} If it goes on, the step is ended.", False
        )
    return DetectedCircle(kind, count, None, must_end=count >= stop_at and turns_since_warning >= TURNS_AFTER_WARNING)


_ADVICE = {
    CircleKind.ALTERNATING: "Decide for one version and say why, or find what both of them miss.",
    CircleKind.RETESTING: "The result will not change by itself: change something, look elsewhere, or finish.",
    CircleKind.STANDING: "You know these results already: do something else, or finish with what you know.",
    CircleKind.GROWING: "Change something small now with what you know, or finish and say what stands in the way.",
}


def _collect_turns(
    transcript: Sequence[Message], trees: Sequence[str], tests: Sequence[TestCommand]
) -> list[_TurnSummary]:
    """Return the turns since the last message of a person, oldest first: each a reply and the user message behind it;
    the opening's warnings belong to the first turn. A tree that is not among `trees` is empty."""
    pairs = [
        (reply, results)
        for reply, results in pairwise(transcript)
        if reply["role"] == "assistant" and results["role"] == "user"
    ]
    turns = list[_TurnSummary]()
    opening = _warnings_in(transcript[0]) if transcript else ()  # a restarted agent is warned there
    test_commands = tuple(test.command for test in tests)
    for index, (reply, results) in enumerate(pairs):
        later = len(pairs) - 1 - index
        has_trees = later + 2 <= len(trees)
        before, after = (trees[-2 - later], trees[-1 - later]) if has_trees else ("", "")
        content = _turn_content(reply, results, tests, test_commands)
        turns.append(_TurnSummary(content, before, after, content.warnings if index else opening + content.warnings))
        if content.has_person:
            turns.clear()
    return turns


def _turn_content(
    reply: Message, results: Message, tests: Sequence[TestCommand], test_commands: tuple[str, ...]
) -> _TurnContent:
    """Return the content of the turn of a reply and the user message with its results. It never changes: of stored
    messages it is computed once."""
    if not isinstance(reply, StoredMessage):
        return _read_turn(reply, results, tests)
    return computed_once(results, ("turn", reply.sha, test_commands), lambda: _read_turn(reply, results, tests))


def _read_turn(reply: Message, results_message: Message, tests: Sequence[TestCommand]) -> _TurnContent:
    """Read the content of a turn from its messages. Numbers are left out of results, and calls of tools that only wait
    are left out."""
    results = {b["tool_use_id"]: b.get("content") for b in results_message["content"] if b.get("type") == "tool_result"}
    calls, test_runs = list[tuple[bytes, bytes]](), list[tuple[bytes, bytes]]()
    for call in calls_in(reply):
        if call["name"] in _WAITING:
            continue
        result_hash = _text_hash(_NUMBER.sub("", json.dumps(results.get(call["id"]))))
        calls.append((_text_hash(json.dumps([call["name"], call["input"]], sort_keys=True)), result_hash))
        if (command := command_in(call)) and runs_tests(command, tests):
            test_runs.append((_text_hash(" ".join(command.split())), result_hash))
    chars = len(json.dumps([reply["content"], results_message["content"]], ensure_ascii=False))
    has_person = bool(texts_from_people([results_message]))
    return _TurnContent(tuple(calls), tuple(test_runs), chars, _warnings_in(results_message), has_person)


def _text_hash(text: str) -> bytes:
    """Return a text's SHA-256: texts are only compared, and a result is long."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _warnings_in(message: Message) -> tuple[str, ...]:
    """Return the texts of a message in which a warning about a circle stands."""
    return tuple(text for text in texts_in(message) if STUCK in text)


def _turns_since_change(turns: Sequence[_TurnSummary]) -> list[_TurnSummary]:
    """Return the turns after the newest one that changed files; all where none did."""
    changed = [index for index, turn in enumerate(turns) if turn.before != turn.after]
    return list(turns[changed[-1] + 1 :] if changed else turns)


def _count_returns(turns: Sequence[_TurnSummary]) -> int:
    """Count the newest changes in a row that each brought back the files of two changes before; 0 when the last turn
    changed nothing, for then it has stopped."""
    if not turns or turns[-1].before == turns[-1].after:
        return 0
    states = [turns[0].before]
    states += [turn.after for turn in turns if turn.before != turn.after]
    count = 0
    for newer, older in zip(reversed(states), reversed(states[:-2]), strict=False):
        if newer != older:
            break
        count += 1
    return count


def _count_retests(unchanged: Sequence[_TurnSummary]) -> int:
    """Return how often in these turns a test run of the last turn was made with the same result; of several runs the
    highest number counts. 0 when the last turn ran no tests."""
    if not unchanged or not unchanged[-1].content.test_runs:
        return 0
    counts = Counter(test_run for turn in unchanged for test_run in turn.content.test_runs)
    return max(counts[test_run] for test_run in unchanged[-1].content.test_runs)


def _count_repeats(unchanged: Sequence[_TurnSummary]) -> int:
    """Count the newest turns in a row all of whose calls had been made before with the same results; turns without
    calls are passed over."""
    earlier_calls, count = set[tuple[bytes, bytes]](), 0
    for turn in unchanged:
        if not turn.content.calls:
            continue
        count = count + 1 if earlier_calls.issuperset(turn.content.calls) else 0
        earlier_calls.update(turn.content.calls)
    return count


def _count_growing_turns(unchanged: Sequence[_TurnSummary]) -> int:
    """Return the number of these turns; 0 when it or the characters they added are below GROWING_WARN. While they have
    added fewer characters than GROWING_STOP asks, the number stays one below that which ends a step."""
    chars, turns = sum(turn.content.chars for turn in unchanged), len(unchanged)
    if turns >= GROWING_STOP[0] and chars < GROWING_STOP[1]:
        turns = GROWING_STOP[0] - 1
    return turns if turns >= GROWING_WARN[0] and chars >= GROWING_WARN[1] else 0
