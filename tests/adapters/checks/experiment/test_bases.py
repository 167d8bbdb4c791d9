"""Bases that cannot say what was promised: each is named, and nobody is called tampered for it."""

from __future__ import annotations

import sys

import pytest
from experiment_fixtures import Files, Trials

from perdure.models.checks.report import CommandResult, TestCase, TestReport

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"

CALC = "def add(a, b):\n    return a + b\n"
GREEN = "from calc import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
RED = GREEN.replace("== 3", "== 4")
MORE = {"calc.py": CALC + "\ndef half(a):\n    return a / 2\n"}
PROOF = {**MORE, "tests/test_half.py": "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"calc.py": CALC, "tests/test_calc.py": RED}, PROOF, "no test was green on the base: 1 of 1 fails: test_add"),
        ({"calc.py": "def add(\n", "tests/test_calc.py": GREEN}, PROOF, "no test was green on the base: "),
        ({"calc.py": CALC}, PROOF, "the base's tests did not run: no tests were collected"),
    ],
    ids=["red", "does not load", "no tests"],
)
async def test_a_base_that_promises_nothing_is_named_and_new_tests_still_prove_the_change(
    tried: Trials, before: Files, after: Files, words: str
) -> None:
    found = await tried({"conftest.py": "\n", **before}, after, PYTEST)
    (one,) = found.commands
    assert any(said.startswith(words) for said in found.unasked_reasons), found.unasked_reasons
    assert not found.is_tampered
    assert (one.promises, one.contradicted, one.taken) == ((), (), ())
    assert one.proving is not None
    assert "tests/test_half.py::test_half" in one.proving


async def test_a_test_that_was_flaky_on_the_base_is_named_and_not_asked(tried: Trials) -> None:
    files = {"conftest.py": "\n", "calc.py": CALC, "tests/test_calc.py": GREEN, "tests/test_odd.py": RED}
    cases = tuple(
        TestCase(name=f"tests/{file}.py::test_add", file=f"tests/{file}.py", outcome="passed", flaky=file == "test_odd")
        for file in ("test_calc", "test_odd")
    )
    result = CommandResult(name="t0", command=PYTEST, verdict="passed", exit_code=0, cases=cases)
    known = TestReport(commit="0" * 40, tree="0" * 40, commands=(result,))
    found = await tried(files, PROOF, PYTEST, known=known)
    (one,) = found.commands
    assert found.unasked_reasons == ("flaky on the base: test_add",)
    assert (one.base_tests, one.base_passed, found.is_tampered) == (1, 1, False)
