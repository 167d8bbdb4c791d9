"""Tests of the base that would pass on the change and are gone from it; new tests that prove nothing."""

from __future__ import annotations

import re

from perdure.adapters.checks.experiment.trees import Tree
from perdure.adapters.checks.tamper.names import Test, tests
from perdure.adapters.git.repository import Repository
from perdure.models.contract import Contract
from perdure.models.experiment import Experiment
from perdure.models.phases import Kind
from perdure.models.report import Finding, FindingRule, Severity, TestReport
from perdure.models.tampering_text import join_short_names


def lost(repository: Repository, report: TestReport | None) -> list[Finding]:
    """At most one. A test that was moved or renamed has a twin in the change, and is not lost.

    Raises GitError when a commit of the report is not there.
    """
    tried = report.experiment if report is not None else None
    names = [name for one in tried.commands for name in one.lost] if tried is not None else []
    if tried is None or tried.allowed or not names:
        return []
    old, new = (_tests(Tree.of(repository, commit), tried.touched) for commit in (tried.base, tried.change))
    had = {(test.file, test.leaf) for test in old}
    fresh = [test for test in new if (test.file, test.leaf) not in had]
    twins = {test.leaf for test in fresh} | {test.body for test in fresh}
    gone = [name for name in names if not _has_twin(name, old, twins)]
    if not gone:
        return []
    base, number = tried.branch or "the base", len(gone)
    those = f"1 test of {base} is" if number == 1 else f"{number} tests of {base} are"
    return [
        Finding(
            rule=FindingRule.LOST_TEST,
            severity=Severity.TECH_DEBT,
            title=f"{those} gone: {join_short_names(gone)}"[:200],
            description="Run on the change, they pass; nothing checks any more what they did.",
            suggestion="Put them back, unless the request wants them gone.",
        )
    ]


def _tests(tree: Tree, paths: tuple[str, ...]) -> list[Test]:
    return [test for path, text in tree.texts(paths).items() for test in tests(path, text)]


def _has_twin(name: str, old: list[Test], twins: set[str]) -> bool:
    leaf = re.split(r"::| > |\.|/", name.partition("[")[0])[-1]
    return any(test.leaf == leaf and (test.leaf in twins or test.body in twins) for test in old)


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
            rule=FindingRule.UNPROVEN,
            severity=Severity(wanted),
            title=title,
            description=f"{said} Nothing would tell if this {kind} were undone.",
            suggestion=f"Add a test of {repaired} that fails on {base}.",
        )
    ]


def _could_have(tried: Experiment) -> bool:
    """A change that leaves the test side alone, in a repository whose tests are known by name."""
    return not tried.touched and any(one.base_tests is not None for one in tried.commands)
