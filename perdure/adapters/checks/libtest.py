"""The output of `cargo test` (libtest and rustdoc), one line a test: printed by the tested process, and added up here.

The names of the source files stand in what cargo itself prints on its error output, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.adapters.checks.testcases import BadReport
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.models.report import TestCase

_SUITE_START = re.compile(r"^running (\d{1,9}) tests?$")
_TEST_START = re.compile(r"^test (.{1,1000}?)(?: - should panic)? \.\.\. ")
_TEST_OUTCOME = re.compile(r"(?:^|\s)(ok|FAILED|ignored(?:, .*)?)$")
_SUITE_TOTALS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_FAILURE_HEAD = re.compile(r"^---- (.{1,1000}?) stdout ----$")
_PROGRAM_LINE = re.compile(rb"^ {3,8}(?:Running (?:unittests )?(\S{1,500}) \(.{1,1000}\)|Doc-tests \S+)$", re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_OUTCOMES = {"ok": "passed", "FAILED": "failed"}


def read_libtest_output(
    path: Path, cargo_output: Path, root: Path, command: Callable[[str], str] = lambda _: ""
) -> tuple[TestCase, ...]:
    """Read the test cases from a command's standard output, and make an errored one for each program that ended before
    its tests did.

    path          the standard output of `cargo test`
    cargo_output  all that the command printed, cargo's own lines among it
    root          where it ran
    command       gives what a person types to run a test alone, by its name

    Raises BadReport where no test and no program is named, a program's totals are not what its lines add up to, the
    output is too large or unreadable, or there are more than JUNIT_CASES cases.
    """
    programs, all_cases = _program_sources(cargo_output, root), list[TestCase]()
    blocks = list(_program_blocks(_read_text(path)))
    for number, lines in enumerate(blocks):
        file = programs[number] if number < len(programs) else ""
        cases, is_complete = _parse_block(lines, file, command)
        all_cases += cases
        if not is_complete:
            all_cases.append(_cut_off_case(file))
        if len(all_cases) > JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
    all_cases += [_cut_off_case(file) for file in programs[len(blocks) :]]
    if not all_cases and not programs:
        raise BadReport("its output tells of no tests")
    return tuple(all_cases)


def _cut_off_case(file: str) -> TestCase:
    """Return the errored case that stands for a program which ended before its tests did."""
    return TestCase(name=f"{file or 'doctests'}: ended before its tests", file=file, outcome="errored")


def _read_text(path: Path) -> str:
    """Return a file's text without colours; empty where there is none. Raises BadReport where it is larger than
    JUNIT_BYTES or unreadable."""
    try:
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"its output is larger than {JUNIT_BYTES // 1024**2} MiB")
        return _COLOURS.sub(b"", path.read_bytes()).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadReport(f"its output cannot be read: {error}") from None


def _program_blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each program, from the line with the number of its tests on.

    Such a line begins a new block only where the block before has its totals: tests may print one, too.
    """
    block = list[str]()
    for line in text.split("\n"):
        if _SUITE_START.match(line) and (not block or any(_SUITE_TOTALS.match(earlier) for earlier in block)):
            if block:
                yield block
            block = [line]
        elif block:
            block.append(line)
    if block:
        yield block


def _parse_block(lines: list[str], file: str, command: Callable[[str], str]) -> tuple[list[TestCase], bool]:
    """Return the test cases of one program's lines, and whether it came to its end.

    file     the program's source; empty for doctests
    command  gives what a person types to run a test alone, by its name

    Raises BadReport where the totals that it prints are not those of its lines.
    """
    outcomes, open_test, totals, start_count, printed = list[tuple[str, str]](), "", None, 0, list[str]()
    for line in lines:
        if totals is None and (totals := _SUITE_TOTALS.match(line)) is not None:
            break
        if printed or line in ("failures:", "successes:"):  # what tests have printed
            printed.append(line)
            continue
        start_count += _SUITE_START.match(line) is not None
        if (test_start := _TEST_START.match(line)) is not None:
            open_test, line = test_start[1], line[test_start.end() - 1 :]
        if open_test and (outcome_end := _TEST_OUTCOME.search(line)) is not None:
            outcomes.append((open_test, _OUTCOMES.get(outcome_end[1], "skipped")))
            open_test = ""
    is_complete, suite_start = totals is not None and start_count == 1, _SUITE_START.match(lines[0])
    counts = [sum(outcome == kind for _, outcome in outcomes) for kind in ("passed", "failed", "skipped")]
    if (
        is_complete
        and totals is not None
        and [*map(int, totals.groups()), int(suite_start[1]) if suite_start else 0] != [*counts, len(outcomes)]
    ):
        raise BadReport(f"{file or 'a program'} adds its tests up to another number than it tells of")
    messages = _failure_messages(printed)
    cases = []
    for name, outcome in outcomes:
        full_name, test_file = (f"{file}::{name}", file) if file else (name, name.partition(" - ")[0])
        reproduce = command(full_name)
        cases.append(
            TestCase(name=full_name, file=test_file, outcome=outcome, message=messages.get(name, ""), command=reproduce)
        )
    return cases, is_complete


def _failure_messages(lines: list[str]) -> dict[str, str]:
    """Return what failing tests printed, by their names, each cut to CASE_MESSAGE_CHARS."""
    texts, name = dict[str, list[str]](), ""
    for line in lines:
        if (head := _FAILURE_HEAD.match(line)) is not None:
            name = head[1]
        elif line == "failures:":
            name = ""
        elif name:
            texts.setdefault(name, []).append(line)
    return {name: "\n".join(text).strip()[:CASE_MESSAGE_CHARS] for name, text in texts.items()}


def _program_sources(cargo_output: Path, root: Path) -> list[str]:
    """Return the source of each program that cargo ran, in order; empty for doctests, whose names begin with their
    files.

    No source at all where the output cannot be read.
    """
    try:
        with cargo_output.open("rb") as file:
            text = _COLOURS.sub(b"", file.read(JUNIT_BYTES))
    except OSError:
        return []
    return [
        resolve_package_path(root, match[1].decode(errors="replace")) if match[1] else ""
        for match in _PROGRAM_LINE.finditer(text)
    ]


def resolve_package_path(root: Path, path: str) -> str:
    """Return the path of a package's file relative to `root`; as it is where more than one package has such a file, or
    none."""
    directories = [file.parent for file in cargo_manifests(root) if (file.parent / path).is_file()]
    return str((directories[0] / path).relative_to(root)) if len(directories) == 1 else path


def cargo_manifests(root: Path) -> list[Path]:
    """Return the files Cargo.toml in `root`, in its subdirectories and in theirs."""
    return [file for stars in ("", "*/", "*/*/") for file in sorted(root.glob(f"{stars}Cargo.toml"))]
