"""A change as it is reviewed: by file, bounded, findings at their lines, test facts at their files."""

from __future__ import annotations

import time

from perdure.models.checks.report import (
    CanaryOutcome,
    CommandExperiment,
    CommandResult,
    Experiment,
    Promise,
    Review,
    ReviewIssue,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.result import DecisionMade
from perdure.render.change import (
    CHANGE_LINES_SHOWN,
    FILE_LINES_SHOWN,
    LINE_CHARS_SHOWN,
    review_change,
)
from perdure.render.decision_lines import decision_subject, earlier_rejection
from perdure.render.formatting import repository_label
from perdure.render.report.gather import DIFF_CUT_NOTE
from tests.render.report.report_samples import START, sample

PATCH = """diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,4 @@ def add
 def add(a, b):
-    return a
+    # \u202etrojan
+    return a + b
 x = 1
\\ No newline at end of file
diff --git a/tests/test_calc.py b/tests/test_calc.py
new file mode 100755
--- /dev/null
+++ b/tests/test_calc.py
@@ -0,0 +1 @@
+def test_add(): ...
diff --git a/logo.png b/logo.png
index 1..2 100644
Binary files a/logo.png and b/logo.png differ
"""


def report_of(patch: str, **fields):  # type: ignore[no-untyped-def]
    return sample().model_copy(update={"diff": patch, "reviewed": None, "findings": None, "test_report": None} | fields)


def issue(title: str, file: str, line: int | None) -> ReviewIssue:
    return ReviewIssue(
        title=title, description="", severity=Severity.BLOCKER, file=file, line=line, suggestion="", screenshots=[]
    )


def test_each_line_has_its_numbers_and_what_nobody_sees_is_named() -> None:
    calc, tests, logo = review_change(report_of(PATCH)).files
    assert [(line.kind, line.before, line.after) for line in calc.lines] == [
        ("place", None, None),
        ("", 1, 1),
        ("gone", 2, None),
        ("added", None, 2),
        ("added", None, 3),
        ("", 3, 4),
        ("place", None, None),
    ]
    assert calc.lines[3].text == "    # ⟨U+202E⟩trojan"
    assert calc.lines[-1].text == "No newline at end of file"
    assert (calc.added, calc.deleted, calc.is_test) == (2, 1, False)
    assert (tests.is_test, tests.notes) == (True, ("new, executable",))
    assert (logo.lines, logo.notes) == ((), ("binary: its bytes are not shown",))


def test_findings_stand_at_their_lines_and_those_elsewhere_are_not_lost() -> None:
    issues = [issue("here", "calc.py", 3), issue("far", "calc.py", 900), issue("nowhere", "gone.py", 1)]
    change = review_change(report_of(PATCH, reviewed=Review(summary="", issues=issues)))
    calc = change.files[0]
    assert [(line.after, [point.title for point in line.points]) for line in calc.lines if line.points] == [
        (3, ["here"])
    ]
    assert [point.title for point in calc.points] == ["far"]
    assert [point.title for point in change.points] == ["nowhere"]


def test_a_file_of_tests_says_how_it_ran_and_what_the_experiments_found() -> None:
    path = "tests/test_calc.py"
    cases = tuple(
        TestCase(name=f"{path}::test_{n}", file=path, outcome=outcome)
        for n, outcome in enumerate(("passed", "passed", "failed", "errored"))
    )
    experiment = CommandExperiment(
        name="unit",
        command="pytest",
        proving=(f"{path}::test_0", "elsewhere"),
        promises=(Promise(name="test_old", file=path),),
        canaries=CanaryOutcome.CAUGHT,
    )
    report = TestReport(
        commit="c",
        tree="t",
        commands=(CommandResult(name="unit", command="pytest", verdict="failed", cases=cases),),
        experiment=Experiment(base="b", change="c", commands=(experiment,)),
    )
    calc, tests, _ = review_change(report_of(PATCH, test_report=report)).files
    assert tests.test_facts == (
        "2 failed, 2 passed",
        "1 new test fails without the change",
        "1 test of the base fails on the change",
        "canaries caught",
    )
    assert calc.test_facts == ()


def test_a_change_of_20_000_lines_and_a_line_of_5_mb_are_cut_with_what_is_left_out() -> None:
    long = "diff --git a/long.min.js b/long.min.js\n--- a/long.min.js\n+++ b/long.min.js\n@@ -0,0 +1 @@\n+"
    began = time.process_time()
    (file,) = review_change(report_of(long + "x" * 5_000_000 + "\n")).files
    assert (len(file.lines[1].text), file.lines[1].omitted) == (LINE_CHARS_SHOWN, 5_000_000 - LINE_CHARS_SHOWN)
    many = "".join(
        f"diff --git a/f{n}.py b/f{n}.py\n--- a/f{n}.py\n+++ b/f{n}.py\n@@ -0,0 +1,5000 @@\n" + "+x = 1\n" * 5000
        for n in range(4)
    )
    change = review_change(report_of(many + DIFF_CUT_NOTE))
    assert change.is_cut
    assert [len(file.lines) for file in change.files] == [
        FILE_LINES_SHOWN,
        FILE_LINES_SHOWN,
        CHANGE_LINES_SHOWN - 2 * FILE_LINES_SHOWN,
        0,
    ]
    assert [len(file.lines) + file.omitted_lines for file in change.files] == [5001] * 4
    assert change.added == 20_000
    assert time.process_time() - began < 20, "bounded, and not more than that"


def test_a_decision_is_named_by_what_it_is_bound_to_and_a_rejection_of_the_same_is_remembered() -> None:
    asked = PendingDecision(gate="pull_request", target="0fdf8d01-2", summary="", since=START)
    assert decision_subject(asked) == "commit 0fdf8d0"
    before = DecisionMade(gate="pull_request", target="0fdf8d01-1", verdict="rejected", by="ada", note="no")
    other = DecisionMade(gate="pull_request", target="aaaaaaaa", verdict="rejected", by="eve", note="no")
    assert earlier_rejection((before, other), asked) == before
    assert earlier_rejection((other,), asked) is None


def test_a_repository_is_called_by_its_folder_or_its_owner_and_name() -> None:
    labels = {
        "/home/ada/calc.git": "calc",
        "/home/ada/calc/": "calc",
        "https://github.com/acme/calc.git": "acme/calc",
        "git@github.com:acme/calc.git": "acme/calc",
        "https://user:token@git.example.org/a/b": "git.example.org/a/b",
        "file:///srv/x.git": "x",
        "": "",
    }
    assert {written: repository_label(written) for written in labels} == labels
