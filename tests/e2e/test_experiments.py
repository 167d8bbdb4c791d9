"""Deliveries judged by experiment: an honest one says so, a bent one is told what to undo, a death redoes all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.models.crash import CrashPoint
from tests.e2e.test_verdicts import HERE, PYTEST, report_of, steps_of
from tests.lab import CALC, HAPPY, TESTED, Lab, check_shipped, finished, make_target, pulls, sandboxes

WITH_A_TEST = HAPPY.replace(
    "return a - b\\\\n' >> calc.py",
    "return a - b\\\\n' >> calc.py && printf 'import unittest\\\\nfrom calc import sub\\\\n\\\\n\\\\n"
    "class SubTest(unittest.TestCase):\\\\n    def test_subtracts(self):\\\\n        self.assertEqual(sub(3, 2), 1)"
    "\\\\n' > tests/test_sub.py",
)
LINE = "1/1 of main's own tests pass on the change · 1 new test fails without it · canaries caught"

# Adds sub, breaks add, and makes the assertion that would say so say nothing: no test is touched but by its data, which
# nobody takes for the test side who is not told.
BENDS = HAPPY.replace(
    "return a - b\\\\n' >> calc.py",
    "return a - b\\\\n\\\\n\\\\nimport unittest\\\\nunittest.TestCase.assertEqual = lambda *given: None\\\\n'"
    " >> calc.py && echo 1 2 2 >> sums.txt && sed -i 's/return a + b/return a * b/' calc.py",
)
IN_VAIN = """
[[line]]
step = "fix_tests"
turn = 1
contains = ["were not reported as failing", "Find it and take it out"]
use = [{ tool = "bash", input = { command = "echo '# no' >> calc.py" } }]
[[line]]
step = "fix_tests"
say = "Nothing was bent"
"""


async def test_a_change_that_steers_its_runner_ends_tampered_and_the_fix_is_told_what_to_undo(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", {**CALC, "sums.txt": "1 1 2\n"})
    async with Lab.open(tmp_path, BENDS + IN_VAIN, ports=ports, measured=True) as lab:
        lab.worker()
        limits = "version = 1\n[limits]\ntest_fixes = 1\n[tests]\nside = ['sums.txt']\n"
        result = await finished(await lab.submit(origin, config=limits, **TESTED), lab, timeout=100)
        assert (result.status, result.reason) == ("not_delivered", "tampered")
        assert pulls(origin) == []
        told = [record.summary for record in result.steps if record.step == "run_tests"]
        assert told == ["tampered: unittest: 3 canaries were not reported; 1 green"] * 2
        report = report_of(lab, result)
        assert report.tampering == (), "nothing was read in the files"
        assert report.experiment is not None
        assert report.experiment.touched == ("sums.txt",)
        assert report.experiment.commands[0].missed
        assert result.tests.tampered == 1


@pytest.mark.timeout(240)
async def test_a_worker_killed_in_any_experiment_does_all_of_it_again_and_there_is_one_verdict(
    tmp_path: Path, ports: int
) -> None:
    points = (CrashPoint.DURING_BASE_TESTS, CrashPoint.DURING_CANARIES), (CrashPoint.DURING_PROOF,)
    async with Lab.open(tmp_path, WITH_A_TEST, ports=ports) as lab:
        for number, dies in enumerate(points):
            lab.kept(PERDURE_CRASH_AT=",".join(dies))
            origin = make_target(tmp_path / f"calc-{number}.git", CALC)
            submitted = await lab.submit(origin, f"Add sub: {number}", id=f"sub-{number}", **TESTED)
            result = await finished(submitted, lab, timeout=100)
            check_shipped(origin, lab, result, {})
            assert {point for point in dies if list(lab.home.crashes.glob(f"{point}.*"))} == set(dies)
            assert steps_of(result).count("run_tests") == 1
            assert result.receipt.worker_deaths == len(dies)
            assert (result.tests.status, result.tests.experiment) == ("green", LINE)
            (summary,) = (record.summary for record in result.steps if record.step == "run_tests")
            assert summary == f"2 green · {LINE}"
            assert not lab.home.trials(f"sub-{number}").exists(), "checkouts of a killed experiment are left"
            assert sandboxes(lab) == []
            lab.kill_workers()


WRITING = """\
import pathlib
from calc import add


def test_adds():
    place = pathlib.Path(__file__).parent / "output"
    place.mkdir(exist_ok=True)
    (place / "sum.txt").write_text(str(add(2, 3)))
    assert (place / "sum.txt").read_text() == "5"
"""


async def test_a_suite_that_writes_beside_its_tests_is_told_before_anything_is_paid_for_and_may_when_it_is_allowed(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", {"calc.py": CALC["calc.py"], "tests/test_calc.py": WRITING})
    async with Lab.open(tmp_path, HAPPY, ports=ports, env=HERE) as lab:
        lab.worker()
        result = await finished(await lab.submit(origin, "Add sub: w", id="writes", config=PYTEST, **TESTED), lab)
        if "test side" not in (result.message or "") and result.status == "delivered":
            pytest.skip("only bubblewrap can hold paths")
        assert (result.status, result.reason, result.usage.cost_usd) == ("not_delivered", "setup_failed", 0)
        assert "writes to the tests: the test side is read-only: tests/output" in result.message
        assert 'fix: [[test]] writes = ["tests/output"]' in result.message

        allowed = f'{PYTEST}writes = ["tests/output"]\n'
        result = await finished(await lab.submit(origin, "Add sub: v", id="allowed", config=allowed, **TESTED), lab)
        assert result.status == "delivered", result.message
        assert result.steps[0].summary == "1 green"
