"""New failures told from those that were there before, and what is remembered of a base commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perdure.adapters.checks.baseline import (
    compare_with_base,
    environment_key,
    is_complete,
    load_baseline,
    store_baseline,
)
from perdure.adapters.checks.verdict import fix_note, verdict_of
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import KeyedStore, kept_results
from perdure.adapters.system.output import flood_reason
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.work import TestVerdict
from perdure.models.limits import KEPT_AGE


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
