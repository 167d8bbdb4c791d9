"""Find tests of the base commit that are gone, skipped or emptied in a change where no run shows it, by reading the
files that differ; and the hits that record this, which `tamper.hints` makes as well.

Where a runner names its tests, experiments show it (perdure.adapters.checks.experiment), and so they do where it knows
only exit codes, in so far as its tests are apart from the product. What is left are tests inside product files (Rust's,
doctests), and test files that the rules of the test side do not cover.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.adapters.checks.tamper.source_tests import CHECKS, LANGUAGES, SourceTest, find_doctests, find_tests
from perdure.adapters.checks.trees import DifferingFiles
from perdure.models.checks.paths import is_test_file
from perdure.models.checks.report import Tampering, TamperingHit, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.limits import TAMPER_HITS_MOST
from perdure.text import one_line, shorten

TAMPER_EVIDENCE_CHARS = 600
"""Characters of one hit's evidence: some ten lines, enough to see what it was and what it is."""


HOW_TO_ALLOW = "(a request that is to take tests away has to say so: allow_test_changes)"

CODE = re.compile(
    r".*\.(pyi?|pyx|[cm]?[jt]sx?|vue|svelte|go|rs|java|kts?|scala|groovy|clj[cs]?|[ch]|cc|cpp|cxx|hh|hpp|hxx|mm?|cs|fs|vb|swift"
    r"|rb|php|p[lm]|t|lua|exs?|erl|hs|mli?|jl|R|r|nim|zig|dart|cr|d|f90|pas|tcl|raku|rakumod|sh|bash|zsh|fish|ps1|bat|awk)"
)
"""Paths of files that are code, and may be the product."""


@dataclass(frozen=True)
class MissingTests:
    """Hits for tests that are gone or skipped, and the commit where they can be read."""

    hits: tuple[TamperingHit, ...] = ()
    base: str = ""


def find_missing_tests(
    before: DifferingFiles,
    after: DifferingFiles,
    commands: Sequence[TestCommand],
    base_report: TestReport | None = None,
    covered: Collection[str] = (),
) -> MissingTests:
    """Find tests that are gone, newly skipped, or assert nothing any more, in the files that differ between two
    commits.

    base_report  the commands' report of the base: tests that a runner named there are left out
    covered      paths that an experiment covers: left out

    Returns at most TAMPER_HITS_MOST hits, with the commit of `before`. Doctests count where a command has `doctest` in
    it. The git process that reads is ended. Raises GitError when a commit cannot be read.
    """
    doctests = any("doctest" in command.command for command in commands)
    paths = sorted(path for path in before.changed if path not in covered and _may_hold_tests(path, doctests))
    before.preload(paths)
    after.preload(paths)
    try:
        comparison = _TestComparison(before, after, doctests, _reported_names(base_report))
        comparison.compare_files(paths)
    finally:
        before.close()
    return MissingTests(limit_hits(comparison.hits), before.commit)


def with_missing_tests(report: TestReport, missing: MissingTests, allowed: bool) -> TestReport:
    """Return the report with these hits as its `tampering`, in the place of what is there; unless they are allowed, its
    note begins with the instruction to restore these tests. Without hits it is the report as it was.

    allowed  the request itself is about tests: the hits stay in the report, and do not count
    """
    if not missing.hits:
        return report
    base = report.base or "the base"
    instructions = [f"First undo what stands under `tampering` ({len(missing.hits)}): those tests as on {base} again."]
    if missing.base:
        instructions.append(f"Where a hit ends in …, read the whole with `git show {missing.base[:12]}:FILE`.")
    note = " ".join([*([] if allowed else instructions), *([report.note] if report.note else [])])
    return report.model_copy(update={"tampering": missing.hits, "allowed": allowed, "note": note})


@dataclass
class _TestComparison:
    """The comparison of the tests in two commits, which collects hits.

    before, after  the files that differ
    doctests       doctests are run, and count
    named_tests    names of tests that a runner reported on the base: runs judge these
    """

    before: DifferingFiles
    after: DifferingFiles
    doctests: bool
    named_tests: Collection[str]
    hits: list[TamperingHit] = field(default_factory=list)

    def compare_files(self, paths: Sequence[str]) -> None:
        """Compare the tests in these files, and append to `hits` those that are gone, newly skipped, or assert nothing
        any more.

        A test of the base is matched with the change's test of that name in the same file; else with a new test that
        has the same body; else with a new test of that name in any file. A file with tests that can no longer be read
        is one hit. Tests in `named_tests` are left out.
        """
        old, new = self._tests_in_files(self.before, paths), self._tests_in_files(self.after, paths)
        unreadable = [path for path in paths if self.after.has(path) and self.after.read_text(path) is None]
        new_tests = {(test.file, test.leaf): test for test in new}
        old_names = {(test.file, test.leaf) for test in old}
        fresh = [test for test in new if (test.file, test.leaf) not in old_names]
        lost = []
        for test in old:
            survivor = new_tests.get((test.file, test.leaf))
            if survivor is not None:
                self._check_survivor(test, survivor)
            elif test.leaf not in self.named_tests and test.file not in unreadable:
                lost.append(test)
        for attribute in ("body", "leaf"):
            twins: dict[str, list[SourceTest]] = {}
            for test in reversed(fresh):
                twins.setdefault(getattr(test, attribute), []).append(test)
            unmatched = []
            for test in lost:
                matches = twins.get(getattr(test, attribute))
                if matches:
                    self._check_survivor(test, matches.pop())
                else:
                    unmatched.append(test)
            fresh, lost = [test for each in twins.values() for test in each], unmatched
        self._record_gone_tests(lost)
        for path in unreadable:
            names = [test.leaf for test in old if test.file == path]
            if names:
                title = f"{path} cannot be read any more, and with it {', '.join(names[:4])}"
                self.hits.append(make_hit(Tampering.GONE, title, path))
        self._record_gone_files(paths)

    def _tests_in_files(self, files: DifferingFiles, paths: Iterable[str]) -> list[SourceTest]:
        """Return the tests in those of these files that are test files or Rust files; where doctests are run, also
        those in any `.py` file. A file that the commit lacks, or that cannot be read, has none."""
        found_tests = []
        for path in paths:
            text = files.read_text(path) or ""
            found_tests += find_tests(path, text) if is_test_file(path) or path.endswith(".rs") else []
            found_tests += find_doctests(path, text) if self.doctests and path.endswith(".py") else []
        return found_tests

    def _check_survivor(self, old_test: SourceTest, new_test: SourceTest) -> None:
        """Record a hit where a test of the base is newly skipped or expected to fail; else where it asserts nothing any
        more. None for a test in `named_tests`, which a runner reported on the base: runs judge these."""
        skips = added_items(new_test.skips, old_test.skips)
        if skips and old_test.leaf not in self.named_tests:
            title = f"{new_test.leaf} is skipped or expected to fail"
            self.hits.append(
                make_hit(Tampering.SKIPPED, title, new_test.file, new_test.line, plus_lines("\n".join(skips)))
            )
        elif (
            old_test.leaf not in self.named_tests and CHECKS.search(old_test.text) and not CHECKS.search(new_test.text)
        ):
            title = f"{new_test.leaf} checks nothing any more"
            self.hits.append(
                make_hit(
                    Tampering.HOLLOW,
                    title,
                    new_test.file,
                    new_test.line,
                    minus_lines(old_test.text),
                    plus_lines(new_test.text),
                )
            )

    def _record_gone_tests(self, lost: Sequence[SourceTest]) -> None:
        """Record a hit for each test that is gone, and one for all tests of a file that is gone as a whole."""
        by_file: dict[str, list[SourceTest]] = {}
        for test in lost:
            if self.after.has(test.file):
                title = f"{test.leaf} is gone"
                self.hits.append(make_hit(Tampering.GONE, title, test.file, None, minus_lines(test.text), HOW_TO_ALLOW))
            else:
                by_file.setdefault(test.file, []).append(test)
        for file, gone in by_file.items():
            names = ", ".join(test.leaf for test in gone[:4]) + (", …" if len(gone) > 4 else "")
            title = f"{names} {'is' if len(gone) == 1 else 'are'} gone with {file}"
            self.hits.append(
                make_hit(
                    Tampering.GONE, title, file, None, *(minus_lines(test.text) for test in gone[:3]), HOW_TO_ALLOW
                )
            )

    def _record_gone_files(self, paths: Sequence[str]) -> None:
        """Append a hit for each test file that is gone, in languages whose tests are not read here; none where one of
        these files has the same content in the change, for it was moved there."""
        blobs = {self.after.object_name(path) for path in paths if self.after.has(path)}
        for path in paths:
            is_gone = self.before.has(path) and not self.after.has(path) and self.before.object_name(path) not in blobs
            if is_gone and is_test_file(path) and not _is_language_known(path):
                text = (self.before.read_text(path) or "")[:300]
                self.hits.append(
                    make_hit(Tampering.GONE, f"{path} is gone", path, None, minus_lines(text), HOW_TO_ALLOW)
                )


def _reported_names(report: TestReport | None) -> frozenset[str]:
    """Return the names, as sources have them, of all tests that a runner reported and that stand apart from the
    product."""
    cases = [case for command in report.commands for case in command.cases] if report is not None else []
    cases = [case for case in cases if not case.file or is_test_file(case.file)]
    return frozenset(re.split(r"::| > |\.", case.name.partition("[")[0])[-1] for case in cases)


def _may_hold_tests(path: str, doctests: bool) -> bool:
    """Return whether tests of this file are read: it is a test file, or Rust, or Python where doctests are run."""
    return is_test_file(path) or path.endswith(".rs") or (doctests and path.endswith(".py"))


def _is_language_known(path: str) -> bool:
    """Return whether the tests of a file are read by name, by its ending."""
    return re.search(r"\.(py|[cm]?[jt]sx?|" + "|".join(LANGUAGES) + r")$", path) is not None


def limit_hits(hits: Sequence[TamperingHit]) -> tuple[TamperingHit, ...]:
    """Return these hits, at most TAMPER_HITS_MOST; where there are more, the last one returned says how many are left
    out."""
    if len(hits) <= TAMPER_HITS_MOST:
        return tuple(hits)
    more = len(hits) - TAMPER_HITS_MOST + 1
    return (*hits[: TAMPER_HITS_MOST - 1], make_hit(hits[-1].rule, f"and {more} places more"))


def make_hit(rule: Tampering, title: str, file: str = "", line: int | None = None, *evidence: str) -> TamperingHit:
    """Return a hit with its evidence parts joined, without empty ones, and cut to TAMPER_EVIDENCE_CHARS.

    The evidence is as it stands in the file: whoever shows it has to escape it. The title becomes part of messages: it
    is put on one line, without invisible characters.
    """
    text = "\n".join(part.rstrip() for part in evidence if part.strip())
    return TamperingHit(
        rule=rule, title=one_line(title), file=file, line=line, evidence=shorten(text, TAMPER_EVIDENCE_CHARS)
    )


def minus_lines(text: str) -> str:
    """Return the text's lines that are not blank, each with `- ` before it."""
    return "\n".join(f"- {line}" for line in text.splitlines() if line.strip())


def plus_lines(text: str) -> str:
    """Return the text's lines that are not blank, each with `+ ` before it."""
    return "\n".join(f"+ {line}" for line in text.splitlines() if line.strip())


def added_items(now: Iterable[str], before: Iterable[str]) -> list[str]:
    """Return the items that are in `now` more often than in `before`, in their order, as many times as they are
    more."""
    counts: dict[str, int] = {}
    for item in before:
        counts[item] = counts.get(item, 0) + 1
    added = []
    for item in now:
        if counts.get(item, 0):
            counts[item] -= 1
        else:
            added.append(item)
    return added
