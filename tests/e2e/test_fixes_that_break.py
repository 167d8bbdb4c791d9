"""Fixes that break something else: tried again within the limits, and never published untested."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.models.delivery.result import DeliveryResult
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, git, heads, make_target, pulls

FILES = {
    **CALC,
    "calc.py": "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return 2 * a\n",
    "tests/test_calc.py": """\
        import unittest

        from calc import add, twice


        class CalcTest(unittest.TestCase):
            def test_adds(self):
                self.assertEqual(add(2, 3), 5)

            def test_doubles(self):
                self.assertEqual(twice(3), 6)
    """,
}

PLAN = HAPPY.partition('[[line]]\nstep = "implement"')[0]

SUB = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py"
BREAK_ADD, MEND_ADD = "sed -i 's/a + b/a * b/' calc.py", "sed -i 's/a \\* b/a + b/' calc.py"
BREAK_TWICE, MEND_TWICE = "sed -i 's/2 \\* a/3 * a/' calc.py", "sed -i 's/3 \\* a/2 * a/' calc.py"


def does(step: str, command: str, *contains: str) -> str:
    """In this step, where the conversation contains all of this, the command is run."""
    when = f"contains = {json.dumps(contains)}\n" if contains else ""
    use = f'use = [{{ tool = "bash", input = {{ command = {json.dumps(command)} }} }}]\n'
    return f'[[line]]\nstep = "{step}"\nturn = 1\n{when}{use}[[line]]\nstep = "{step}"\n{when}say = "Did it"\n'


def finds(severity: str, title: str, *contains: str) -> str:
    """The reviewer has one issue, where the conversation contains all of this."""
    issue = (
        f'{{ title = "{title}", description = "d", severity = "{severity}", file = "", line = 0, suggestion = "s" }}'
    )
    when = f"contains = {json.dumps(contains)}\n" if contains else ""
    return f'[[line]]\nstep = "review"\n{when}answer = {{ summary = "Read.", issues = [{issue}] }}\n'


SCREENPLAY = "".join(
    (
        PLAN,
        does("implement", f"{SUB} && {BREAK_ADD}", "[red]"),
        does("implement", SUB),
        # One that mends what failed and breaks another test; the next attempt sees that in the difference.
        does("fix_tests", MEND_TWICE, "[at last]", "+    return 3 * a"),
        does("fix_tests", f"{MEND_ADD} && {BREAK_TWICE}", "[at last]"),
        does("fix_tests", "echo '# tried' >> calc.py", "[nowhere]"),
        does("fix_tests", MEND_TWICE),
        # The first blocker's patch breaks a test and brings a second one.
        finds("skippable", "Taste", "+# second is gone"),
        finds("blocker", "Second", "[at last]", "+# first is gone"),
        finds("blocker", "First", "[at last]"),
        finds("blocker", "Again", "[never content]"),
        finds("skippable", "Taste"),
        does("fix_review", "echo '# second is gone' >> calc.py", "[at last]", "+# first is gone"),
        does("fix_review", f"echo '# first is gone' >> calc.py && {BREAK_TWICE}", "[at last]"),
        does("fix_review", "echo '# another try' >> calc.py", "[never content]"),
    )
)  # fmt: skip

LIMITS = "[limits]\ntest_fixes = {0}\nreview_fixes = {0}\n"


def loop(result: DeliveryResult) -> list[str]:
    """The checks and fixes, in order; with a dash where it did not go well."""
    steps = [step for step in result.steps if step.step in ("run_tests", "fix_tests", "review", "fix_review")]
    return [step.step + ("" if step.status == "done" else " -") for step in steps]


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_fixes_that_break_something_else_go_round_within_their_limits_and_only_green_trees_are_proposed(
    tmp_path: Path, ports: int
) -> None:
    async with Engine.open(tmp_path, SCREENPLAY, ports=ports) as engine:
        engine.worker()

        async def deliver(name: str, request: str, fixes: int = 1) -> tuple[DeliveryResult, Path]:
            origin = make_target(tmp_path / f"{name}.git", FILES)
            config = (origin.with_name(f"{name}.git-work") / "perdure.toml").read_text() + LIMITS.format(fixes)
            return await finished(
                await engine.submit(origin, request, id=name, config=config, **TESTED), engine, timeout=200
            ), origin

        told = await asyncio.gather(
            deliver("at-last", "Add sub [red] [at last]", 3),
            deliver("nowhere", "Add sub [red] [nowhere]", 4),
            deliver("never", "Add sub [never content]"),
        )

    results = {result.delivery_id: result for result, _ in told}
    assert {name: loop(result) for name, result in results.items()} == {
        "at-last": [
            *("run_tests -", "fix_tests", "run_tests -", "fix_tests", "run_tests", "review -", "fix_review"),
            *("run_tests -", "fix_tests", "run_tests", "review -", "fix_review", "run_tests", "review"),
        ],
        "nowhere": ["run_tests -", "fix_tests", "run_tests -", "fix_tests", "run_tests -"],
        "never": ["run_tests", "review -", "fix_review", "run_tests", "review -"],
    }
    for result, origin in told:
        if result.delivery_id != "at-last":
            assert result.status == "not_delivered"
            assert (heads(origin).keys(), pulls(origin)) == ({"main"}, [])
            continue
        check_shipped(origin, engine, result, {})
        assert (result.review.status, result.review.blockers, result.review.skippable) == ("clean", 0, 1)
        assert result.tests.status == "green"
        assert result.tests.tree_sha == git(origin, "rev-parse", f"{pulls(origin)[0]['head']}^{{tree}}")
    assert (results["nowhere"].reason, results["nowhere"].message) == (
        "tests_red",
        "not converging: two fixes in a row left the same failures: 1 of 2 fail: test_adds",
    )
    assert (results["never"].reason, results["never"].message) == ("blockers", "blockers remain after 1 fix")
