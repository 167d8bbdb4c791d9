"""Deliveries judged by experiment: a bent one is told what to undo, one that writes to its tests what to allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_verdicts import HERE, PYTEST, report_of
from tests.engine import CALC, HAPPY, TESTED, Engine, finished, make_target, pulls

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


@pytest.mark.always
async def test_a_change_that_steers_its_runner_ends_tampered_and_the_fix_is_told_what_to_undo(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", {**CALC, "sums.txt": "1 1 2\n"})
    async with Engine.open(tmp_path, BENDS + IN_VAIN, ports=ports, measured=True) as engine:
        engine.worker()
        limits = "version = 1\n[limits]\ntest_fixes = 1\n[tests]\nside = ['sums.txt']\n"
        result = await finished(await engine.submit(origin, config=limits, **TESTED), engine, timeout=100)
        assert (result.status, result.reason) == ("not_delivered", "tampered")
        assert pulls(origin) == []
        told = [record.summary for record in result.steps if record.step == "run_tests"]
        assert told == ["tampered: unittest: 3 canaries were not reported; 1 green"] * 2
        report = report_of(engine, result)
        assert report.tampering == (), "nothing was read in the files"
        assert report.experiment is not None
        assert report.experiment.touched == ("sums.txt",)
        assert report.experiment.commands[0].missed
        assert result.tests.tampered == 1


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
    async with Engine.open(tmp_path, HAPPY, ports=ports, env=HERE) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, "Add sub: w", id="writes", config=PYTEST, **TESTED), engine)
        if "test side" not in (result.message or "") and result.status == "delivered":
            pytest.skip("only bubblewrap can hold paths")
        assert (result.status, result.reason, result.usage.cost_usd) == ("not_delivered", "setup_failed", 0)
        assert "writes to the tests: the test side is read-only: tests/output" in result.message
        assert 'fix: [[test]] writes = ["tests/output"]' in result.message

        allowed = f'{PYTEST}writes = ["tests/output"]\n'
        result = await finished(
            await engine.submit(origin, "Add sub: v", id="allowed", config=allowed, **TESTED), engine
        )
        assert result.status == "delivered", result.message
        assert result.steps[0].summary == "1 green"
