"""Deliveries whose agent takes tests away: told to put them back, or allowed to."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.test_verdicts import HERE, PYTEST, report_of, steps_of
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, git, make_target

TESTS = """\
from calc import add


def test_adds():
    assert add(2, 3) == 5


def test_words():
    assert add("a", "b") == "ab"
"""
FILES = {"calc.py": CALC["calc.py"], "tests/test_calc.py": TESTS, "perdure.toml": PYTEST}

# Adds sub, breaks add for words, and takes away the test that would say so.
TAKES_AWAY = HAPPY.replace(
    "return a - b\\\\n' >> calc.py",
    "return a - b\\\\n' >> calc.py && sed -i 's/return a + b/return int(a) + int(b)/' calc.py"
    " && sed -i '/def test_words/,$d' tests/test_calc.py",
)


def line(command: str) -> str:
    return f"""
[[line]]
step = "fix_tests"
turn = 1
use = [{{ tool = "bash", input = {{ command = {command!r} }} }}]
[[line]]
step = "fix_tests"
say = "Let add add again"
"""


RESTORES = (
    'sed -i "s/return int(a) + int(b)/return a + b/" calc.py'
    r' && printf "\n\ndef test_words():\n    assert add(\"a\", \"b\") == \"ab\"\n" >> tests/test_calc.py'
)


def restores() -> str:
    return line("@@").replace("'@@'", f"'''{RESTORES}'''")


async def test_a_test_that_was_taken_away_is_put_back_before_anything_is_delivered_unless_it_was_asked_for(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", FILES)
    async with Engine.open(tmp_path, TAKES_AWAY + restores(), ports=ports, env=HERE, measured=True) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, **TESTED), engine, timeout=100)
        check_shipped(origin, engine, result, {})
        told = [record.summary for record in result.steps if record.step == "run_tests"]
        assert told[0].startswith("tampered: 1 test of main fails and is gone: test_words")
        assert steps_of(result).count("fix_tests") == 1
        assert (result.tests.status, result.tests.tampered, result.tests.passed) == ("green", 0, 2)
        assert "def test_words" in git(origin, "show", f"perdure/{result.delivery_id}:tests/test_calc.py")
        assert report_of(engine, result).tampering == ()
        fixes = [call for call in engine.rehearsal.calls if call.step == "fix_tests"] if engine.rehearsal else []
        assert fixes, "the fix was asked for"

        asked = await engine.submit(origin, id="asked", allow_test_changes=True, **TESTED)
        allowed = await finished(asked, engine, timeout=100)
        assert (allowed.status, allowed.tests.tampered) == ("delivered", 0)
        tried = report_of(engine, allowed).experiment
        assert tried is not None
        assert tried.allowed
