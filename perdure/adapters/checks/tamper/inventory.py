"""Tests of the base that are gone, or skipped, where no run tells it: read by name from the files that differ.

A runner that names its tests is asked by experiment (perdure.adapters.checks.experiment), and so is one that knows
only exit codes, in so far as its tests are apart from the product. What is left are tests inside product files (Rust's,
doctests), and test files that nobody takes for the test side.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.adapters.checks.tamper.files import Files
from perdure.adapters.checks.tamper.names import CHECKS, LANGUAGES, Test, examples, tests
from perdure.models.config import TestCommand
from perdure.models.limits import TAMPER_HITS_MOST
from perdure.models.report import Tampering, TamperingHit, TestReport
from perdure.text import one_line

TAMPER_EVIDENCE_CHARS = 600
"""Of one hit's evidence: some ten lines, enough to see what it was and what it is."""


ASKED = "(a request that is to take tests away has to say so: allow_test_changes)"

_TEST = re.compile(
    r"[^/]*[._-](test|spec|tests|specs)\.[cm]?[jt]sx?|[^/]*_test\.(go|rb|exs|dart|cc|cpp|c|lua|rs|ml|clj|erl)"
    r"|test[_-][^/]*\.(rb|cc|cpp|c|lua|[cm]?[jt]sx?|sh|bash|R|pl|rs|php)|[^/]*[_.-]test\.(sh|bash|bats|php)"
    r"|[^/]*(Test|Tests|IT|Spec|TestCase)\.(java|kt|kts|groovy|scala|cs|php|swift|vb|fs)|[^/]*_spec\.(rb|lua|cr)"
    r"|[^/]*\.(bats|t)|test[^/]*\.py|[^/]*_tests?\.py"
)
_PLACE = re.compile(r"(^|/)(__tests__|tests?)/(.*/)?[^/]+\.([cm]?[jt]sx?|sh|bash|rs|t)$")


def is_test(path: str) -> bool:
    """True for a file that holds tests, by its name, or for a script by its place."""
    return _TEST.fullmatch(path.rpartition("/")[2]) is not None or _PLACE.search(path) is not None


@dataclass(frozen=True)
class MissingTests:
    """Hits, and the commit where what is gone can be read."""

    hits: tuple[TamperingHit, ...] = ()
    base: str = ""


def missing_tests(
    before: Files,
    after: Files,
    commands: Sequence[TestCommand],
    base: TestReport | None = None,
    covered: Collection[str] = (),
) -> MissingTests:
    """Hits for tests that no runner named on the base, in files that differ and that no experiment `covered`.

    Raises GitError when a commit cannot be read.
    """
    doctests = any("doctest" in command.command for command in commands)
    paths = sorted(path for path in before.changed if path not in covered and _may_hold(path, doctests))
    before.load(paths)
    after.load(paths)
    try:
        found = _Compared(before, after, doctests, _named(base))
        found.compare(paths)
    finally:
        before.close()
    return MissingTests(at_most(found.hits), before.commit)


def judged(report: TestReport, found: MissingTests, allowed: bool) -> TestReport:
    """The report with the hits in it, and, unless they were asked for, what to do about them in its note.

    allowed  the request itself is about tests: the hits stay in the report, and do not count
    """
    if not found.hits:
        return report
    base = report.base or "the base"
    told = [f"First undo what stands under `tampering` ({len(found.hits)}): those tests as on {base} again."]
    if found.base:
        told.append(f"Where a hit ends in …, read the whole with `git show {found.base[:12]}:FILE`.")
    note = " ".join([*([] if allowed else told), *([report.note] if report.note else [])])
    return report.model_copy(update={"tampering": found.hits, "allowed": allowed, "note": note})


@dataclass
class _Compared:
    before: Files
    after: Files
    doctests: bool
    named: Collection[str]
    hits: list[TamperingHit] = field(default_factory=list)

    def compare(self, paths: Sequence[str]) -> None:
        old, new = self._read(self.before, paths), self._read(self.after, paths)
        unread = [path for path in paths if self.after.has(path) and self.after.text(path) is None]
        now = {(test.file, test.leaf): test for test in new}
        was_here = {(test.file, test.leaf) for test in old}
        fresh = [test for test in new if (test.file, test.leaf) not in was_here]
        lost = []
        for test in old:
            kept = now.get((test.file, test.leaf))
            if kept is not None:
                self._survivor(test, kept)
            elif test.leaf not in self.named and test.file not in unread:
                lost.append(test)
        for same in ("body", "leaf"):
            twins: dict[str, list[Test]] = {}
            for test in reversed(fresh):
                twins.setdefault(getattr(test, same), []).append(test)
            left = []
            for test in lost:
                found = twins.get(getattr(test, same))
                if found:
                    self._survivor(test, found.pop())
                else:
                    left.append(test)
            fresh, lost = [test for each in twins.values() for test in each], left
        self._gone(lost)
        for path in unread:
            names = [test.leaf for test in old if test.file == path]
            if names:
                title = f"{path} cannot be read any more, and with it {', '.join(names[:4])}"
                self.hits.append(hit(Tampering.GONE, title, path))
        self._files(paths)

    def _read(self, files: Files, paths: Iterable[str]) -> list[Test]:
        found = []
        for path in paths:
            text = files.text(path) or ""
            found += tests(path, text) if is_test(path) or path.endswith(".rs") else []
            found += examples(path, text) if self.doctests and path.endswith(".py") else []
        return found

    def _survivor(self, old: Test, now: Test) -> None:
        skips = only_new(now.skips, old.skips)
        if skips and old.leaf not in self.named:
            title = f"{now.leaf} is skipped or expected to fail"
            self.hits.append(hit(Tampering.SKIPPED, title, now.file, now.line, is_now("\n".join(skips))))
        elif old.leaf not in self.named and CHECKS.search(old.text) and not CHECKS.search(now.text):
            title = f"{now.leaf} checks nothing any more"
            self.hits.append(hit(Tampering.HOLLOW, title, now.file, now.line, was(old.text), is_now(now.text)))

    def _gone(self, lost: Sequence[Test]) -> None:
        """One hit each; one for all tests of a file that is gone as a whole."""
        files: dict[str, list[Test]] = {}
        for test in lost:
            if self.after.has(test.file):
                title = f"{test.leaf} is gone"
                self.hits.append(hit(Tampering.GONE, title, test.file, None, was(test.text), ASKED))
            else:
                files.setdefault(test.file, []).append(test)
        for file, gone in files.items():
            names = ", ".join(test.leaf for test in gone[:4]) + (", …" if len(gone) > 4 else "")
            title = f"{names} {'is' if len(gone) == 1 else 'are'} gone with {file}"
            self.hits.append(hit(Tampering.GONE, title, file, None, *(was(test.text) for test in gone[:3]), ASKED))

    def _files(self, paths: Sequence[str]) -> None:
        """Test files in languages nobody here reads: as a whole."""
        blobs = {self.after.blob(path) for path in paths if self.after.has(path)}
        for path in paths:
            gone = self.before.has(path) and not self.after.has(path) and self.before.blob(path) not in blobs
            if gone and is_test(path) and not _is_read(path):
                text = (self.before.text(path) or "")[:300]
                self.hits.append(hit(Tampering.GONE, f"{path} is gone", path, None, was(text), ASKED))


def _named(report: TestReport | None) -> frozenset[str]:
    """Names of tests as sources have them, of all that a runner reported and that stand apart from the product."""
    cases = [case for command in report.commands for case in command.cases] if report is not None else []
    cases = [case for case in cases if not case.file or is_test(case.file)]
    return frozenset(re.split(r"::| > |\.", case.name.partition("[")[0])[-1] for case in cases)


def _may_hold(path: str, doctests: bool) -> bool:
    return is_test(path) or path.endswith(".rs") or (doctests and path.endswith(".py"))


def _is_read(path: str) -> bool:
    return re.search(r"\.(py|[cm]?[jt]sx?|" + "|".join(LANGUAGES) + r")$", path) is not None


def at_most(hits: Sequence[TamperingHit]) -> tuple[TamperingHit, ...]:
    if len(hits) <= TAMPER_HITS_MOST:
        return tuple(hits)
    more = len(hits) - TAMPER_HITS_MOST + 1
    return (*hits[: TAMPER_HITS_MOST - 1], hit(hits[-1].rule, f"and {more} places more"))


def hit(rule: Tampering, title: str, file: str = "", line: int | None = None, *evidence: str) -> TamperingHit:
    """A hit with its evidence cut to size, as it stands in the file: whoever shows it takes out what does harm there.
    Its title becomes part of messages, and has nothing in it that is not to be seen."""
    told = "\n".join(part.rstrip() for part in evidence if part.strip())
    cut = told if len(told) <= TAMPER_EVIDENCE_CHARS else told[: TAMPER_EVIDENCE_CHARS - 2].rstrip() + " …"
    return TamperingHit(rule=rule, title=one_line(title), file=file, line=line, evidence=cut)


def was(text: str) -> str:
    return "\n".join(f"- {line}" for line in text.splitlines() if line.strip())


def is_now(text: str) -> str:
    return "\n".join(f"+ {line}" for line in text.splitlines() if line.strip())


def only_new(now: Iterable[str], before: Iterable[str]) -> list[str]:
    """Return what is there more often than before, in its order."""
    left: dict[str, int] = {}
    for item in before:
        left[item] = left.get(item, 0) + 1
    found = []
    for item in now:
        if left.get(item, 0):
            left[item] -= 1
        else:
            found.append(item)
    return found
