"""A step that would end with edits no test has seen is told so, once."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.agents.builtin.conversation import Continue, StepFinished, decide_next
from perdure.adapters.agents.builtin.progress import UNTESTED, untested_reminder
from perdure.models.config.repository import TestCommand
from perdure.models.phases import Step
from tests.adapters.agents.builtin.replies import OPENING, reply, text, use

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
