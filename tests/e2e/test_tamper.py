"""Deliveries whose agent bends tests: told to put them back, or allowed to; a person sees what was promised before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.models.delivery.decisions import Gate
from tests.e2e.test_gates import Person
from tests.e2e.test_verdicts import HERE, PYTEST, report_of, steps_of
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, git, make_target, pulls

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
        replaced = "the change replaces what tests rely on: unittest.case.TestCase.assertEqual"
        assert told == [f"tampered: unittest: 2 canaries were not reported, unittest: {replaced}; 1 green"] * 2
        report = report_of(engine, result)
        assert report.tampering == (), "nothing was read in the files"
        assert report.experiment is not None
        assert report.experiment.touched == ("sums.txt",)
        assert report.experiment.commands[0].missed
        assert result.tests.tampered == 2


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


ADDS, WORDS = "tests/test_calc.py::test_adds", "tests/test_calc.py::test_words"
REQUEST = "Let add take numbers only: words are\nrefused with a ValueError."
QUOTE = "words are refused with a ValueError"
STORY = f"""
[[line]]
step = "implement"
turn = 1
use = [{{ tool = "bash", input = {{ command = '''
printf 'def add(a, b):\\n    return int(a) + int(b) + 1\\n' > calc.py
sed -i 's/== 5/== 6/; s/    assert add("a", "b") == "ab"/    with pytest.raises(ValueError):\\n        add("a", "b")/; \
1i import pytest' tests/test_calc.py''' }} }}]
[[line]]
step = "implement"
say = "Refuse words"
[[line]]
step = "review"
contains = ["- {ADDS}"]
answer = {{ summary = "One thing.", issues = [], promises = [
  {{ test = "{WORDS}", quote = "{QUOTE}", reason = "asked for" }},
  {{ test = "{ADDS}", quote = "", reason = "not asked for" }},
] }}
[[line]]
step = "review"
contains = ["- {WORDS}"]
answer = {{ summary = "Fine.", issues = [], promises = [
  {{ test = "{WORDS}", quote = "{QUOTE}", reason = "asked for" }},
] }}
[[line]]
step = "fix_review"
turn = 1
contains = ["changed promise: {ADDS}"]
use = [{{ tool = "bash", input = {{ command = "sed -i 's/ + 1//; s/== 6/== 5/' calc.py tests/test_calc.py" }} }}]
[[line]]
step = "fix_review"
say = "Add as before"
"""


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_what_nothing_asks_for_is_sent_back_and_a_person_reads_of_the_rest_before_it_is_published(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git", FILES)
    async with Engine.open(tmp_path, STORY, ports=ports, env=HERE) as engine:
        engine.worker()
        person = Person(engine, tmp_path)
        submitted = await engine.submit(origin, request=REQUEST, gates=["pull_request"], **TESTED)
        asked = await person.asked(within_s=200)
        assert (asked.gate, "with 1 changed promise: test_words" in asked.summary) == (Gate.PULL_REQUEST, True), asked
        shown = await person("show", "calc-sub")
        assert "with 1 changed promise: test_words" in shown
        await person("approve", "calc-sub", "--of", asked.target)
        result = await finished(submitted, engine, timeout=200)
        assert result.status == "delivered", result
        assert [step.summary for step in result.steps if step.step == "review"] == ["1 blocker", "no issues"]
        line = "1/2 of main's own tests pass on the change · 1 new test fails without it · canaries caught"
        assert (result.tests.experiment, result.tests.promises, result.receipt.experiment) == (line, 1, line)
        tried = report_of(engine, result).experiment
        assert tried is not None
        assert [promise.name for promise in tried.changed_promises] == [WORDS]
        assert len(pulls(origin)) == 1
        body = git(origin, "show", "refs/pull/1/record:body.md")
        for words in (line, f"the request says “{QUOTE}”", '-     assert add("a", "b") == "ab"', "pytest.raises"):
            assert words in body, body
        assert "== 5" in git(origin, "show", "perdure/calc-sub:tests/test_calc.py")
        told = json.loads(await person("verify", "calc-sub", "--json"))
        claims = {one["claim"]: (one["mark"], one["said"]) for one in told["claims"]}
        assert {mark for mark, _ in claims.values()} == {"verified"}, claims
        assert claims["experiment again"][1] == f"{line}, 1 changed promise, as before"
