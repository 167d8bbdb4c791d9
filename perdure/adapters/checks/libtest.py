"""The lines of `cargo test` (libtest's and rustdoc's), one a test: said by the tested process, and added up here.

The names of the files stand in what cargo itself says on its error output, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.adapters.checks.testcases import BadReport
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.models.report import TestCase

_BEGUN = re.compile(r"^running (\d{1,9}) tests?$")
_TOLD = re.compile(r"^test (.{1,1000}?)(?: - should panic)? \.\.\. ")
_ENDED = re.compile(r"(?:^|\s)(ok|FAILED|ignored(?:, .*)?)$")
_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_FAILURE = re.compile(r"^---- (.{1,1000}?) stdout ----$")
_RUNS = re.compile(rb"^ {3,8}(?:Running (?:unittests )?(\S{1,500}) \(.{1,1000}\)|Doc-tests \S+)$", re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_OUTCOMES = {"ok": "passed", "FAILED": "failed"}


def read_lines(
    path: Path, said: Path, root: Path, command: Callable[[str], str] = lambda _: ""
) -> tuple[TestCase, ...]:
    """The cases of a command's standard output, and one for each program that ended before its tests did.

    said  all that the command printed, cargo's own words among it
    root  where it ran

    Raises BadReport where it tells of no program, or a program's sum is not what its lines are.
    """
    programs, found = _programs(said, root), list[TestCase]()
    blocks = list(_blocks(_text(path)))
    for number, lines in enumerate(blocks):
        file = programs[number] if number < len(programs) else ""
        cases, whole = _cases(lines, file, command)
        found += cases
        if not whole:
            found.append(_cut_off(file))
        if len(found) > JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
    found += [_cut_off(file) for file in programs[len(blocks) :]]
    if not found and not programs:
        raise BadReport("its output tells of no tests")
    return tuple(found)


def _cut_off(file: str) -> TestCase:
    return TestCase(name=f"{file or 'doctests'}: ended before its tests", file=file, outcome="errored")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"its output is larger than {JUNIT_BYTES // 1024**2} MiB")
        return _COLOURS.sub(b"", path.read_bytes()).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadReport(f"its output cannot be read: {error}") from None


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each program, from the number of its tests on."""
    block = list[str]()
    for line in text.split("\n"):
        if _BEGUN.match(line) and (not block or any(_RESULT.match(one) for one in block)):
            if block:
                yield block
            block = [line]
        elif block:
            block.append(line)
    if block:
        yield block


def _cases(lines: list[str], file: str, command: Callable[[str], str]) -> tuple[list[TestCase], bool]:
    """Of one program; False where it did not come to its end."""
    told, open_test, sums, begun, left = list[tuple[str, str]](), "", None, 0, list[str]()
    for line in lines:
        if sums is None and (sums := _RESULT.match(line)) is not None:
            break
        if left or line in ("failures:", "successes:"):  # what tests have printed
            left.append(line)
            continue
        begun += _BEGUN.match(line) is not None
        if (named := _TOLD.match(line)) is not None:
            open_test, line = named[1], line[named.end() - 1 :]
        if open_test and (ended := _ENDED.search(line)) is not None:
            told.append((open_test, _OUTCOMES.get(ended[1], "skipped")))
            open_test = ""
    whole, head = sums is not None and begun == 1, _BEGUN.match(lines[0])
    counts = [sum(outcome == one for _, outcome in told) for one in ("passed", "failed", "skipped")]
    if whole and sums is not None and [*map(int, sums.groups()), int(head[1]) if head else 0] != [*counts, len(told)]:
        raise BadReport(f"{file or 'a program'} adds its tests up to another number than it tells of")
    messages = _messages(left)
    cases = []
    for name, outcome in told:
        full, place = (f"{file}::{name}", file) if file else (name, name.partition(" - ")[0])
        again = command(full)
        cases.append(TestCase(name=full, file=place, outcome=outcome, message=messages.get(name, ""), command=again))
    return cases, whole


def _messages(lines: list[str]) -> dict[str, str]:
    """Return what failing tests printed, by their names."""
    found, name = dict[str, list[str]](), ""
    for line in lines:
        if (begun := _FAILURE.match(line)) is not None:
            name = begun[1]
        elif line == "failures:":
            name = ""
        elif name:
            found.setdefault(name, []).append(line)
    return {name: "\n".join(text).strip()[:CASE_MESSAGE_CHARS] for name, text in found.items()}


def _programs(said: Path, root: Path) -> list[str]:
    """The source of each program that cargo ran; empty for doctests, whose names begin with their files."""
    try:
        with said.open("rb") as file:
            text = _COLOURS.sub(b"", file.read(JUNIT_BYTES))
    except OSError:
        return []
    return [in_package(root, one[1].decode(errors="replace")) if one[1] else "" for one in _RUNS.finditer(text)]


def in_package(root: Path, path: str) -> str:
    """The path of a package's file below `root`; as it is where more than one package has such a file, or none."""
    found = [file.parent for file in manifests(root) if (file.parent / path).is_file()]
    return str((found[0] / path).relative_to(root)) if len(found) == 1 else path


def manifests(root: Path) -> list[Path]:
    """Cargo.toml here and two levels below."""
    return [file for stars in ("", "*/", "*/*/") for file in sorted(root.glob(f"{stars}Cargo.toml"))]
