"""Steps that go in circles are told so, then ended; honest ones never are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replies import OPENING, reply

from perdure.adapters.agents.builtin.conversation import StepFinished, decide_next, results_message
from perdure.adapters.agents.builtin.progress import (
    ALTERNATING_STOP,
    ALTERNATING_WARN,
    GROWING_STOP,
    GROWING_WARN,
    RETESTING_STOP,
    RETESTING_WARN,
    STANDING_STOP,
    STANDING_WARN,
    STUCK,
    CircleKind,
    find_circle,
    may_be_in_circle,
)
from perdure.adapters.agents.builtin.user_messages import add_user_messages
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.turn import Ending
from perdure.models.phases import Step

TESTS = (TestCommand(command="python -m pytest -q"),)

Turn = tuple[str, str, str]
"""A shell command, its result, the tree after it."""


def played(
    turns: Sequence[Turn], *, writes: bool = True, words_at: int = -1, tool: tuple[str, str] = ("bash", "command")
) -> tuple[list[int], StepFinished | None]:
    """In which turns a word was said, and the end, as the loop itself goes through them."""
    told: list[dict[str, Any]] = [OPENING]
    trees, said = ["base"], list[int]()
    for place, (command, result, tree) in enumerate(turns):
        circle = find_circle(told, trees, TESTS, writes=writes)
        assert circle is None or may_be_in_circle(told, TESTS), "the trees would not have been looked at"
        call = {"type": "tool_use", "id": f"t{place}", "name": tool[0], "input": {tool[1]: command}}
        answer = reply(call, stop="tool_use")
        following = decide_next(Step.IMPLEMENT, answer, told, tests=TESTS, circle=circle)
        if isinstance(following, StepFinished):
            return said, following
        block = {"type": "tool_result", "tool_use_id": f"t{place}", "content": result}
        message = results_message([block], [*told, answer.message], circle)
        said += [place for one in message["content"] if one.get("text", "").startswith(STUCK)]
        told += [answer.message, message]
        if place == words_at:
            told = add_user_messages(told, [UserMessage(id="w", text="go on like this")])
        trees.append(tree)
    return said, None


def alternating(count: int) -> list[Turn]:
    return [(f"edit {n}", "exit code 0", tree) for n, tree in zip(range(count), cycle(["a", "b"]), strict=False)]


def retesting(count: int) -> list[Turn]:
    """Between the runs something else is read each time: it is not the same call in a row, and not without news."""
    return [
        turn
        for n in range(count)
        for turn in (("pytest -q", f"1 failed in 0.{n} s", "base"), (f"cat {'x' * n}", "x" * n, "base"))
    ]


def standing(count: int) -> list[Turn]:
    return list(islice(cycle([("ls", "a b", "base"), ("cat a", "1", "base"), ("cat b", "2", "base")]), count))


def growing(count: int) -> list[Turn]:
    return [(f"cat {'y' * n}", "z" * 5000 + "y" * n, "base") for n in range(count)]


@pytest.mark.parametrize(
    ("made", "circle", "word", "stop"),
    [
        (alternating, CircleKind.ALTERNATING, ALTERNATING_WARN, ALTERNATING_STOP),
        (retesting, CircleKind.RETESTING, RETESTING_WARN, RETESTING_STOP),
        (standing, CircleKind.STANDING, STANDING_WARN, STANDING_STOP),
        (growing, CircleKind.GROWING, GROWING_WARN[0], GROWING_STOP[0]),
    ],
)
def test_a_circle_is_told_once_and_then_ends_the_step_by_its_name(
    made: Callable[[int], list[Turn]], circle: CircleKind, word: int, stop: int
) -> None:
    said, end = played(made(200))
    assert len(said) == 1
    assert said[0] >= word
    assert end is not None
    assert end.outcome.ending is Ending.LOOPING
    assert end.outcome.summary == f"{circle}: {stop} times"


def test_the_tools_of_other_agents_count_and_what_changes_by_itself_in_their_results_does_not() -> None:
    chunks = [("pytest -q", f"Chunk ID: {hash(str(n)) & 0xFFFFFF:06x}1\n1 failed", "base") for n in range(60)]
    _, end = played(chunks, tool=("exec_command", "cmd"))
    assert end is not None
    assert end.outcome.ending is Ending.LOOPING


def test_one_that_waits_for_its_command_goes_in_no_circle() -> None:
    waits = [(" " * (n % 2), "still running", "base") for n in range(60)]
    assert played(waits, tool=("write_stdin", "chars")) == ([], None)


@pytest.mark.parametrize("made", [alternating, retesting, standing, growing])
def test_what_stops_after_the_word_goes_on(made: Callable[[int], list[Turn]]) -> None:
    said, end = played(made(200))
    assert end is not None
    turns = [*made(200)[: said[0] + 1], *((f"write {'n' * n}", "exit code 0", f"n{n}") for n in range(60))]
    again, end = played(turns)
    assert (again, end) == (said, None)


def test_words_of_a_person_begin_anew() -> None:
    turns = alternating(ALTERNATING_STOP + 2)
    assert played(turns)[0]
    assert played(turns, words_at=ALTERNATING_STOP // 2 + 1) == ([], None)


def test_a_reading_step_may_read_as_long_as_it_finds_something_new() -> None:
    assert played(growing(2 * GROWING_STOP[0]), writes=False) == ([], None)


def test_a_change_that_is_taken_out_and_put_back_to_try_the_tests_is_no_circle() -> None:
    turns = list[Turn]()
    for n in range(20):
        good = f"good {n}"
        turns += [("edit", "exit code 0", good), ("pytest -q", "1 passed in 0.1 s", good)]
        turns += [("git stash", "exit code 0", "base"), ("pytest -q", "1 failed in 0.2 s", "base")]
    assert played(turns) == ([], None)


def test_a_flaky_test_that_is_run_four_times_is_no_circle() -> None:
    turns = [t for n in range(12) for t in [*retesting(4), ("edit", "exit code 0", f"tree {n}")]]
    assert played(turns) == ([], None)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(0, 4)), min_size=12, max_size=20))
def test_an_honest_long_conversation_is_never_disturbed(work: list[tuple[int, bool, int]]) -> None:
    """Reads, an edit that makes something new, tests once or twice, sometimes a read of what is known."""
    turns, tree = list[Turn](), "base"
    for n, (reads, flaky, known) in enumerate(work):
        turns += [(f"cat {chr(97 + n % 26)}{'x' * r}", "text", tree) for r in range(reads)]
        turns += [("cat README", "text", tree)] * min(known, 2)
        tree = f"tree {n}"
        turns += [("edit", "exit code 0", tree)]
        turns += [("pytest -q", f"{n} passed in 0.{n} s", tree)] * (2 if flaky else 1)
    assert played(turns) == ([], None)
