"""What a model or a stranger wrote can neither call people, nor close issues, nor hide, nor speak for Perdure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.forges.body import body, neutral, quote, subject, title
from perdure.models.config import RepositoryConfig
from perdure.models.contract import Contract
from perdure.models.ledger import Spend
from perdure.models.report import Issue, Plan, Review, Severity, Task
from perdure.models.result import ReviewResult, ReviewStatus, TestsStatus
from perdure.models.work import ShipInput, TestVerdict

CONTRACT = Contract(
    delivery="d",
    repository="r",
    request="Add sub",
    base="main",
    base_sha="b" * 40,
    branch="perdure/d",
    config=RepositoryConfig(version=1),
)
WORK = ShipInput(
    delivery="d",
    policy="p",
    workflow_id="d",
    base="main",
    branch="perdure/d",
    head="h",
    title="Add sub",
    kind="feature",
)
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["fixes", "Closes", "resolving", "implements", "issue", " ", ": ", "\n", "**", "#12", "GH-7", "o/r#3",
             "@ada", "https://x/issues/1", "<!--", "-->", "<details>", "\x1b[0m", "\u202e", "\u200b", "\t",
             "\r", "\x00"]
        ),
        st.text(max_size=5),
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(PIECES)
def test_no_mention_no_closing_word_no_markup_and_no_control_character_survives(text: str) -> None:
    safe = neutral(text)
    assert not re.search(r"@[\w-]", safe)
    assert not re.search(
        r"(?i)\b(close[sd]?|fix(es|ed)?|resolve[sd]?):?\s+(#\d|gh-\d|[\w.-]+/[\w.-]+#\d|https?://)", safe
    )
    assert not re.search(r"(?i)\b(clos|fix|resolv|implement)(es?|ed|ing|s)?:? +(issues? +)?#\d", safe)
    assert "<" not in safe
    assert all(c in "\n\u200b" or c.isprintable() for c in safe)
    assert all(line.startswith("> ") for line in quote(text).splitlines())


@given(st.sampled_from(["bug", "feature", "chore", "", "other"]), PIECES)
def test_a_subject_is_one_short_conventional_line(kind: str, words: str) -> None:
    line = subject(kind, words)
    assert len(line) <= 72
    assert "\n" not in line
    assert re.match(r"[a-z]+(\([^)]*\))?!?: \S", line)
    assert not re.search(r"@[\w-]", line)


@pytest.mark.parametrize(
    ("kind", "words", "line"),
    [
        ("feature", "Accept compound durations.", "feat: accept compound durations"),
        ("bug", "API errors keep their code", "fix: API errors keep their code"),
        ("", "I/O is closed", "chore: I/O is closed"),
        ("bug", "docs(readme): say a < b", "docs(readme): say a < b"),
        ("bug", " ", "fix: changes"),
        ("chore", "x" * 100, "chore: " + "x" * 64 + "…"),
    ],
)
def test_a_subject_keeps_what_was_meant(kind: str, words: str, line: str) -> None:
    assert subject(kind, words) == line


def test_the_title_is_the_subject_of_the_work() -> None:
    assert title(WORK) == "feat: add sub"


def test_words_stay_apart_where_a_tab_stood_between_them() -> None:
    assert neutral("a\tb\u00a0c\x07") == "a b c"


def test_what_a_model_writes_cannot_forge_the_evidence() -> None:
    forged = "x\n\n### Evidence\n\n- tests: 99 green\n\n```\nhides the rest"
    plan = Plan(
        title="t",
        problem=forged,
        solution=forged,
        relevant_files=[],
        tasks=[Task(title=forged, details="", files=[])],
        validation=[forged],
    )
    issue = Issue(title=forged, description="", severity=Severity.TECH_DEBT, file=forged, line=None, suggestion="")
    named = issue.model_copy(update={"file": "a\n### Evidence", "title": "slow"})
    blocker = issue.model_copy(update={"severity": Severity.BLOCKER})
    tests = TestVerdict(status=TestsStatus.GREEN, tree="c0ffee" * 7, summary="44 green")
    clean = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=2)
    work = WORK.model_copy(update={"tests": tests, "review_result": clean, "spend": Spend(usd=0.5, at_risk_usd=0.2)})
    text = body(work, CONTRACT, plan, Review(summary="", issues=[issue, named, blocker]))
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### Problem", "### Solution", "### Tasks", "### How to check", "### Evidence", "### Noted, not blocking",
    ]  # fmt: skip
    assert not [line for line in text.splitlines() if line.startswith("```")]
    assert "- tests: 44 green, on tree `c0ffeec0ffee`" in text
    assert "- cost: $0.50, at most $0.20 more for replies cut off" in text
    assert text.count("**tech debt**") == 2


def test_a_draft_says_so_first_and_what_was_not_done_is_named() -> None:
    text = body(
        WORK.model_copy(update={"draft_reason": "tests are red"}), CONTRACT, None, Review(summary="", issues=[])
    )
    assert text.startswith("> **Draft:** tests are red\n")
    assert "- tests: not run" in text
    assert "- review: not done" in text
    assert "###" in text
    assert "### Problem" not in text
    none = TestVerdict(status=TestsStatus.NONE, tree="")
    assert "no test command" in body(WORK.model_copy(update={"tests": none}), CONTRACT, None, None)


def test_a_plan_without_tasks_or_checks_has_no_empty_sections() -> None:
    plan = Plan(title="t", problem="p", solution="s", relevant_files=[], tasks=[], validation=[])
    text = body(WORK, CONTRACT, plan, None)
    assert "### Tasks" not in text
    assert "### How to check" not in text
