"""Findings about what tests show: tests of the base that would pass on the change and are gone from it; new tests that
prove nothing."""

from __future__ import annotations

import re

from perdure.adapters.checks.experiment.trees import CommitTree
from perdure.adapters.checks.tamper.source_tests import SourceTest, find_tests
from perdure.adapters.git.repository import Repository
from perdure.models.contract import Contract
from perdure.models.experiment import Experiment
from perdure.models.phases import Kind
from perdure.models.report import Finding, FindingRule, Severity, TestReport
from perdure.models.tampering_text import join_short_names


def find_lost_tests(repository: Repository, report: TestReport | None) -> list[Finding]:
    """Return at most one finding: tests of the base that pass on the change, as its experiment shows, and are gone from
    it.

    A test that was moved or renamed has a twin in the change, and is not lost. Empty where the request is about tests.
    Raises GitError when a commit of the report is not there.
    """
    experiment = report.experiment if report is not None else None
    names = [name for command in experiment.commands for name in command.lost] if experiment is not None else []
    if experiment is None or experiment.allowed or not names:
        return []
    old, new = (
        _tests_in_tree(CommitTree.from_commit(repository, commit), experiment.touched)
        for commit in (experiment.base, experiment.change)
    )
    old_names = {(test.file, test.leaf) for test in old}
    fresh = [test for test in new if (test.file, test.leaf) not in old_names]
    twins = {test.leaf for test in fresh} | {test.body for test in fresh}
    missing = [name for name in names if not _has_twin(name, old, twins)]
    if not missing:
        return []
    base, number = experiment.branch or "the base", len(missing)
    subject = f"1 test of {base} is" if number == 1 else f"{number} tests of {base} are"
    return [
        Finding(
            rule=FindingRule.LOST_TEST,
            severity=Severity.TECH_DEBT,
            title=f"{subject} gone: {join_short_names(missing)}"[:200],
            description="Run on the change, they pass; nothing checks any more what they did.",
            suggestion="Put them back, unless the request wants them gone.",
        )
    ]


def _tests_in_tree(tree: CommitTree, paths: tuple[str, ...]) -> list[SourceTest]:
    """Return the tests in these files of a tree."""
    return [test for path, text in tree.read_texts(paths).items() for test in find_tests(path, text)]


def _has_twin(name: str, old: list[SourceTest], twins: set[str]) -> bool:
    """Return whether the change has a new test of this one's name, or one that does the same.

    old    the base's tests, for what this one does
    twins  names and bodies of the change's new tests
    """
    leaf = re.split(r"::| > |\.|/", name.partition("[")[0])[-1]
    return any(test.leaf == leaf and (test.leaf in twins or test.body in twins) for test in old)


def find_unproven_change(contract: Contract, report: TestReport | None, kind: str) -> list[Finding]:
    """Return at most one finding, for a bug or a feature: no test comes with the change, or its tests pass without it
    as well.

    report  of the commit that is looked at; without an experiment in it nothing is known

    `[tests] new_tests_must_fail_before` gives its severity, or is `off`. Empty, too, where no test can be told from
    another, or the change's tests did not run to their end on the base: that stands in the report.
    """
    severity = contract.config.tests.new_tests_must_fail_before
    experiment = report.experiment if report is not None else None
    if experiment is None or severity == "off" or kind not in (Kind.BUG, Kind.FEATURE):
        return []
    proving = [command.proving for command in experiment.commands if command.proving is not None]
    if any(proving) or (not proving and not _could_have_tested(experiment)):
        return []
    base = experiment.branch or "the base"
    title = "the new tests prove nothing" if proving else "no test comes with the change"
    fact = f"Every test of the change that passes on it passes on {base} as well." if proving else "It touches no test."
    subject = "what was wrong" if kind == Kind.BUG else "what is new"
    return [
        Finding(
            rule=FindingRule.UNPROVEN,
            severity=Severity(severity),
            title=title,
            description=f"{fact} Nothing would tell if this {kind} were undone.",
            suggestion=f"Add a test of {subject} that fails on {base}.",
        )
    ]


def _could_have_tested(experiment: Experiment) -> bool:
    """Return whether the change leaves the test side alone, in a repository whose tests are known by name."""
    return not experiment.touched and any(command.base_tests is not None for command in experiment.commands)
