"""The whole loop with real parts: questions over HTTP to the twin, tools in a worktree, circles, typed ends."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from agent_turns import turns
from hypothesis import given, settings
from hypothesis import strategies as st
from replies import OPENING, reply, text, use

from perdure.adapters.agents.builtin.conversation import (
    Continue,
    StepFinished,
    decide_next,
    results_message,
)
from perdure.adapters.agents.builtin.model import Model
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
    UNTESTED,
    CircleKind,
    find_circle,
    may_be_in_circle,
    untested_reminder,
)
from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.adapters.agents.builtin.user_messages import add_user_messages
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.turn import Ending
from perdure.models.phases import Step

PlayedModel = Callable[..., Awaitable[tuple[Any, Model]]]

IMPLEMENT = """
[[line]]
turn = 1
think = "Look first."
use = [{ tool = "grep", input = { pattern = "def parse" } }, { tool = "read", input = { path = "src/durations.py" } }]
[[line]]
turn = 2
say = "Now the change."
use = [
    { tool = "edit", input = { path = "src/durations.py", old = "int(text)", new = "float(text)" } },
    { tool = "bash", input = { command = "grep -c float src/durations.py" } },
]
[[line]]
last = "exit code 0"
say = "Accept fractions\\n\\nBecause."
"""


async def test_a_step_reads_edits_runs_and_ends(played: PlayedModel, walled: Toolbox, worktree: Path) -> None:
    twin, model = await played(IMPLEMENT)
    done, count = await turns(model, walled, Step.IMPLEMENT)
    assert (count, done.outcome.ending, done.outcome.summary) == (3, Ending.DONE, "Accept fractions")
    assert "float(text)" in (worktree / "src/durations.py").read_text()
    assert twin.prefix_breaks == 0


PLAN = {
    "title": "Accept fractions", "problem": "p", "solution": "s", "relevant_files": ["src/durations.py"],
    "tasks": [{"title": "t", "details": "d", "files": []}], "validation": ["v"],
}  # fmt: skip
REVIEW = {
    "summary": "s",
    "issues": [
        {"title": "t", "description": "d", "severity": "blocker", "file": "", "line": 3, "suggestion": "s"},
    ],
}


@pytest.mark.parametrize(
    ("step", "answer", "summary"),
    [
        (Step.CLASSIFY, {"kind": "feature", "reason": "r"}, "feature"),
        (Step.PLAN, PLAN, "1 task, 1 file"),
        (Step.REVIEW, REVIEW, "1 blocker"),
    ],
)
async def test_structured_steps_answer_by_the_schema_they_were_given(
    played: PlayedModel, toolbox: Toolbox, step: Step, answer: dict[str, Any], summary: str
) -> None:
    script = f"[[line]]\nanswer = {_toml(answer)}\n"
    _, model = await played(script)
    done, _ = await turns(model, toolbox, step, diff="+ x", plan="p")
    assert done.outcome.summary == summary


async def test_an_answer_in_prose_is_asked_for_again_and_mended(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played("""
[[line]]
last = "not accepted"
answer = { kind = "bug", reason = "r" }
[[line]]
say = "It is a bug, I think."
""")
    done, count = await turns(model, toolbox, Step.CLASSIFY)
    assert (count, done.outcome.data) == (2, {"kind": "bug"})


async def test_a_call_cut_off_by_the_length_limit_is_answered_and_made_again(
    played: PlayedModel, toolbox: Toolbox, worktree: Path
) -> None:
    _, model = await played("""
[[line]]
turn = 1
use = [{ tool = "write", input = { path = "a.txt", content = "a very long text that is cut somewhere" } }]
fault = "max_tokens"
[[line]]
last = "cut off"
use = [{ tool = "write", input = { path = "a.txt", content = "short" } }]
[[line]]
last = "written"
say = "Write a file"
""")
    _, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert count == 3
    assert (worktree / "a.txt").read_text() == "short"


async def test_a_model_that_calls_a_tool_it_does_not_have_goes_on(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played("""
[[line]]
turn = 1
use = [{ tool = "browse", input = { url = "x" }, unknown = true }]
[[line]]
last = "there is no tool"
say = "Never mind"
""")
    assert (await turns(model, toolbox, Step.IMPLEMENT))[1] == 2


async def test_a_loop_without_end_is_nudged_and_then_ended(played: PlayedModel, toolbox: Toolbox) -> None:
    twin, model = await played('[[line]]\nuse = [{ tool = "glob", input = { pattern = "*.py" } }]\n')
    done, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert (count, done.outcome.ending) == (5, Ending.LOOPING)
    assert "3 times in a row" in json.dumps(twin.calls[3].body)


async def test_a_refusal_ends_the_step_as_one(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played('[[line]]\nfault = "refusal"\n')
    assert (await turns(model, toolbox, Step.PLAN))[0].outcome.ending is Ending.REFUSED


@pytest.mark.parametrize("calls", [1, 8, 12])
async def test_nine_tenths_of_thirty_turns_are_read_from_the_cache(
    played: PlayedModel, toolbox: Toolbox, worktree: Path, calls: int
) -> None:
    for number in range(calls):
        (worktree / f"file{number}.txt").write_text(f"line of file {number}\n" * 30)
    lines = []
    for turn in range(1, 31):
        uses = ", ".join(
            f'{{ tool = "read", input = {{ path = "file{n}.txt", offset = {turn % 29 + 1} }} }}' for n in range(calls)
        )
        lines.append(f"[[line]]\nturn = {turn}\nuse = [{uses}]\n")
    twin, model = await played("".join(lines) + '[[line]]\nturn = 31\nsay = "Done"\n')
    _, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert count == 31
    usage = [call.usage for call in twin.calls]
    read = sum(u["cache_read_input_tokens"] for u in usage)
    sent = read + sum(u["input_tokens"] + u["cache_creation_input_tokens"] for u in usage)
    assert read / sent >= 0.9, f"{read / sent:.1%}"
    assert twin.prefix_breaks == 0


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


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


UNITTEST = (TestCommand(command="python3 -m unittest -q"),)


def done(*calls: dict[str, Any], wrong: bool = False) -> list[dict[str, Any]]:
    """One turn each, with its result."""
    told: list[dict[str, Any]] = [OPENING]
    for number, call in enumerate(calls, 1):
        named = call | {"id": f"toolu_{number}"}
        result = {
            "type": "tool_result",
            "tool_use_id": named["id"],
            "content": "x",
            **({"is_error": True} if wrong else {}),
        }
        told += [{"role": "assistant", "content": [named]}, {"role": "user", "content": [result]}]
    return told


EDIT = use("edit", path="a.py", old="1", new="2")
RUN = use("bash", command="python3 -m unittest tests.test_a")


def test_a_step_that_ends_after_an_edit_is_told_once_and_then_may_end() -> None:
    told = done(RUN, EDIT)
    said = reply(text("Mend a"))
    word = decide_next(Step.IMPLEMENT, said, told, tests=UNITTEST)
    assert isinstance(word, Continue)
    assert "`python3 -m unittest -q`" in word.user_message["content"][0]["text"]
    again = decide_next(Step.IMPLEMENT, said, [*told, said.message, word.user_message], tests=UNITTEST)
    assert isinstance(again, StepFinished)
    assert again.outcome.summary == "Mend a"


@pytest.mark.parametrize("calls", [(EDIT, RUN), (RUN,), (), (use("read", path="a.py"),)], ids=str)
def test_a_step_that_changed_nothing_or_ran_tests_since_is_told_nothing(calls: tuple[dict[str, Any], ...]) -> None:
    assert untested_reminder(Step.IMPLEMENT, done(*calls), UNITTEST) is None


def test_an_edit_that_was_refused_changed_nothing() -> None:
    assert untested_reminder(Step.IMPLEMENT, done(EDIT, wrong=True), UNITTEST) is None


@pytest.mark.parametrize("step", [Step.PLAN, Step.REVIEW, Step.DOCUMENT])
def test_steps_that_are_told_no_test_commands_or_change_nothing_are_not_reminded(step: Step) -> None:
    assert untested_reminder(step, done(EDIT), UNITTEST) is None


def test_without_a_test_command_there_is_nothing_to_run() -> None:
    assert untested_reminder(Step.IMPLEMENT, done(EDIT), ()) is None


@pytest.mark.parametrize(
    ("command", "ran", "counts"),
    [
        ("npm run check:unit", "npm run check:unit -- a.js", True),
        ("cargo test", "cargo build", False),
        ("cargo test --all", "cargo test parses", True),
        ("go test ./...", "cd cmd && go test .", True),
        ("./scripts/verify.sh", "bash scripts/verify.sh fast", True),
        ("node --test", "node --test a.test.js", True),
        ("make check", "make lint", False),
        ("python3 -m pytest -q", "cat src/a.py && git diff", False),
        ("ENV=1 pytest", "pytest -k a", True),
        ("python3 -c 'it''s'", "python3 -c 'it''s'", True),
    ],
)
def test_tests_were_run_where_a_command_says_so_in_a_telling_word(command: str, ran: str, counts: bool) -> None:
    told = done(EDIT, use("bash", command=ran))
    assert (untested_reminder(Step.FIX_TESTS, told, (TestCommand(command=command),)) is None) is counts


def test_a_test_command_of_a_directory_is_named_with_it() -> None:
    word = untested_reminder(Step.IMPLEMENT, done(EDIT), (TestCommand(command="npm test", directory="web app"),))
    assert word is not None
    assert word.startswith(UNTESTED)
    assert "`cd 'web app' && npm test`" in word
