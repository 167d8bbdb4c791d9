"""Verdicts of whole deliveries: against the base commit, without flakes, and never paid for in vain."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure.client import Submission
from perdure.models.checks.report import TestReport
from perdure.models.delivery.result import DeliveryResult
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, git, make_target, until

HERE = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
"""With this environment's pytest in sight."""

PYTEST = f"""\
version = 1
[setup]
commands = []
[[test]]
name = "unit"
command = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q"
"""

OLD = """\
from calc import add


def test_adds():
    assert add(2, 3) == 5


def test_words():
    assert add("a", "b") == "a b"


def test_nothing():
    assert add(None, 1) == 1
"""

RED_BEFORE = {"calc.py": CALC["calc.py"], "tests/test_old.py": OLD, "perdure.toml": PYTEST}

NODE = {
    "calc.py": CALC["calc.py"],
    "package.json": '{"scripts": {"test": "node --test"}}',
    "calc.test.js": "const {test} = require('node:test');\nconst assert = require('node:assert');\n"
    "const source = require('node:fs').readFileSync('calc.py', 'utf8');\n"
    "test('adds', () => assert.match(source, /def add/));\n"
    "test('has types', () => assert.match(source, /: int/));\n",
    "perdure.toml": 'version = 1\n[setup]\ncommands = []\n[[test]]\nname = "npm test"\ncommand = "npm test"\n',
}

EXIT_CODE_ONLY = {
    **CALC,
    "tests/test_calc.py": CALC["tests/test_calc.py"].replace("5)", "6)"),
    "perdure.toml": f'{CALC["perdure.toml"]}report = "exit"\n',
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def happy(tmp_path_factory: pytest.TempPathFactory, ports: int) -> AsyncIterator[Engine]:
    """An engine with a worker for several tests: each has its own target and deliveries, none with the same words.

    The rehearsal takes what begins with the same words for one conversation, and counts when it does not only grow.
    """
    async with Engine.open(tmp_path_factory.mktemp("happy"), HAPPY, ports=ports, env=HERE) as engine:
        engine.worker()
        yield engine


def report_of(engine: Engine, result: DeliveryResult) -> TestReport:
    (vault,) = (found for found in engine.home.vaults.glob("*.git") if git(found, "for-each-ref", artifacts_of(result)))
    sha = str(result.tests.report).removeprefix("artifact:sha256:")
    return TestReport.model_validate_json(git(vault, "cat-file", "blob", f"{artifacts_of(result)}/{sha}"))


def artifacts_of(result: DeliveryResult) -> str:
    return f"refs/artifacts/{result.delivery_id}"


def steps_of(result: DeliveryResult) -> list[str]:
    return [record.step for record in result.steps]


async def asked_for(submitted: Submission) -> str:
    """What names the decision it waits for, empty while it waits for none."""
    asked = (await submitted.delivery.describe()).pending_decision
    return asked.target if asked is not None else ""


def evidence(origin: Path) -> str:
    return git(origin, "show", "refs/pull/1/record:body.md")


@pytest.mark.parametrize(
    ("files", "counts", "words"),
    [
        (RED_BEFORE, (1, 2, 0, 2), "1 green, 2 failed before on main too: test_words, test_nothing"),
        pytest.param(
            NODE,
            (1, 1, 0, 1),
            "1 green, 1 failed before on main too: has types",
            marks=(pytest.mark.slow, pytest.mark.needs("node", "npm")),
        ),
    ],
    ids=["pytest", "node"],
)
async def test_a_repository_that_was_red_before_is_delivered_and_nobody_pays_for_its_old_failures(
    tmp_path: Path, happy: Engine, files: dict[str, str], counts: tuple[int, ...], words: str
) -> None:
    name, again = f"red-{len(files)}", f"red-{len(files)}-again"
    origin = make_target(tmp_path / "calc.git", files)
    before = happy.model_calls()
    result = await finished(await happy.submit(origin, f"Add sub: {name}", id=name, **TESTED), happy, timeout=100)
    check_shipped(origin, happy, result, {})
    assert "fix_tests" not in steps_of(result)
    tests = result.tests
    assert (tests.passed, tests.failed, tests.new_failures, tests.known_failures) == counts
    assert tests.status == "green"
    assert words in evidence(origin)
    assert result.steps[0].summary == f"already red on main: {words_before(words)}"
    calls = happy.model_calls() - before

    second = await finished(await happy.submit(origin, f"Add sub: {again}", id=again, **TESTED), happy, timeout=100)
    assert second.status == "delivered", second.message
    assert happy.model_calls() - before == 2 * calls
    assert second.steps[0].summary.endswith("(known)")
    assert not (happy.home.workspace(again) / "logs" / "preflight").exists(), "the base was tested again"
    assert second.tests.known_failures == tests.known_failures


def words_before(words: str) -> str:
    green, _, failed = words.partition(", ")
    number, _, names = failed.partition(" failed before on main too: ")
    return f"{number} of {int(green.split()[0]) + int(number)} fail: {names}"


async def test_old_and_new_failures_that_cannot_be_told_apart_make_a_draft_and_not_a_bill(
    tmp_path: Path, happy: Engine
) -> None:
    origin = make_target(tmp_path / "calc.git", EXIT_CODE_ONLY)
    result = await finished(
        await happy.submit(origin, "Add sub: draft", id="draft", questions=False, **TESTED), happy, timeout=100
    )
    assert (result.status, result.tests.status) == ("draft", "red")
    assert "fix_tests" not in steps_of(result)
    first = evidence(origin).splitlines()[0]
    assert (
        "new and old failures cannot be told apart: unit: exit code 1; main was red before and only exit codes" in first
    )
    assert (result.tests.new_failures, result.tests.known_failures) == (None, 0)

    asked = await happy.submit(origin, "Add sub: asked", id="calc-asked", **TESTED)
    of = await until(lambda: asked_for(asked), timeout=100)
    assert (await asked.delivery.approve(of, by="Ada", note="the old one")).received
    taken = await finished(asked, happy, timeout=100)
    assert (taken.status, taken.tests.status) == ("delivered", "red")
    assert taken.tests.accepted == "approved by Ada: the old one"
    body = git(origin, "show", "refs/pull/2/record:body.md")
    assert "red tests let through by a person who looked, approved by Ada: the old one" in body

    built = await finished(
        await happy.submit(origin, "Add sub: kept", id="unshipped", phases=["build", "test"]), happy, timeout=100
    )
    assert (built.status, built.reason) == ("not_delivered", "tests_red"), "no pull request could say so"
    assert built.message.startswith("new and old failures cannot be told apart")


@pytest.mark.always
async def test_a_test_that_passes_alone_is_named_as_flaky_and_not_mended(tmp_path: Path, happy: Engine) -> None:
    order = "import calc\n\nSEEN = []\n\n\ndef test_first():\n    SEEN.append(1)\n\n\n"
    order += "def test_depends():\n    assert not (SEEN and hasattr(calc, 'sub')), 'something ran before'\n"
    origin = make_target(tmp_path / "calc.git", {**RED_BEFORE, "tests/test_old.py": order})
    result = await finished(await happy.submit(origin, "Add sub: flaky", id="flaky", **TESTED), happy, timeout=100)
    check_shipped(origin, happy, result, {})
    assert "fix_tests" not in steps_of(result)
    assert (result.tests.flaky, result.tests.new_failures, result.tests.passed) == (1, 0, 2)
    assert "2 green, 1 flaky: test_depends" in evidence(origin)
    (case,) = [case for case in report_of(happy, result).commands[0].cases if case.flaky]
    assert "something ran before" in case.message


async def test_commands_that_are_not_required_are_run_and_reported_and_never_decide(
    tmp_path: Path, happy: Engine
) -> None:
    lint = '[[test]]\nname = "lint"\ncommand = "! grep -n sub calc.py"\nrequired = false\n'
    origin = make_target(tmp_path / "calc.git", {**CALC, "perdure.toml": CALC["perdure.toml"] + lint})
    result = await finished(await happy.submit(origin, "Add sub: lint", id="lint", **TESTED), happy, timeout=100)
    check_shipped(origin, happy, result, {})
    assert "fix_tests" not in steps_of(result)
    linted, unit = report_of(happy, result).commands  # failed first
    assert (unit.name, unit.verdict) == ("unit", "passed")
    assert (linted.name, linted.verdict, linted.since) == ("lint", "failed", "new")
    assert "def sub" in linted.tail


async def test_what_a_branch_broke_before_this_delivery_is_not_excused_by_its_own_tip(
    tmp_path: Path, happy: Engine
) -> None:
    origin = make_target(tmp_path / "calc.git", RED_BEFORE)
    work = origin.with_name("calc.git-work")
    (work / "calc.py").write_text("def add(a, b):\n    return a * b\n")
    git(work, "commit", "-qam", "break add")
    git(work, "push", "-q", str(origin), "HEAD:refs/heads/feature")
    asked = happy.model_calls()
    limits = PYTEST + "[limits]\ntest_fixes = 0\n"
    result = await finished(
        await happy.submit(origin, id="branch", branch="feature", phases=["test"], config=limits), happy, timeout=100
    )
    assert (result.status, result.reason) == ("not_delivered", "tests_red")
    assert (result.tests.new_failures, result.tests.known_failures) == (1, 2)
    assert result.steps[-1].summary == "1 of 3 fail: test_adds; 2 failed before on main too: test_words, test_nothing"
    assert happy.model_calls() == asked


async def test_a_base_is_tested_again_when_what_setup_copied_has_changed(tmp_path: Path, happy: Engine) -> None:
    origin = make_target(tmp_path / "calc.git")
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    (checkout / ".git/info/exclude").write_text(".env.test\n")
    config = 'version = 1\n[setup]\ncommands = []\ncopy = [".env.test"]\n'
    config += '[[test]]\nname = "env"\ncommand = "grep -q 42 .env.test"\n'
    told = []
    for number, answer in enumerate(("42", "42", "41")):
        (checkout / ".env.test").write_text(answer)
        asked: dict[str, Any] = {"config": config, "source": str(checkout), "phases": ["plan"]}
        told.append(
            (
                await finished(
                    await happy.submit(origin, f"Add sub: {number}", id=f"d-{number}", **asked), happy, timeout=100
                )
            )
            .steps[0]
            .summary
        )
    assert told == ["env green", "env green (known)", "already red on main: env: exit code 1"]


async def test_results_of_a_base_count_in_their_own_repository_alone(tmp_path: Path, happy: Engine) -> None:
    config, summaries = "version = 1\n[[test]]\nname = 'env'\ncommand = 'true'\n", []
    for owner in ("ada", "ada", "bob"):
        origin = tmp_path / owner / "calc.git"
        origin.parent.mkdir(exist_ok=True)
        origin = origin if origin.exists() else make_target(origin)
        id = f"{owner}-{len(summaries)}"
        submitted = await happy.submit(origin, f"Add sub: {id}", id=id, config=config, phases=["plan"])
        summaries.append((await finished(submitted, happy, timeout=100)).steps[0].summary)
    assert summaries == ["env green", "env green (known)", "env green"]
