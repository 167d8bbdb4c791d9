"""Plan, review and tests become pages that a person can read and that only show words."""

from __future__ import annotations

import json

from markdown_it import MarkdownIt

from perdure.adapters.forges.artifacts import artifact_files, fence_text
from perdure.models.checks.report import (
    BaseComparison,
    CommandResult,
    Review,
    ReviewIssue,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.steps import Plan, Task

FORGED = "x @ada closes #1\n\n# Forged\n\n<img src=x> ![x](https://e) <!-- y -->\n```"


def test_plan_review_and_tests_are_pages_that_only_show_words() -> None:
    plan = Plan(
        title=FORGED,
        problem=FORGED,
        solution=FORGED,
        relevant_files=[FORGED],
        tasks=[Task(title=FORGED, details=FORGED, files=[FORGED])],
        validation=[FORGED],
    )
    found = [
        ReviewIssue(
            title=f"{severity} {FORGED}", description=FORGED, severity=severity, file="a.py", line=3, suggestion=FORGED
        )
        for severity in (Severity.SKIPPABLE, Severity.BLOCKER)
    ]
    case = TestCase(name=FORGED, outcome="failed", message=FORGED, command=FORGED, known=True)
    command = CommandResult(name=FORGED, command=FORGED, verdict="failed", tail=FORGED, reason=FORGED, cases=(case,))
    report = TestReport(commit="c" * 40, tree="t" * 40, note=FORGED, fixed=(FORGED,), commands=(command,))
    files = artifact_files(plan, Review(summary=FORGED, issues=found), report, Receipt(worker_deaths=1))
    assert list(files) == ["plan.md", "review.md", "tests.md", "receipt.json"]
    for name in ("plan.md", "review.md", "tests.md"):
        tokens = MarkdownIt("commonmark").parse(files[name].decode())
        kinds = {inner.type for token in tokens for inner in (token, *(token.children or []))}
        assert not {"link_open", "image", "html_inline", "html_block"} & kinds
        tops = [tokens[at + 1].content for at, t in enumerate(tokens) if t.type == "heading_open" and t.level == 0]
        assert "Forged" not in tops
    review = files["review.md"].decode()
    assert review.index("## Blocker: ") < review.index("## Skippable: ")
    assert "`a.py:3`" in review
    assert json.loads(files["receipt.json"])["worker_deaths"] == 1


def test_a_test_report_says_what_failed_how_and_since_when() -> None:
    failed = TestCase(
        name="test_sub", file="t.py", outcome="failed", message="assert 1 == 2", command="pytest t.py", flaky=True
    )
    passed = TestCase(name="test_add", outcome="passed")
    unit = CommandResult(
        name="unit", command="pytest -q", verdict="failed", since=BaseComparison.KNOWN, exit_code=1, duration_s=2.04,
        tail="1 failed", cases=(failed, passed),
    )  # fmt: skip
    lint = CommandResult(name="lint", command="ruff", required=False, verdict="passed", flaky=True, tail="fine")
    report = TestReport(
        commit="c" * 40, tree="t" * 40, base="main", note="1 known", fixed=("old",), commands=(unit, lint)
    )
    text = artifact_files(None, None, report, None)["tests.md"].decode()
    for line in (
        f"On tree `{'t' * 40}`, which is commit `{'c' * 40}`, compared with `main`.",
        "`pytest -q`: failed, exit code 1, as on the base, 2.0 s.",
        "1 passed, 1 failed.",
        "### ✗ t.py: test_sub",
        "Again: `pytest t.py`",
        "- ✗ t.py: test_sub (flaky)",
        "- ✓ test_add",
        "`ruff`: passed, passed when it was run once more, does not decide, 0.0 s.",
        "- old",
        "assert 1 == 2",
        "1 failed",
    ):
        assert line in text.splitlines(), text
    assert "fine" not in text.splitlines()


def test_what_there_is_not_makes_no_file_and_a_quiet_review_says_so() -> None:
    assert artifact_files(None, None, None, None) == {}
    assert (
        "Nothing was found." in artifact_files(None, Review(summary="ok", issues=[]), None, None)["review.md"].decode()
    )


def test_output_cannot_end_its_fence() -> None:
    assert fence_text("a\n````\nb\x1b[0m\r\n") == "`````text\na\n````\nb\n`````"
