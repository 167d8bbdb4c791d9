"""Reading the runs of an experiment, test by test."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from perdure.adapters.checks.baseline import FAILING, CaseKey, case_key
from perdure.models.report import CommandResult, TestCase


def outcomes(result: CommandResult | None) -> dict[CaseKey, str]:
    """Each test with one outcome: it failed if any case of that name did, and passed if all did."""
    found = dict[CaseKey, str]()
    for case in result.cases if result is not None else ():
        had = found.get(case_key(case))
        found[case_key(case)] = case.outcome if had in (None, "passed") or case.outcome in FAILING else str(had)
    return found


def green(result: CommandResult | None) -> set[CaseKey]:
    return {one for one, outcome in outcomes(result).items() if outcome == "passed"}


def ended(result: CommandResult) -> bool:
    """True where it came to an end of its own: what was killed says nothing about the tests it did not reach."""
    return result.verdict != "timed_out" and result.exit_code is not None and 0 <= result.exit_code <= 128


def proving(
    before: CommandResult | None, now: CommandResult, on_base: CommandResult, differing: Collection[str]
) -> set[CaseKey]:
    """Tests that are green on the change and not without it; what `on_base` leaves out because it does not differ is
    told by the base itself.

    differing  files of the test side that the change has made or changed
    """
    was, there = outcomes(before), outcomes(on_base)
    unbuilt = {case.name for case in on_base.cases if case.outcome == "errored" and not case.file}  # packages of Go

    def asked(one: CaseKey) -> bool:
        """False for what was left out of that run, and was green on the base."""
        package = one[1].rpartition("::")[0]
        return one in there or one not in was or one[0] in differing or was[one] in FAILING or package in unbuilt

    return {one for one in green(now) if there.get(one) != "passed" and asked(one)}


def messages(result: CommandResult | None) -> dict[CaseKey, str]:
    return {case_key(case): case.message for case in result.cases if case.message} if result is not None else {}


def ordered(keys: Iterable[CaseKey], result: CommandResult | None) -> list[CaseKey]:
    """As the runner reported them."""
    wanted = set(keys)
    found = (
        dict.fromkeys(case_key(case) for case in result.cases if case_key(case) in wanted) if result is not None else {}
    )
    return [*found, *sorted(wanted - found.keys())]


def red(names: Iterable[str], result: CommandResult, counts: bool) -> set[str]:
    """Of the canaries, those that were reported as failing by a command that failed as a whole.

    counts  the runner reports its tests; one that tells nothing but its exit code has shown all of them where the
            end of its output names one, or none
    """
    if result.verdict in ("passed", "not_started"):
        return set()
    if not counts:
        ours = any(name in result.tail for name in names)  # else it is red for another reason: what did not compile
        return set(names) if ours and result.verdict == "failed" and result.exit_code not in (None, 0) else set()
    failing = [case for case in result.cases if case.outcome in FAILING]
    return {name for name in names if any(_is(name, case) for case in failing)}


def fallen(keys: Iterable[CaseKey], result: CommandResult) -> set[CaseKey]:
    """Of tests that were made to fail, those that were reported so; by their names alone where their places moved."""
    said = outcomes(result)
    failing = {one for one, outcome in said.items() if outcome in FAILING}
    names = {name for _, name in failing}
    if result.verdict in ("passed", "not_started"):
        return set()
    return {one for one in keys if one in failing or (one not in said and one[1] in names)}


def _is(name: str, case: TestCase) -> bool:
    return name in case.name
