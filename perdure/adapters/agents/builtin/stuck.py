"""Steps that go in circles: two trees in turn, tests run again unchanged, nothing new, much read and nothing changed.

A word to the model comes first; a step that goes on all the same is ended. A false alarm costs a delivery and a late
one some turns: every limit is far above what honest work was seen to need, and words from a person begin anew.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from perdure.adapters.agents.builtin.said import spoken
from perdure.adapters.agents.builtin.tools.run import calls_in, command_in, texts_in
from perdure.adapters.agents.builtin.untested import runs_tests
from perdure.models.config import TestCommand

ALTERNATING_WORD, ALTERNATING_STOP = 6, 12
"""Times in a row that the files come back to what they were two changes before: trying a change by taking it out and
putting it back takes two or three."""

RETESTING_WORD, RETESTING_STOP = 5, 10
"""Runs of one test command with one result and no change in between: three tell a flaky test."""

STANDING_WORD, STANDING_STOP = 6, 12
"""Turns in a row whose calls were all made before, with the same results, since the last change."""

GROWING_WORD, GROWING_STOP = (30, 100_000), (50, 200_000)
"""Turns without a change in a step that writes, and the characters they added: a hard bug is found in some twenty."""

AFTER_WORD = 3
"""Turns that a step has after the word, however far beyond the limit it is."""

TREES_SEEN = 200
"""Checkpoints that are looked at: far more than any limit, and one call of git."""

STUCK = "You are going in circles"
"""The beginning of the word; it is looked for in the transcript, so that a crash does not grant another one."""

_NUMBER = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d+(?:\.\d+)?")
"""Left out of results that are compared: times, process ids and addresses change with every run."""

_WAITING = frozenset({"write_stdin", "BashOutput", "TaskOutput", "read_bash"})
"""Tools of other agents that look after a command that goes on: asked again and again while it does."""

Message = dict[str, Any]


class Circle(StrEnum):
    """The ways of getting nowhere, as people read them."""

    ALTERNATING = "two versions of the files in turn"
    RETESTING = "the same test run again and again, unchanged"
    STANDING = "no progress"
    GROWING = "a growing conversation without a change"


@dataclass(frozen=True)
class Stuck:
    """`often`: as the circle counts. `word`: for the model, None when it has had it. `over`: the step is to end."""

    circle: Circle
    often: int
    word: str | None
    over: bool

    def __str__(self) -> str:
        return f"{self.circle}: {self.often} times"


@dataclass(frozen=True)
class _Round:
    """One turn: its calls with their results, the tree before and after, what it added, the words it ended with."""

    calls: tuple[tuple[str, str], ...]
    tests: tuple[tuple[str, str], ...]
    before: str
    after: str
    chars: int
    texts: tuple[str, ...]


def stuck(
    transcript: Sequence[Message], trees: Sequence[str], tests: Sequence[TestCommand] = (), *, writes: bool = True
) -> Stuck | None:
    """The circle that a step is in, None when it is in none that is worth a word.

    transcript  ends with the user message that follows the newest finished turn
    trees       of the files before the first turn and after each finished one, or the newest of these
    """
    rounds = _rounds(transcript, trees, tests)
    still = _since_change(rounds)
    returns = _returns(rounds)
    found = [
        _judged(Circle.ALTERNATING, returns, ALTERNATING_WORD, ALTERNATING_STOP, rounds[-4 * returns :]),
        _judged(Circle.RETESTING, _retests(still), RETESTING_WORD, RETESTING_STOP, still),
        _judged(Circle.STANDING, _repeats(still), STANDING_WORD, STANDING_STOP, still),
    ]
    if writes and (limit := _grown(still)):
        found.append(_judged(Circle.GROWING, limit, GROWING_WORD[0], GROWING_STOP[0], still))
    known = [one for one in found if one is not None]
    return next((one for one in known if one.over), next((one for one in known if one.word), None))


def may_be_stuck(transcript: Sequence[Message], tests: Sequence[TestCommand] = ()) -> bool:
    """False where `stuck` finds no circle, whatever the trees are: they need not be looked at."""
    rounds = _rounds(transcript, (), tests)
    return len(rounds) >= min(ALTERNATING_WORD, STANDING_WORD) or _retests(rounds) >= RETESTING_WORD


def warned(transcript: Sequence[Message]) -> str:
    """The newest word about a circle that stands in a conversation; empty: none."""
    texts = [text for message in transcript if message["role"] == "user" for text in texts_in(message)]
    return next((line for text in reversed(texts) for line in text.splitlines() if line.startswith(STUCK)), "")


def _judged(circle: Circle, often: int, least: int, stop: int, rounds: Sequence[_Round]) -> Stuck | None:
    if often < least:
        return None
    mark = f"{STUCK}: {circle}"
    told = next((n for n, one in enumerate(reversed(rounds)) if any(mark in t for t in one.texts)), None)
    if told is None:
        return Stuck(
            circle, often, f"{mark} ({often} times). {_ADVICE[circle]} If it goes on, the step is ended.", False
        )
    return Stuck(circle, often, None, over=often >= stop and told >= AFTER_WORD)


_ADVICE = {
    Circle.ALTERNATING: "Decide for one version and say why, or find what both of them miss.",
    Circle.RETESTING: "The result will not change by itself: change something, look elsewhere, or finish.",
    Circle.STANDING: "You know these results already: do something else, or finish with what you know.",
    Circle.GROWING: "Change something small now with what you know, or finish and say what stands in the way.",
}


def _rounds(transcript: Sequence[Message], trees: Sequence[str], tests: Sequence[TestCommand]) -> list[_Round]:
    """Those since the last words of a person, oldest first."""
    pairs = [
        (said, answer)
        for said, answer in pairwise(transcript)
        if said["role"] == "assistant" and answer["role"] == "user"
    ]
    found = list[_Round]()
    opening = texts_in(transcript[0]) if transcript else []  # an agent that was begun anew has its word there
    for place, (said, answer) in enumerate(pairs):
        later = len(pairs) - 1 - place
        known = later + 2 <= len(trees)
        before, after = (trees[-2 - later], trees[-1 - later]) if known else ("", "")
        found.append(_round(said, answer, before, after, tests, [] if place else opening))
        if spoken([answer]):
            found.clear()
    return found


def _round(
    said: Message, answer: Message, before: str, after: str, tests: Sequence[TestCommand], texts: Sequence[str]
) -> _Round:
    results = {b["tool_use_id"]: b.get("content") for b in answer["content"] if b.get("type") == "tool_result"}
    calls, run = list[tuple[str, str]](), list[tuple[str, str]]()
    for call in calls_in(said):
        if call["name"] in _WAITING:
            continue
        asked = json.dumps([call["name"], call["input"]], sort_keys=True)
        told = _NUMBER.sub("", json.dumps(results.get(call["id"])))
        calls.append((asked, told))
        if (command := command_in(call)) and runs_tests(command, tests):
            run.append((" ".join(command.split()), told))
    chars = len(json.dumps([said["content"], answer["content"]], ensure_ascii=False))
    return _Round(tuple(calls), tuple(run), before, after, chars, (*texts, *texts_in(answer)))


def _since_change(rounds: Sequence[_Round]) -> list[_Round]:
    changed = [place for place, one in enumerate(rounds) if one.before != one.after]
    return list(rounds[changed[-1] + 1 :] if changed else rounds)


def _returns(rounds: Sequence[_Round]) -> int:
    """Newest changes in a row that each brought back the files of two changes before; 0 when the last turn changed
    nothing, for then it has stopped."""
    if not rounds or rounds[-1].before == rounds[-1].after:
        return 0
    states = [rounds[0].before]
    states += [one.after for one in rounds if one.before != one.after]
    often = 0
    for newer, older in zip(reversed(states), reversed(states[:-2]), strict=False):
        if newer != older:
            break
        often += 1
    return often


def _retests(still: Sequence[_Round]) -> int:
    if not still or not still[-1].tests:
        return 0
    counts = Counter(one for turn in still for one in turn.tests)
    return max(counts[one] for one in still[-1].tests)


def _repeats(still: Sequence[_Round]) -> int:
    """Newest turns in a row all of whose calls had been made before with the same results."""
    known, often = set[tuple[str, str]](), 0
    for one in still:
        if not one.calls:
            continue
        often = often + 1 if known.issuperset(one.calls) else 0
        known.update(one.calls)
    return often


def _grown(still: Sequence[_Round]) -> int:
    """Turns without a change, as far as they added enough; 0 when they did not."""
    chars, turns = sum(one.chars for one in still), len(still)
    if turns >= GROWING_STOP[0] and chars < GROWING_STOP[1]:
        turns = GROWING_STOP[0] - 1
    return turns if turns >= GROWING_WORD[0] and chars >= GROWING_WORD[1] else 0
