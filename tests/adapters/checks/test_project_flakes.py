"""Failures that were there before, or do not happen again: told from new ones, on real runners, within bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recorded import COMMAND, FAILED, PASSED, recorded

from perdure.adapters.checks.baseline import (
    case_key,
    compare_with_base,
    environment_key,
    is_complete,
    load_baseline,
    number_cases,
    rerun_new_failures,
    store_baseline,
)
from perdure.adapters.checks.verdict import fix_note, verdict_of
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import KeyedStore, kept_results
from perdure.adapters.system.output import flood_reason
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.work import TestVerdict
from perdure.models.limits import KEPT_AGE, RERUN_TESTS_MOST
from tests.sandboxes import PYTEST, Bench, Files

ORDER = """\
import pathlib

SEEN = []


def note(name):
    SEEN.append(name)
    with open("ran.log", "a") as log:
        log.write(name + "\\n")


def test_first():
    note("first")


class TestMore:
    def test_depends(self):
        note("depends")
        assert SEEN == ["depends"], "something ran before"


def test_wrong():
    note("wrong")
    assert 1 == 2
"""


def noted(root: Path) -> list[str]:
    return (root / "ran.log").read_text().split()


def of(result: CommandResult) -> dict[str, tuple[str, bool]]:
    return {case.name.rsplit("::", 1)[-1]: (case.outcome, case.flaky) for case in result.cases}


PARAMETERS = """

@pytest.mark.parametrize("x", ["a b", "c[d]", "é"])
def test_p(x):
    note(x.replace(" ", "_"))
    assert x != "c[d]", "bad"
"""


async def test_pytest_runs_again_only_the_failed_tests_each_alone_and_those_that_pass_are_flaky(
    bench: Bench, files: Files
) -> None:
    root = files({"tests/test_x.py": "import pytest\n" + ORDER + PARAMETERS})
    report = await bench.run(root, f"{PYTEST} tests")
    assert noted(root) == ["first", "depends", "wrong", "a_b", "c[d]", "é", "depends", "wrong", "c[d]"]
    assert of(report.commands[0]) == {
        "test_wrong": ("failed", False), "test_p[c[d]]": ("failed", False), "test_depends": ("passed", True),
        "test_first": ("passed", False), "test_p[a b]": ("passed", False), "test_p[\\xe9]": ("passed", False),
    }  # fmt: skip
    found = verdict_of(report)
    assert (found.status, found.failed, found.flaky) == ("red", 2, 1)
    assert found.summary == "2 of 6 fail: test_wrong, test_p[c[d]]; 1 flaky: test_depends"
    assert found.failures[0] == "tests/test_x.py::test_wrong"
    (wrong,) = [case for case in report.commands[0].cases if case.name == found.failures[0]]
    assert "assert 1 == 2" in wrong.message
    assert "3 failed" in report.commands[0].tail
    (flaky,) = [case for case in report.commands[0].cases if case.flaky]
    assert "something ran before" in flaky.message
    assert f"t0: again, alone: {flaky.name}" in bench.said
    assert flaky.name == "tests/test_x.py::TestMore::test_depends"

    (root / "ran.log").unlink()
    await bench.run(root, TestCommand(name="again", command=flaky.command, report="exit"))
    assert noted(root) == ["depends"], "what a person types to reproduce it"


async def test_a_file_that_could_not_be_loaded_at_first_makes_the_whole_command_flaky(
    bench: Bench, files: Files
) -> None:
    """The others run all the same, with the cache their settings ask for, and nothing of ours is left in the tree."""
    text = "import pathlib\n\nseen = pathlib.Path('seen')\nif not seen.exists():\n    seen.touch()\n    raise OSError\n"
    root = files(
        {
            "pytest.ini": "[pytest]\naddopts = --strict-config --ff\ncache_dir = .c\n",
            "test_x.py": text + "\ndef test_a():\n    pass\n",
            "test_y.py": "def test_b(cache):\n    cache.set('a/b', 1)\n    open('ran.log', 'a').write('y\\n')\n",
        }
    )
    report = await bench.run(root, f"PYTHONDONTWRITEBYTECODE=1 {PYTEST}")
    assert verdict_of(report).summary == "2 green, 1 flaky: t0"
    assert noted(root) == ["y"] * 3, "beside the broken file, when pytest did not find that one alone, and as a whole"
    assert sorted(path.name for path in root.iterdir()) == ["pytest.ini", "ran.log", "seen", "test_x.py", "test_y.py"]


Says = list[tuple[str | None, CommandResult | None]]
"""The runs that are done again, by the name of the test (None: all of it), and their results."""


def result(code: int = 1, verdict: str = "failed", **outcomes: str) -> CommandResult:
    cases = tuple(TestCase(name=name, outcome=outcome, message=f"of {name}") for name, outcome in outcomes.items())
    told = {"name": "t0", "command": "pytest", "reason": f"exit code {code}" if code else "", "cases": cases}
    return CommandResult.model_validate({**told, "verdict": verdict, "exit_code": code})


BROKEN = result(a="passed", b="failed", c="failed")
MANY = {f"t{n}": "failed" for n in range(RERUN_TESTS_MOST + 1)}


@pytest.mark.parametrize(
    ("first", "base", "again", "summary"),
    [
        (
            BROKEN, None, [("b", result(0, "passed", b="passed")), ("c", result(0, "passed", c="passed"))],
            "3 green, 2 flaky: b, c",
        ),
        (
            BROKEN, None, [("b", result(0, "passed", b="passed")), ("c", result(c="failed"))],
            "1 of 3 fail: c; 1 flaky: b",
        ),
        (BROKEN, result(b="failed", c="failed"), [], "1 green, 2 failed before on main too: b, c"),
        (
            BROKEN, result(b="failed", c="passed"), [("c", result(0, "passed", c="passed"))],
            "2 green, 1 failed before on main too: b; 1 flaky: c",
        ),
        (result(**MANY), None, [], f"{len(MANY)} of {len(MANY)} fail: t0, t1, t2, t3, …"),
        (BROKEN, None, [("b", None), (None, BROKEN)], "2 of 3 fail: b, c"),
        (BROKEN, None, [("b", None), (None, None)], "2 of 3 fail: b, c"),
        (BROKEN, None, [("b", result(0, "passed")), (None, result(a="failed", b="passed", c="failed"))],
         "1 of 3 fail: c; 1 flaky: b"),
        (BROKEN, None, [("b", None), (None, result(0, "passed", a="passed", b="passed", c="passed"))],
         "3 green, 2 flaky: b, c"),
        (result(), None, [(None, result(0, "passed"))], "t0 green, 1 flaky: t0"),
        (result(), None, [(None, result())], "t0: exit code 1"),
        (result(0, "contradicted", b="failed"), None, [("b", result(0, "passed", b="passed"))],
         "1 green, 1 flaky: b"),
        (result(127, "not_started"), None, [], "t0: exit code 127"),
        (result(1, "timed_out"), None, [], "t0: exit code 1"),
        (BROKEN.model_copy(update={"exit_code": None}), None, [], "2 of 3 fail: b, c"),
        (BROKEN.model_copy(update={"reason": flood_reason()}), None, [], "2 of 3 fail: b, c"),
    ],
    ids=[
        "all flaky", "some", "known", "one known", "too many", "not selected", "no time", "ran something else",
        "whole passes", "exit code flaky", "exit code", "contradicted", "not started", "hung", "ended from outside",
        "flooded",
    ],
)  # fmt: skip
async def test_what_is_run_again_and_what_comes_of_it(
    first: CommandResult, base: CommandResult | None, again: Says, summary: str
) -> None:
    asked: list[str | None] = []

    async def rerun(case: TestCase | None) -> CommandResult | None:
        asked.append(case.name if case else None)
        return dict(again)[asked[-1]]

    found = await rerun_new_failures(first, base, rerun)
    assert asked == [name for name, _ in again]
    report = TestReport(commit="c", tree="t", commands=(found,), base="main" if base else "")
    assert verdict_of(report).summary == summary
    assert all(case.message == f"of {case.name}" for case in found.cases), "a flaky test's message stays"
    if not again or again[-1][1] is None:
        assert not any(case.flaky for case in found.cases)
    assert (found.verdict == "passed") == ("green" in summary and "before" not in summary)


async def test_a_command_with_an_exit_code_alone_is_tried_once_more(bench: Bench, files: Files) -> None:
    root = files({})
    report = await bench.run(root, "echo x >> ran.log; test $(wc -l < ran.log) = 2", "echo y >> ran.log; exit 7")
    assert noted(root) == ["x", "x", "y", "y"]
    assert [(result.verdict, result.flaky) for result in report.commands] == [("passed", True), ("failed", False)]
    assert report.commands[0].reason == "passed when run again: exit code 1"
    assert verdict_of(report).summary == "t1: exit code 7; 1 flaky: t0"


async def test_each_try_begins_on_a_clean_tree(bench: Bench, files: Files) -> None:
    root = files({})
    clean: list[int] = []

    def renew() -> None:
        clean.append(1)
        (root / "left").unlink()

    report = await bench.run(root, "test -e left && exit 0; touch left; exit 1", renew=renew)
    assert clean == [1]
    assert verdict_of(report).status == "red"


async def test_each_command_begins_on_a_clean_tree_whatever_the_one_before_it_left(bench: Bench, files: Files) -> None:
    root = files({"calc.py": "broken"})

    def renew() -> None:
        (root / "calc.py").write_text("broken")

    report = await bench.run(root, "echo right > calc.py", "grep -q right calc.py", renew=renew)
    assert [one.verdict for one in report.commands] == ["passed", "failed"]


async def test_a_command_that_hung_or_could_not_start_is_not_tried_again(bench: Bench, files: Files) -> None:
    root = files({})
    slow = TestCommand(name="slow", command="echo x >> ran.log; sleep 60", timeout="1s")
    report = await bench.run(root, slow, "echo y >> ran.log; nosuchtool")
    assert noted(root) == ["x", "y"]
    assert [result.verdict for result in report.commands] == ["timed_out", "not_started"]


async def test_trying_again_takes_no_longer_than_the_command_may(bench: Bench, files: Files) -> None:
    hangs = 'echo x >> ran.log; case "$PYTEST_ADDOPTS" in *--last-failed*) sleep 60;; esac'
    nine = "".join(FAILED.replace("test_zero", f"test_{n}") for n in range(9))
    root = files(recorded(1, nine, play=hangs))
    report = await bench.run(root, TestCommand(name="t", command=COMMAND, timeout="3s"))
    assert noted(root) == ["x", "x"]
    assert sum("again" in line for line in bench.said) == 1
    assert verdict_of(report).failed == 9


async def test_a_runner_without_a_cache_is_run_again_as_a_whole(bench: Bench, files: Files) -> None:
    root = files(recorded(1, PASSED + FAILED, play="echo x >> ran.log"))
    report = await bench.run(root, f"{COMMAND} -p no:cacheprovider")
    assert noted(root) == ["x", "x"]
    assert bench.said[1] == "t0: again"
    assert verdict_of(report).failed == 1


@pytest.mark.needs("node", "npm")
async def test_node_tests_are_counted_and_tried_again_by_name_through_npm(bench: Bench, files: Files) -> None:
    tests = """\
const {test, describe, it} = require('node:test');
const fs = require('node:fs');
let first = true;
const note = (name) => fs.appendFileSync('ran.log', name + '\\n');
test('sets (it) up', () => { note('up'); first = false; });
test('works alone: "yes"', () => { note('alone'); if (!first) throw new Error('not alone'); });
test('later', {todo: true}, () => { throw new Error('x') });
describe('d', () => { it('inner is wrong', () => { note('inner'); throw new Error('boom'); }); });
"""
    root = files({"package.json": '{"scripts": {"test": "node --test"}}', "x.test.js": tests})
    report = await bench.run(root, "npm test")
    (flaky,) = [case for case in report.commands[0].cases if case.flaky]
    assert flaky.name == 'x.test.js::works alone: "yes"'
    assert verdict_of(report).summary.startswith("1 of 3 fail: d > inner is wrong; 1 flaky")
    assert noted(root)[:4] == ["up", "alone", "inner", "alone"]
    assert noted(root).count("up") == 1
    assert "boom" in report.commands[0].tail, "people still see the usual output"

    (root / "ran.log").unlink()
    await bench.run(root, TestCommand(name="again", command=flaky.command, report="exit"))
    assert set(noted(root)) == {"alone"}


def case(name: str, outcome: str = "failed", file: str = "t.py") -> TestCase:
    return TestCase(name=name, file=file, outcome=outcome)


def ran(*cases: TestCase, code: int | None = None, name: str = "unit", **more: object) -> CommandResult:
    red = any(case.outcome in ("failed", "errored") for case in cases)
    code = int(red) if code is None else code
    verdict = "failed" if code else "passed"
    told = {"verdict": verdict, "exit_code": code, "reason": f"exit code {code}" if code else "", **more}
    return CommandResult.model_validate({"name": name, "command": f"run {name}", "cases": cases, **told})


def report(*commands: CommandResult, tree: str = "t") -> TestReport:
    return TestReport(commit="c", tree=tree, commands=commands)


def judged(now: CommandResult | list[CommandResult], base: CommandResult | list[CommandResult]) -> TestVerdict:
    mine, theirs = (x if isinstance(x, list) else [x] for x in (now, base))
    return verdict_of(compare_with_base(report(*mine), report(*theirs), "main"))


def test_what_failed_before_too_does_not_make_it_red() -> None:
    found = judged(ran(case("a", "passed"), case("b")), ran(case("a", "passed"), case("b")))
    assert (found.status, found.new_failures, found.known_failures, found.failed, found.failures) == (
        "green", 0, 1, 1, (),
    )  # fmt: skip
    assert found.summary == "1 green, 1 failed before on main too: b"


def test_a_new_failure_decides_and_is_named_alone() -> None:
    found = judged(ran(case("a"), case("b")), ran(case("a", "passed"), case("b")))
    assert (found.status, found.new_failures, found.known_failures, found.failures) == ("red", 1, 1, ("a",))
    assert found.summary == "1 of 2 fail: a; 1 failed before on main too: b"


def test_a_failing_test_that_the_base_does_not_have_is_new() -> None:
    assert judged(ran(case("new"), case("b")), ran(case("b"))).failures == ("new",)
    same_name = judged(ran(case("b", file="u.py"), case("b", "passed")), ran(case("b")))
    assert same_name.failures == ("b",), "a test is its name and its file"


def test_of_two_tests_that_share_a_name_as_many_are_excused_as_failed_before() -> None:
    base = ran(case("x", file=""), case("x", "passed", file=""))
    assert judged(ran(case("x", file=""), case("x", "passed", file="")), base).status == "green"
    both = judged(ran(case("x", file=""), case("x", file="")), base)
    assert (both.status, both.new_failures, both.known_failures) == ("red", 1, 1)


def test_what_passes_now_is_told_as_fixed() -> None:
    found = judged(
        [ran(case("a", "passed"), case("b")), ran(name="lint")],
        [ran(case("a"), case("b")), ran(name="lint", code=2)],
    )
    assert (found.status, found.fixed, found.known_failures) == ("green", 2, 1)
    assert found.summary == "1 green, 1 failed before on main too: b; 2 fixed: a, lint"
    assert judged(ran(case("b")), ran(case("a"), case("b"))).fixed == 0, "one that is gone is not fixed"


def test_a_command_with_nothing_but_an_exit_code_cannot_be_told_apart_once_the_base_was_red() -> None:
    found = judged(ran(code=1), ran(code=1))
    assert (found.status, found.undecidable, found.new_failures) == ("red", True, None)
    assert found.summary == "unit: exit code 1; main was red before and only exit codes exist"
    was_green = judged(ran(code=1), ran())
    assert (was_green.undecidable, was_green.new_failures, was_green.failures) == (False, 1, ("unit",))


def test_something_new_beside_something_undecidable_is_to_be_mended() -> None:
    found = judged([ran(case("a")), ran(name="lint", code=1)], [ran(case("a", "passed")), ran(name="lint", code=1)])
    assert (found.status, found.undecidable, found.new_failures) == ("red", False, 1)


@pytest.mark.parametrize(
    "now",
    [
        ran(case("b"), code=3),
        ran(case("b"), verdict="timed_out", exit_code=None),
        ran(case("b"), verdict="contradicted", exit_code=0),
        ran(code=1),
    ],
    ids=["another exit code", "timed out", "contradicted", "no report any more"],
)
def test_known_failures_excuse_nothing_in_a_command_that_ended_otherwise_than_on_the_base(now: CommandResult) -> None:
    found = judged(now, ran(case("b"), case("c", "passed")))
    assert (found.status, found.undecidable, found.failures) == ("red", False, ("unit",))


def test_a_run_that_stops_at_its_first_failure_has_not_shown_that_nothing_else_fails() -> None:
    found = judged(ran(case("b"), partial=True), ran(case("b"), partial=True))
    assert (found.status, found.undecidable) == ("red", True)
    assert "did not run to its end" in found.summary


def test_optional_commands_are_marked_and_never_decide() -> None:
    lint, before = ran(name="lint", code=1, required=False), ran(name="lint", required=False)
    found = compare_with_base(report(ran(case("a", "passed")), lint), report(ran(case("a", "passed")), before), "main")
    assert [(result.name, result.since) for result in found.commands] == [("lint", "new"), ("unit", None)]
    assert (verdict_of(found).status, verdict_of(found).new_failures, verdict_of(found).fixed) == ("green", 0, 0)


def test_a_report_begins_with_what_is_to_be_mended() -> None:
    cases = [case("ok", "passed"), case("old"), case("new")]
    found = compare_with_base(report(ran(name="lint"), ran(*cases)), report(ran(name="lint"), ran(case("old"))), "main")
    assert [result.name for result in found.commands] == ["unit", "lint"]
    assert [(case.name, case.known) for case in found.commands[0].cases] == [
        ("new", False), ("old", True), ("ok", False),
    ]  # fmt: skip
    assert "known=false (1)" in fix_note(found)
    assert "known=true (1) were there on main before: leave them" in fix_note(found)


def test_without_a_base_all_failures_count_and_none_is_called_new() -> None:
    found = verdict_of(report(ran(case("a"))))
    assert (found.status, found.new_failures, found.known_failures, found.fixed) == ("red", None, None, None)


def test_fingerprints_are_of_what_failed_and_not_of_times_and_addresses() -> None:
    def print_of(*cases: TestCase, tail: str = "", code: int | None = None) -> str:
        return judged(ran(*cases, tail=tail, code=code), ran()).fingerprint

    assert print_of(case("a"), case("b")) == print_of(case("b"), case("a"))
    assert print_of(case("a")) != print_of(case("a"), case("b"))
    assert print_of(code=1, tail="3 failed in 0.21s at 0x7fa0") == print_of(code=1, tail="3 failed in 0.4s at 0x7fb1")
    assert print_of(code=1, tail="missing: sub") != print_of(code=1, tail="missing: mul")
    assert judged(ran(), ran()).fingerprint == ""


@pytest.fixture
def store(tmp_path: Path) -> KeyedStore:
    return kept_results(Home(tmp_path / "home"), "baselines")


def test_a_base_is_remembered_for_a_while(store: KeyedStore) -> None:
    found = report(ran(case("b")), ran(name="lint"))
    assert load_baseline(store, "k") is None
    assert store_baseline(replace(store, clock=lambda: 1000.0), "k", found)
    age_s = KEPT_AGE.total_seconds()
    assert load_baseline(replace(store, clock=lambda: 1000.0 + age_s - 1), "k") == found
    assert load_baseline(replace(store, clock=lambda: 1000.0 + age_s), "k") is None
    assert load_baseline(replace(store, clock=lambda: 999.0), "k") is None, "a clock that was set back proves nothing"
    assert load_baseline(replace(store, clock=lambda: 1000.0), "other") is None


def test_a_later_finding_takes_the_place_of_an_earlier_one(store: KeyedStore) -> None:
    assert store_baseline(store, "k", report(ran(case("b"))))
    assert store_baseline(store, "k", report(ran(case("b", "passed"))))
    (kept,) = load_baseline(store, "k").commands  # type: ignore[union-attr]
    assert kept.verdict == "passed"


@pytest.mark.parametrize("text", ['{"commit": 1', "", "[]"])
def test_a_damaged_memory_is_none(store: KeyedStore, text: str) -> None:
    assert store_baseline(store, "k", report(ran()))
    (file,) = store.root.glob("*/*")
    file.write_text(text)
    assert load_baseline(store, "k") is None


def test_what_cannot_be_kept_is_no_error(store: KeyedStore) -> None:
    store.root.parent.mkdir()
    store.root.touch()  # no directory can be made there
    assert not store_baseline(store, "k", report(ran()))


@pytest.mark.parametrize(
    "result",
    [
        ran(verdict="timed_out", exit_code=None),
        ran(verdict="not_started", exit_code=127),
        ran(verdict="contradicted", exit_code=0),
        ran(code=137),
        ran(verdict="failed", exit_code=None),
        ran(code=1, reason=flood_reason()),
    ],
    ids=["timed out", "not started", "contradicted", "killed", "ended from outside", "flooded"],
)
def test_only_complete_runs_are_remembered(store: KeyedStore, result: CommandResult) -> None:
    assert not is_complete(report(ran(), result))
    assert not store_baseline(store, "k", report(ran(), result))
    assert load_baseline(store, "k") is None


def test_what_is_remembered_belongs_to_a_tree_its_commands_and_their_environment() -> None:
    one = TestCommand(name="unit", command="pytest")
    keys = {
        environment_key("t", [one], "setup", "path"),
        environment_key("u", [one], "setup", "path"),
        environment_key("t", [one.model_copy(update={"timeout": "1m"})], "setup", "path"),
        environment_key("t", [one, one], "setup", "path"),
        environment_key("t", [one], "other", "path"),
    }
    assert len(keys) == 5
    assert environment_key("t", [one], "setup", "path") in keys


def test_of_tests_with_one_name_those_that_fail_are_numbered_first() -> None:
    """So a subtest that fails beside its test, which passes, is no second test: what passed before fails."""
    passed, failed = (TestCase(name="a", outcome=outcome) for outcome in ("passed", "failed"))
    assert [key.number for key in number_cases([passed, failed, passed])] == [0, 1, 2]
    assert number_cases([passed, failed])[case_key(passed)] is failed
