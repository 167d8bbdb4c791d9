"""A change as people review it: its files with their lines, what reviewer and engine found at them, and what test runs
say about each file of tests. Facts only, bounded; looks are the page's. Used by the page's review of a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.models.checks.paths import is_test_file
from perdure.models.checks.report import CommandExperiment, Experiment, TestReport
from perdure.models.checks.verdict_text import ReviewPoint, review_points
from perdure.models.patch import FilePatch, Hunk, read_files
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.gather import DIFF_CUT_NOTE
from perdure.text import escape_path, format_count, name_hidden_characters

FILE_LINES_SHOWN = 2_000
"""Lines of one file: more than anybody reads of one, and a browser draws them within a tenth of a second."""

CHANGE_LINES_SHOWN = 5_000
"""Lines of all files of a change on one page, for the same reason; files below that are named with their counts."""

LINE_CHARS_SHOWN = 600
"""Characters of one line: what is longer was written by a program."""


@dataclass(frozen=True)
class ChangeLine:
    """A line of a change. `kind`: `added`, `gone`, `place` (where a hunk is), or empty for one that did not change.

    before, after   its numbers in the file before and after the change; None: it is not in it
    omitted         characters that were cut off its end
    points          what reviewer and engine found there
    """

    kind: str
    text: str
    before: int | None = None
    after: int | None = None
    omitted: int = 0
    points: tuple[ReviewPoint, ...] = ()


@dataclass(frozen=True)
class ChangedFile:
    """A file of a change. `lines`: those that are shown.

    omitted_lines   how many are not shown
    notes           what happened to it besides lines: deleted, new mode, binary
    points          what was found in it, at no line that is shown
    test_facts      of a file of tests: what runs say about its tests, each in a few words
    """

    path: str
    added: int
    deleted: int
    is_test: bool
    lines: tuple[ChangeLine, ...] = ()
    omitted_lines: int = 0
    notes: tuple[str, ...] = ()
    points: tuple[ReviewPoint, ...] = ()
    test_facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeByFile:
    """All files of a change that a report holds. `is_cut`: it holds the change's beginning alone.

    points   what was found in no file of it
    """

    files: tuple[ChangedFile, ...]
    is_cut: bool
    points: tuple[ReviewPoint, ...] = ()

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def deleted(self) -> int:
        return sum(file.deleted for file in self.files)


def review_change(report: DeliveryReport) -> ChangeByFile:
    """Return the change of a report by file, with findings at their lines, and test facts at the files of tests."""
    patch, is_cut = report.diff.removesuffix(DIFF_CUT_NOTE), report.diff.endswith(DIFF_CUT_NOTE)
    points = review_points(report.reviewed, report.findings)
    files, shown = list[ChangedFile](), 0
    for file in read_files(patch.encode(errors="replace")):
        limit = min(FILE_LINES_SHOWN, CHANGE_LINES_SHOWN - shown)
        path = file.path.decode("utf-8", "surrogateescape")
        its_points = [point for point in points if point.file == path]
        changed = _review_file(file, its_points, report.test_report, limit)
        shown += len(changed.lines)
        files.append(changed)
    paths = {file.path for file in files}
    return ChangeByFile(tuple(files), is_cut, tuple(point for point in points if escape_path(point.file) not in paths))


def _review_file(
    file: FilePatch, points: Sequence[ReviewPoint], test_report: TestReport | None, limit: int
) -> ChangedFile:
    """Return a file with at most `limit` of its lines, each finding at its line, or at the file where that is not
    shown."""
    added, deleted = file.count_lines()
    remaining = list(points)
    lines = list[ChangeLine]()
    total = 0
    for line in (line for hunk in file.hunks for line in _hunk_lines(hunk)):
        total += 1
        if len(lines) >= limit:
            continue
        here = tuple(point for point in remaining if point.line == line.after) if line.after is not None else ()
        remaining = [point for point in remaining if point not in here]
        lines.append(ChangeLine(line.kind, line.text, line.before, line.after, line.omitted, here) if here else line)
    path = file.path.decode("utf-8", "surrogateescape")
    is_test = is_test_file(path) or (test_report is not None and _is_on_test_side(path, test_report.experiment))
    return ChangedFile(
        path=escape_path(file.path),
        added=added,
        deleted=deleted,
        is_test=is_test,
        lines=tuple(lines),
        omitted_lines=total - len(lines),
        notes=tuple(_head_notes(file)),
        points=tuple(remaining),
        test_facts=tuple(test_file_facts(path, test_report)) if is_test and test_report is not None else (),
    )


def _is_on_test_side(path: str, experiment: Experiment | None) -> bool:
    return experiment is not None and path in experiment.touched


def _hunk_lines(hunk: Hunk) -> Iterator[ChangeLine]:
    """Yield the lines of a hunk, its place first, each with its numbers before and after the change; invisible
    characters are named."""
    place = hunk.place.decode(errors="replace")
    yield ChangeLine("place", _cut_line(place.rstrip("\r\n"))[0])
    before, after = _first_number(place, "-"), hunk.first
    for data in hunk.body.split(b"\n"):
        sign, (text, omitted) = data[:1], _cut_line(data[1:].removesuffix(b"\r").decode(errors="replace"))
        match sign:
            case b"+":
                yield ChangeLine("added", text, None, after, omitted)
                after += 1
            case b"-":
                yield ChangeLine("gone", text, before, None, omitted)
                before += 1
            case b" ":
                yield ChangeLine("", text, before, after, omitted)
                before, after = before + 1, after + 1
            case b"\\":
                yield ChangeLine("place", data.decode(errors="replace").removeprefix("\\ "))
            case _:
                continue


def _first_number(place: str, sign: str) -> int:
    """Return the first line that a hunk's place, `@@ -12,3 +12,4 @@`, names after `sign`; 1 where it names none."""
    digits = place.partition(f" {sign}")[2].partition(" ")[0].partition(",")[0]
    return int(digits) if digits.isdecimal() else 1


def _cut_line(text: str) -> tuple[str, int]:
    """Return (the beginning of a line that is shown, how many characters of it are not)."""
    return name_hidden_characters(text[:LINE_CHARS_SHOWN]), max(len(text) - LINE_CHARS_SHOWN, 0)


def _head_notes(file: FilePatch) -> Iterator[str]:
    """Yield what git says about a file besides its lines: new, deleted, binary, renamed, its mode."""
    for line in file.head.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if line.startswith("new file mode"):
            yield "new, executable" if line.endswith("755") else "new link" if line.endswith("120000") else "new"
        elif line.startswith("deleted file"):
            yield "deleted"
        elif line.startswith(("Binary files", "GIT binary patch")):
            yield "binary: its bytes are not shown"
        elif line.startswith("rename from "):
            yield f"renamed from {name_hidden_characters(rest.removeprefix('from '))[:200]}"
        elif word == "new" and rest.startswith("mode"):
            yield f"mode {rest.removeprefix('mode ')[:12]}"


def test_file_facts(path: str, report: TestReport) -> Iterator[str]:
    """Yield what test runs say about one file of tests, in a few words each: outcomes on the change, canaries, tests of
    the base that fail on it, new tests that fail without it."""
    for command in report.commands:
        cases = [case for case in command.cases if case.file == path and not case.is_program]
        if not cases:
            continue
        counts = Counter("failed" if case.outcome == "errored" else case.outcome for case in cases)
        yield ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in ("failed", "passed", "skipped") if counts[outcome]
        )
        names = {case.name for case in cases}
        for experiment in report.experiment.commands if report.experiment is not None else ():
            if experiment.name == command.name:
                yield from _experiment_facts(path, names, experiment)


def _experiment_facts(path: str, names: set[str], experiment: CommandExperiment) -> Iterator[str]:
    """Yield what one command's experiment says about a file of tests whose tests have these names."""
    if proving := names.intersection(experiment.proving or ()):
        yield format_count(len(proving), "new test fails", "new tests fail") + " without the change"
    if unbuilt := names.intersection(experiment.unbuilt):
        yield format_count(len(unbuilt), "new test does", "new tests do") + " not build without the change"
    if hollow := names.intersection(experiment.hollow):
        yield format_count(len(hollow), "new test passes", "new tests pass") + " with the new functions stubbed"
    if promises := [promise for promise in experiment.promises if promise.file == path]:
        yield format_count(len(promises), "test of the base fails", "tests of the base fail") + " on the change"
    if contradicted := names.intersection(experiment.contradicted):
        yield format_count(len(contradicted), "test is", "tests are") + " not green with the test side read-only"
    if experiment.canaries != "not_asked":
        yield f"canaries {experiment.canaries}"
