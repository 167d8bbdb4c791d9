"""Everything that the engine itself finds in the change from the base to one commit, from secrets to protected paths
and marks of a merge conflict. Also, from a test report, tests of the base that would pass on the change and are gone
from it, and new tests that prove nothing. `activities.inspect_change` asks for all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from perdure.adapters.checks.experiment.side_rules import command_files
from perdure.adapters.checks.findings import content_findings
from perdure.adapters.checks.findings.secret_leaks import find_leaks, printable_path
from perdure.adapters.checks.globs import covering_pattern
from perdure.adapters.checks.tamper import DifferingFiles, find_hints
from perdure.adapters.checks.tamper.source_tests import SourceTest, find_tests
from perdure.adapters.checks.trees import CommitTree
from perdure.adapters.git import patch
from perdure.adapters.git.patch import ChangedPath
from perdure.adapters.git.repository import Repository
from perdure.models.checks.report import Experiment, Finding, FindingRule, Findings, Severity, TamperingHit, TestReport
from perdure.models.checks.verdict_text import join_short_names
from perdure.models.delivery.turn import Contract
from perdure.models.patch import Hunk
from perdure.models.phases import Kind
from perdure.text import redact_values, shorten

FINDINGS_MOST = 50
"""The most findings listed for one change, the worst first; the others are counted. Nobody mends more in one round."""


_RULES = tuple(FindingRule)
_SEVERITIES = tuple(Severity)


@dataclass(frozen=True)
class EngineFindings:
    """The engine's findings in a change. `counts`: of all findings by severity, those too that are not listed;
    `secrets`: findings of secrets that must not be pushed."""

    findings: Findings
    counts: Counter[Severity]
    secrets: int


def inspect_commit(
    repository: Repository, contract: Contract, commit: str, more: Sequence[Finding] = ()
) -> EngineFindings:
    """Find what is wrong with the change from the base to this commit, from git's objects alone, and return the
    findings.

    more  findings of what ran, listed along with these

    No secret that was found is in the result, and at most FINDINGS_MOST findings are listed. A branch that is behind
    its base is compared with the commit where it left the base, as its pull request will be. Raises GitError when a
    commit is missing.
    """
    base = repository.merge_base(contract.base_sha, commit)
    changed = patch.changed_paths(repository, base, commit)
    binaries = patch.binary_paths(repository, base, commit)
    secrets, secret_values = find_leaks(repository, contract, base, commit, changed, binaries)
    run_files = command_files(CommitTree.from_commit(repository, base), contract.config.test or ())
    review_hints = find_hints(*DifferingFiles.between_commits(repository, contract.base_sha, commit), run_files)
    findings = [
        *secrets,
        *find_protected_paths(contract, changed),
        *find_conflict_marks(repository, base, commit, changed, binaries),
        *content_findings.find_binary_files(changed, binaries),
        *content_findings.find_leaving_links(repository, changed),
        *content_findings.find_submodules(changed),
        *content_findings.find_unfiltered_files(repository, base, commit, changed),
        *content_findings.find_leftovers(repository, base, changed),
        *content_findings.check_size(repository, base, commit),
        *more,
        *_hint_findings(review_hints.places),
    ]
    files, added, deleted = repository.diff_stat(base, commit)
    report = Findings(
        base=base,
        head=commit,
        findings=_worst_findings(findings),
        changed_tests=review_hints.changed_tests,
        files=files,
        added=added,
        deleted=deleted,
    )
    blocking = sum(finding.severity is Severity.BLOCKER for finding in secrets)
    return EngineFindings(
        _redact_secrets(report, secret_values), Counter(finding.severity for finding in findings), blocking
    )


def find_protected_paths(contract: Contract, changed: Iterable[ChangedPath]) -> list[Finding]:
    """Return a blocker for each changed path that `[protect] paths` covers, whether added, changed or deleted; of a
    rename both ends count. A link counts as covered where what lies below its path would be."""
    findings = []
    for change in changed:
        pattern = covering_pattern(change.path, contract.config.protect.paths)
        if pattern is None and content_findings.is_link(
            change
        ):  # a link in the place of a directory stands for what is in it
            pattern = covering_pattern(f"{change.path}/.", contract.config.protect.paths)
        if pattern is None:
            continue
        how = "deleted" if not change.exists else "changed" if change.was_mode.strip("0") else "added"
        findings.append(
            Finding(
                rule=FindingRule.PROTECTED_PATH,
                severity=Severity.BLOCKER,
                title=f"a protected path is {how}",
                description=f"[protect] paths has {pattern!r}.",
                file=printable_path(change.path),
                suggestion=f"Undo the change to this file. Only its owner can allow it: without this pattern in "
                f"[protect] paths of perdure.toml on {contract.base}, or of the config sent with the request.",
            )
        )
    return findings


def _hint_findings(places: Sequence[TamperingHit]) -> list[Finding]:
    """Return a skippable finding for each of these places that a reviewer should look at; they never make a verdict."""
    return [
        Finding(
            rule=FindingRule.TAMPERING,
            severity=Severity.SKIPPABLE,
            title=hit.title,
            description=hit.evidence,
            file=hit.file,
            line=hit.line,
            suggestion="Look whether tests say less for it.",
        )
        for hit in places
    ]


def _worst_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings sorted with the worst first, at most FINDINGS_MOST; where there are more, the last one says
    how many of each severity are left out."""
    ordered = sorted(findings, key=_sort_key)
    if len(ordered) <= FINDINGS_MOST:
        return tuple(ordered)
    kept, left_out = ordered[: FINDINGS_MOST - 1], ordered[FINDINGS_MOST - 1 :]
    counts = Counter(finding.severity.replace("_", " ") for finding in left_out)
    counts_text = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    more = Finding(
        rule=left_out[0].rule, severity=left_out[0].severity, title=f"{len(left_out)} more findings: {counts_text}"
    )
    return (*kept, more)


def _sort_key(finding: Finding) -> tuple[int, int, str, bool, int]:
    """Return a finding's place in the order: by severity, rule and file; within a file by line, without a line last."""
    return (
        _SEVERITIES.index(finding.severity),
        _RULES.index(finding.rule),
        finding.file,
        finding.line is None,
        finding.line or 0,
    )


def _redact_secrets(findings: Findings, values: Iterable[str]) -> Findings:
    """Return the findings with each secret replaced by `[secret]` in all their texts: evidence, changed tests and names
    of files can quote one."""
    secrets = set(values)

    def clean(entry: BaseModel, *names: str) -> BaseModel:
        texts = {name: redact_values(getattr(entry, name), secrets, "[secret]") for name in names}
        return entry.model_copy(update=texts)

    cleaned = tuple(clean(finding, "title", "description", "file") for finding in findings.findings)
    tests = tuple(clean(test, "name", "file", "before", "after") for test in findings.changed_tests)
    return findings.model_copy(update={"findings": cleaned, "changed_tests": tests})


_BEGINS, _BETWEEN, _ENDS = b"<<<<<<< ", b"=======", b">>>>>>> "


def find_conflict_marks(
    repository: Repository, base: str, head: str, changed: Sequence[ChangedPath], binaries: set[str]
) -> list[Finding]:
    """Return a blocker for each text file to which the change has added all three marks of a conflict, in their order,
    each at the beginning of a line."""
    text = [change for change in changed if change.path not in binaries]
    return [
        Finding(
            rule=FindingRule.CONFLICT,
            severity=Severity.BLOCKER,
            title="marks of a conflict are left",
            description="The lines between them are of two sides that were never brought together.",
            file=printable_path(path),
            line=line,
            suggestion="Make one of both sides, and take out every mark.",
        )
        for path, hunks in patch.read_hunks(repository, base, head, text)
        if (line := _conflict_line(hunks)) is not None
    ]


def _conflict_line(hunks: Iterable[Hunk]) -> int | None:
    """Return the line where the first merge conflict begins, None without one. Its three marks have to be lines that
    the change has added, in their order; what lies between them may be older."""
    first: int | None = None
    between = False
    for hunk in hunks:
        if not any(b"+" + mark in hunk.body for mark in (_BEGINS, _BETWEEN, _ENDS)):
            continue
        for line in hunk.new_lines():
            if not line.added:
                continue
            if line.data.startswith(_BEGINS):
                first, between = line.number, False
            elif first is not None and line.data.rstrip(b"\r") == _BETWEEN:
                between = True
            elif first is not None and between and line.data.startswith(_ENDS):
                return first
    return None


def find_lost_tests(repository: Repository, report: TestReport | None) -> list[Finding]:
    """Return at most one finding: tests of the base that pass on the change, as the report's experiment shows, and are
    gone from it.

    A test that was moved or renamed is not lost: the change has a new test of its name, or with the same body. Empty
    without an experiment, and where the request is about tests. Raises GitError when a commit of the report is missing.
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
            title=shorten(f"{subject} gone: {join_short_names(missing)}", 200),
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
    kind    of the request; empty for any other than a bug or a feature

    `[tests] new_tests_must_fail_before` gives its severity; with `off` there is none. Empty, too, where no test can be
    told from another, or the change's tests did not run to their end on the base: that stands in the report.
    """
    severity = contract.config.tests.new_tests_must_fail_before
    experiment = report.experiment if report is not None else None
    if experiment is None or severity == "off" or kind not in (Kind.BUG, Kind.FEATURE):
        return []
    proving = [command.proving for command in experiment.commands if command.proving is not None]
    has_proof = any(proving) or any(command.unbuilt for command in experiment.commands) or bool(report and report.fixed)
    if has_proof or (not proving and not _could_have_tested(experiment)):
        return []
    base = experiment.branch or "the base"
    title = "the new tests prove nothing" if proving else "no test comes with the change"
    fact = f"Every test of the change that passes on it passes on {base} as well." if proving else "It touches no test."
    if any(command.hollow for command in experiment.commands):
        fact = "The new tests pass with the bodies of the new functions taken out."
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
    """Return whether the change touches no test file, in a repository whose tests a runner reports by name."""
    return not experiment.touched and any(command.base_tests is not None for command in experiment.commands)
