"""A change whose new tests prove nothing: none of them fails without it (perdure.adapters.checks.experiment, D)."""

from __future__ import annotations

from perdure.models.contract import Contract
from perdure.models.experiment import Experiment
from perdure.models.phases import Kind
from perdure.models.report import Finding, Rule, Severity, TestReport


def unproven(contract: Contract, report: TestReport | None, kind: str) -> list[Finding]:
    """At most one, for a bug or a feature; `[tests] new_tests_must_fail_before` says how bad it is, or `off`.

    report  of the commit that is looked at; without experiments in it nothing is known

    Where no test can be told from another, or the change's tests did not run to their end on the base, nobody was
    asked: that stands in the report.
    """
    wanted = contract.config.tests.new_tests_must_fail_before
    tried = report.experiment if report is not None else None
    if tried is None or wanted == "off" or kind not in (Kind.BUG, Kind.FEATURE):
        return []
    asked = [one.proving for one in tried.commands if one.proving is not None]
    if any(asked) or (not asked and not _could_have(tried)):
        return []
    base = tried.branch or "the base"
    title = "the new tests prove nothing" if asked else "no test comes with the change"
    said = f"Every test of the change that passes on it passes on {base} as well." if asked else "It touches no test."
    repaired = "what was wrong" if kind == Kind.BUG else "what is new"
    return [
        Finding(
            rule=Rule.UNPROVEN,
            severity=Severity(wanted),
            title=title,
            description=f"{said} Nothing would tell if this {kind} were undone.",
            suggestion=f"Add a test of {repaired} that fails on {base}.",
        )
    ]


def _could_have(tried: Experiment) -> bool:
    """A change that leaves the test side alone, in a repository whose tests are known by name."""
    return not tried.touched and any(one.base_tests is not None for one in tried.commands)
