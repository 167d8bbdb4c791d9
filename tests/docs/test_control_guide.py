"""docs/control.md says what the commands and messages are."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer.main

from perdure.cli.app import app
from perdure.models.base import UserInputModel
from perdure.models.delivery.decisions import (
    Decide,
    Gate,
    Hold,
    PendingDecision,
    Question,
    QuestionKind,
    Resume,
    Rewind,
    Say,
    parse_input,
)
from perdure.models.rules.inbox import DECISION_MODELS
from perdure.render.decision_lines import pending_lines

GUIDE = (Path(__file__).parents[2] / "docs" / "control.md").read_text(encoding="utf-8")
NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
ID = "durations-parse-3f9c"

MESSAGES: dict[str, type[UserInputModel]] = {
    **DECISION_MODELS,
    "say": Say,
    "hold": Hold,
    "resume": Resume,
    "rewind": Rewind,
    "decide": Decide,
}


@pytest.mark.parametrize(
    "asked",
    [
        PendingDecision(
            gate=Gate.PLAN,
            target="1a2b3c4d",
            summary="approve the plan: Accept compound durations",
            since=NOON,
            options=("approve", "reject", "edit_plan"),
        ),
        PendingDecision(
            gate=Gate.QUESTION,
            target="plan-1-2",
            summary="question",
            since=NOON,
            options=("answer",),
            question=Question(
                text="Shall negative durations be an error?",
                kind=QuestionKind.CHOICE,
                choices=("yes, ValueError", "no, keep them"),
                why='two callers pass -1 for "for ever"',
            ),
        ),
    ],
    ids=["plan", "question"],
)
def test_what_a_waiting_delivery_says_is_shown_as_it_is_said(asked: PendingDecision) -> None:
    assert "\n".join(pending_lines(asked, ID)) in GUIDE


def test_every_command_and_option_of_the_guide_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined] # it is a group
    shown = re.findall(r"perdure ([a-z-]+)((?: [^`\n#;]*)?)", re.sub(r"\n *plan\.yaml", " plan.yaml", GUIDE))
    assert {name for name, _ in shown} >= {
        "approve",
        "reject",
        "answer",
        "budget",
        "say",
        "hold",
        "cancel",
    }
    for name, rest in shown:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name


def test_the_messages_of_the_guide_are_understood_and_none_is_left_out() -> None:
    rows = re.findall(r"^\| (?:update|signal) \| (.+?) \| (.+) \|$", GUIDE, re.MULTILINE)
    named = {name for names, _ in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert named == set(MESSAGES)
    for names, examples in rows:
        (first, *_) = re.findall(r"`([a-z_]+)`", names)
        for written in re.findall(r"`(\{.*?\}+)`", examples):
            said = json.loads(written.replace("SHA-256 of an artifact", 64 * "a"))
            parse_input(MESSAGES[first], said)
