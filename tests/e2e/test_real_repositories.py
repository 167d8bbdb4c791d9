"""Red, mended, hopeless, broken before, flaky: whole deliveries of repositories tested by node and by make.

The same with pytest, and with nothing but an exit code, is in test_verdicts.py and test_loops.py.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.models.checks.report import TestReport
from perdure.models.delivery.result import DeliveryResult
from tests.cli.conftest import Cli
from tests.engine import Engine, check_shipped, finished, git, heads, make_target, pulls

PLAN = """\
[[line]]
step = "classify"
answer = { kind = "feature", reason = "something new" }
[[line]]
step = "plan"
[line.answer]
title = "Add sub"
problem = "There is no sub."
solution = "Write it."
relevant_files = ["calc"]
tasks = [{ title = "Write sub", details = "Beside add.", files = ["calc"] }]
validation = ["sub(3, 2) is 1"]
"""

REVIEW = """\
[[line]]
step = "review"
answer = { summary = "Fine.", issues = [] }
"""


def does(step: str, command: str, **when: str) -> str:
    """Lines of a screenplay: in this step, where the conversation contains `when`, this command is run."""
    contains = f"contains = {json.dumps([*when.values()])}\n" if when else ""
    use = f'use = [{{ tool = "bash", input = {{ command = {json.dumps(command)} }} }}]\n'
    return f'[[line]]\nstep = "{step}"\nturn = 1\n{contains}{use}[[line]]\nstep = "{step}"\n{contains}say = "Did it"\n'


def settings(command: str, *more: str) -> str:
    test = f'[[test]]\nname = "unit"\ncommand = "{command}"\n'
    return "\n".join(("version = 1", "[setup]", "commands = []", test, *more))


@dataclass(frozen=True)
class Repository:
    """One small repository and what can be done to it.

    files      a calculator and its one test
    old        what makes it red before: another test that fails
    flaky      another test, that fails the first time once there is a sub
    right      adds sub; wrong: does, and breaks add; mend: mends it
    failures   what is said of a broken add beside the test in `old`, of that alone, and of the flaky one
    missing    what makes its test command one that does not exist, and what is said of it
    """

    files: dict[str, str]
    old: dict[str, str]
    flaky: dict[str, str]
    right: str
    wrong: str
    mend: str
    failures: tuple[str, str, str]
    missing: tuple[dict[str, str], tuple[str, str]]


NODE_TEST = (
    "const {test} = require('node:test');\nconst assert = require('node:assert');\nconst calc = require('./calc.js');\n"
)
NODE_TEST += "test('adds', () => assert.equal(calc.add(2, 3), 5));\n"

NODE = Repository(
    files={
        "calc.js": "exports.add = (a, b) => a + b;\n",
        "calc.test.js": NODE_TEST,
        "package.json": '{"scripts": {"test": "node --test"}}\n',
        "perdure.toml": settings("npm test"),
    },
    old={"old.test.js": "require('node:test').test('was wrong', () => { throw new Error('as ever'); });\n"},
    flaky={
        "flaky.test.js": """\
            const {test} = require('node:test');
            const assert = require('node:assert');
            const seen = [];
            test('comes first', () => { seen.push(1); });
            test('depends', () => assert.ok(!require('./calc.js').sub || seen.length === 0, 'something ran before'));
        """
    },
    right="echo 'exports.sub = (a, b) => a - b;' >> calc.js",
    wrong="echo 'exports.sub = (a, b) => a - b;' >> calc.js && sed -i 's/a + b/a * b/' calc.js",
    mend="sed -i 's/a \\* b/a + b/' calc.js",
    failures=("1 of 2 fail: adds;", "1 green, 1 failed before on main too: was wrong", "flaky: depends"),
    missing=(
        {"package.json": '{"scripts": {"test": "no-such-runner"}}', "perdure.toml": "version = 1\n"},
        (
            "`npm test` could not start on main: no-such-runner: command not found",
            """where: [[test]] "npm test", detected from the repository's files""",
        ),
    ),
)
CHECK = """\
. ./calc.sh
red=0
report() { if [ -n "$PERDURE_REPORT" ]; then echo "$1" >>"$PERDURE_REPORT"; fi; }
check() {
  if [ "$2" = "$3" ]; then echo "ok $1"; report "<testcase name='$1'/>"
  else echo "FAIL $1: $2 is not $3"; red=1; report "<testcase name='$1'><failure>$2 is not $3</failure></testcase>"; fi
}
report '<testsuite>'
check adds "$(add 2 3)" 5
if [ -f more.sh ]; then . ./more.sh; fi
report '</testsuite>'
exit $red
"""

MAKE = Repository(
    files={
        "calc.sh": "add() { echo $(($1 + $2)); }\n",
        "check.sh": CHECK,
        "Makefile": "test:\n\t@sh check.sh\n",
        "perdure.toml": settings("make test"),
    },
    old={"more.sh": "check words 'a b' ab\n", "perdure.toml": settings("make test", 'report = "junit"')},
    flaky={
        # Another result of the same tree: the second run's results lie elsewhere on the host.
        "more.sh": """\
mounted=$(grep /results /proc/self/mountinfo)
case "$(type sub 2>&1)$mounted" in *found*|*-again-*) ;; *) check weather rain sun ;; esac
"""
    },
    right="echo 'sub() { echo $(($1 - $2)); }' >> calc.sh",
    wrong="echo 'sub() { echo $(($1 - $2)); }' >> calc.sh && sed -i 's/1 + /1 * /' calc.sh",
    mend="sed -i 's/1 \\* /1 + /' calc.sh",
    failures=("1 of 2 fail: adds;", "1 green, 1 failed before on main too: words", "flaky: unit"),
    missing=(
        {"perdure.toml": settings("make tests")},
        ("No rule to make target 'tests'.  Stop.", 'where: perdure.toml:4 [[test]] "unit"'),
    ),
)

LIMIT = "[limits]\ntest_fixes = 1\n"


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "repository", [pytest.param(NODE, marks=pytest.mark.needs("node", "npm")), MAKE], ids=["node", "make"]
)
async def test_red_is_mended_or_not_delivered_and_what_was_red_before_or_is_flaky_is_named(
    tmp_path: Path, ports: int, repository: Repository
) -> None:
    screenplay = PLAN + does("implement", repository.wrong, request="[wrong]") + does("implement", repository.right)
    screenplay += does("fix_tests", "echo tried >> notes.txt", request="[hopeless]")
    new, old = "Mend the failures with known=false (1)", "with known=true (1) were there on main before"
    screenplay += does("fix_tests", repository.mend, new=new, old=old)
    async with Engine.open(tmp_path, screenplay + REVIEW, ports=ports) as engine:
        engine.worker()

        async def deliver(name: str, request: str, files: dict[str, str]) -> tuple[DeliveryResult, Path]:
            origin = make_target(tmp_path / f"{name}.git", {**repository.files, **files})
            return await finished(await engine.submit(origin, request, id=name), engine, timeout=80), origin

        (mended, origin), (flaky, weather), (missing, _) = await asyncio.gather(
            deliver("mended", "Add sub [wrong]", repository.old),
            deliver("flaky", "Add sub", repository.flaky),
            deliver("missing", "Add sub", repository.missing[0]),
        )
        if repository is MAKE:  # what comes of a report is the same whoever wrote it: once is enough
            limited = {"perdure.toml": repository.files["perdure.toml"] + LIMIT}
            await _hopeless(engine, *await deliver("hopeless", "Add sub [wrong] [hopeless]", limited))

        check_shipped(origin, engine, mended, {})
        assert [(step.step, step.status) for step in mended.steps if step.step in ("run_tests", "fix_tests")] == [
            ("run_tests", "failed"),
            ("fix_tests", "done"),
            ("run_tests", "done"),
        ]
        assert repository.failures[0] in next(step.summary for step in mended.steps if step.step == "run_tests")
        assert (mended.tests.status, mended.tests.new_failures, mended.tests.known_failures) == ("green", 0, 1)
        assert repository.failures[1] in git(origin, "show", "refs/pull/1/record:body.md")
        assert_tested(mended, origin)

        check_shipped(weather, engine, flaky, {})
        assert (flaky.tests.status, flaky.tests.flaky) == ("green", 1)
        assert "fix_tests" not in {step.step for step in flaky.steps}
        assert repository.failures[2] in git(weather, "show", "refs/pull/1/record:body.md")

        assert (missing.status, missing.reason, missing.usage.cost_usd) == ("not_delivered", "setup_failed", 0)
        for words in repository.missing[1]:
            assert words in missing.message


async def _hopeless(engine: Engine, result: DeliveryResult, origin: Path) -> None:
    """Red, known by nothing but the exit code, and never mended; the command line says so, too."""
    assert (result.status, result.reason, result.message) == (
        "not_delivered",
        "tests_red",
        "tests are red after 1 fix",
    )
    assert "unit: exit code 2" in next(step.summary for step in result.steps if step.step == "run_tests")
    assert (heads(origin).keys(), pulls(origin)) == ({"main"}, [])
    kept(engine, result)
    ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, {}), "watch", "hopeless")
    assert ran.code == 1
    assert "tests are red after 1 fix" in ran.out + ran.err


def assert_tested(result: DeliveryResult, origin: Path) -> None:
    """The tests ran green on exactly the tree of the pull request's head."""
    assert result.tests.status == "green"
    assert result.tests.tree_sha == git(origin, "rev-parse", f"perdure/{result.delivery_id}^{{tree}}")


def kept(engine: Engine, result: DeliveryResult) -> None:
    """The vault keeps the branch with each attempt's commit, and the report that says what failed."""
    vault = next(path for path in engine.home.vaults.glob("*.git") if result.delivery_id in path.name)
    assert git(vault, "rev-parse", f"refs/heads/{result.branch}") == result.head_sha
    assert [step.step for step in result.steps].count("commit") == 2
    sha = str(result.tests.report).removeprefix("artifact:sha256:")
    text = git(vault, "cat-file", "blob", f"refs/artifacts/{result.delivery_id}/{sha}")
    (command,) = TestReport.model_validate_json(text).commands
    assert (command.verdict, command.since) == ("failed", "new")
    assert engine.home.tree(result.delivery_id).exists(), "the worktree is kept for a person to look at"
