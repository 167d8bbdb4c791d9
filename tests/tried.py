"""A recorded experiment with all that faces show: two changed promises, one of them justified, and their review."""

from __future__ import annotations

from perdure.models.checks.report import (
    CanaryOutcome,
    CommandExperiment,
    Experiment,
    Justification,
    Promise,
    Review,
    TestReport,
)
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestVerdict

LINE = "39/41 of main's own tests pass on the change · 4 new tests fail without it · canaries caught"
ADD, ZERO = "tests/test_calc.py::test_add", "tests/test_calc.py::test_zero"
QUOTE = "let add count backwards"


def version(result: int) -> str:
    return f"def test_add():\n    assert add(1, 2) == {result}\n"


def tried(**changes: object) -> Experiment:
    told = {
        "base_tests": 41,
        "base_passed": 39,
        "canaries": CanaryOutcome.CAUGHT,
        "proving": ("a", "b", "c", "d"),
        "promises": (
            Promise(name=ADD, file="tests/test_calc.py", message="E 3 != -1", before=version(3), after=version(-1)),
            Promise(name=ZERO, file="tests/test_calc.py", before="def test_zero(): …", after="def test_zero(): …"),
        ),
    }
    one = CommandExperiment.model_validate({"name": "unit", "command": "pytest", **told, **changes})
    return Experiment(base="b" * 40, change="c" * 40, branch="main", touched=("tests/test_calc.py",), commands=(one,))


def report(**changes: object) -> TestReport:
    return TestReport(commit="c" * 40, tree="d" * 40, base="main", experiment=tried(**changes))


REVIEW = Review(
    summary="Fine.",
    issues=[],
    promises=[
        Justification(test=ADD, quote=QUOTE, reason="that is the wish"),
        Justification(test=ZERO, quote="", reason="nobody asked"),
    ],
)
VERDICT = TestVerdict(
    status=TestsStatus.GREEN,
    tree="d" * 40,
    passed=46,
    failed=0,
    summary=f"46 green · {LINE}",
    experiment=LINE,
    promises=2,
    promised=(ADD, ZERO),
)
