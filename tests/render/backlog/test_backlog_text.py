"""A backlog as a person reads it: what waits comes first, with the exact command that decides it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.render.backlog.text import SHOWN_ITEMS, change_lines, deciding_command, headline, status_lines

NOW = datetime(2026, 1, 5, 9, 4, tzinfo=UTC)


def view(id: str, phase: str, **more: object) -> ItemView:
    return ItemView.model_validate({"id": id, "phase": phase, **more})


def night(*items: ItemView, **more: object) -> BacklogProgress:
    said = {"backlog_id": "night", "run_id": "r", "repository": "/r", "status": "running", "branch": "perdure/night"}
    return BacklogProgress.model_validate({**said, "items": items, **more})


NIGHT = night(
    view("api", "landed", commit="9c1d2ab4"),
    view("parser", "landed", commit="77ab0000"),
    view("page", "building", caption="turn 9"),
    view(
        "docs", "waits", because="plan: approve?", gate="plan", since=NOW - timedelta(minutes=4), delivery="night/docs"
    ),
    view("schema", "failed", because="tests red after 4 fixes"),
    view("export", "blocked", blocked_by="schema", because="blocked by schema (tests red after 4 fixes)"),
    view("stats", "ready", because="after cache: same files"),
    usd=6.2,
    budget_usd=40.0,
)


def test_what_waits_comes_first_with_the_command_that_decides_it() -> None:
    lines = status_lines(NIGHT, now=NOW)
    counted = "night  7 items · 2 landed · 1 building · 1 waits for you · 1 blocked · 1 failed · 1 ready"
    assert (lines[0].startswith(counted), lines[0].endswith("  $6.20 of $40.00")) == (True, True)
    assert lines[lines.index("waits for you") + 1].split("  ") == [
        *("", "docs", "plan: approve?", "unblocks 0", "4m 00s", "perdure approve night/docs")
    ]
    assert lines[lines.index("waits for you") + 2 :] == [
        "landed    api 9c1d · parser 77ab",
        "building  page turn 9",
        "blocked   export by schema (tests red after 4 fixes)",
        "failed    schema (tests red after 4 fixes)",
        "ready     stats (after cache: same files)",
    ]


@pytest.mark.parametrize(
    ("gate", "command"),
    [
        ("plan", "perdure approve night/docs"),
        ("pull_request", "perdure approve night/docs"),
        ("landing", "perdure approve night/docs"),
        ("question", 'perdure answer night/docs "…"'),
        ("budget", "perdure budget night/docs --add 5"),
        ("", "perdure show night/docs"),
    ],
)
def test_each_gate_has_its_command(gate: str, command: str) -> None:
    assert deciding_command("night", view("docs", "waits", gate=gate)) == command


def test_where_its_delivery_says_more_exactly_what_it_asks_that_counts() -> None:
    question = Question(text="Which?", kind=QuestionKind.CHOICE, choices=("a", "b"), why="")
    asked = PendingDecision(
        gate=Gate.QUESTION, target="q", summary="Which?", since=NOW, options=("answer",), question=question
    )
    assert (
        deciding_command("night", view("docs", "waits", gate="question"), asked)
        == "perdure answer night/docs --choice 1"
    )


def test_held_and_ended_backlogs_say_so_with_what_to_type() -> None:
    held = status_lines(night(view("a", "ready"), held="held: release day"))
    assert held[1] == "! held: release day    perdure backlog resume night"
    ended = status_lines(
        night(view("a", "landed", commit="abcd123"), status="completed", message="1 landed", pull_request="/r.git#3")
    )
    assert ended[1:3] == ["completed: 1 landed", "pull request  /r.git#3"]


def test_the_command_that_brings_a_lost_branch_back_has_a_line_of_its_own_and_is_whole() -> None:
    push = f"git -C /{'long/' * 100}vault push /origin.git 17e4a050907c:refs/heads/perdure/night"
    why = (
        f"branch perdure/night was put back\n  where: /origin.git\n  fix: bring 17e4a050907c back, then retry:\n{push}"
    )
    stuck = night(
        view("api", "failed", because=why[:300]),
        view("docs", "failed", because="tests red"),
        held=f"held: api could not land: {why}",
        waiting="for its window",
    )
    assert status_lines(stuck)[1:8] == [
        "! held: api could not land: branch perdure/night was put back",
        "    where: /origin.git",
        "    fix: bring 17e4a050907c back, then retry:",
        f"    {push}",
        "    perdure backlog retry night api",
        "    perdure backlog resume night",
        "! waits for its window",
    ]
    assert "failed    api (branch perdure/night was put back) · docs (tests red)" in status_lines(stuck)
    assert f"    {push}" in change_lines(night(), stuck)


def test_a_thousand_items_are_a_screen_and_a_word_about_the_rest() -> None:
    lines = status_lines(night(*(view(f"item-{n}", "ready") for n in range(1000))))
    assert len(lines) < 20
    assert f"… {1000 - SHOWN_ITEMS} more" in lines[-1]
    assert all(len(line) < 200 for line in lines)


def test_words_of_others_move_no_cursor_and_make_no_lines() -> None:
    evil = "x\x1b[2J\nlanded    y"
    for phase in ("waits", "blocked", "failed", "ready", "building", "skipped"):
        said = [
            *status_lines(night(view("a", phase, because=evil, caption=evil), message=evil, held=evil, waiting=evil))
        ]
        assert not any("\x1b" in line or "\n" in line for line in said), phase
    assert not any(
        "\x1b" in line or "\n" in line for line in change_lines(None, night(view("a", "failed", because=evil)))
    )


def test_each_change_is_told_once() -> None:
    first = night(view("api", "building", caption="turn 1"), view("docs", "after", because="api"))
    then = night(
        view("api", "landed", commit="9c1d2ab4"),
        view("docs", "building"),
        view("new", "ready"),
        held="held: release day",
    )
    assert change_lines(None, first) == ["▸ api building"]
    assert change_lines(first, first) == []
    assert (
        change_lines(first, night(view("api", "building", caption="turn 2"), view("docs", "after", because="api")))
        == []
    )
    assert change_lines(first, then) == [
        "✓ api landed as 9c1d2ab",
        "▸ docs building",
        "▸ new was added",
        "! held: release day",
    ]
    asks = night(view("api", "waits", of="1", gate="plan", because="plan: approve?"))
    assert change_lines(night(view("api", "building")), asks) == [
        "! api waits for you: plan: approve?  perdure approve night/api"
    ]
    again = night(view("api", "waits", of="2", gate="plan", because="plan: approve?"))
    assert len(change_lines(asks, again)) == 1


def test_a_reason_does_not_repeat_the_state() -> None:
    stuck = night(
        view("a", "failed", because="failed"), view("b", "blocked", blocked_by="a", because="blocked by a (x)")
    )
    assert change_lines(None, stuck) == ["✗ a failed", "✗ b blocked by a (x)"]
    assert status_lines(stuck)[-2:] == ["blocked   b by a (x)", "failed    a"]
    opening = night(view("a", "ready"), waiting="for its branch")
    assert status_lines(opening)[1] == change_lines(None, opening)[0] == "! waits for its branch"


def test_money_that_nobody_knows_is_no_zero() -> None:
    assert headline(night(view("a", "ready"), usd=None)).endswith("cost unknown")
