"""Read TAP (the Test Anything Protocol, up to 14), as `tape`, `tap` and `bats` print it and `prove` stores it;
tested programs write it, so that it counts only with a plan that is fulfilled.

The library on PyPI (`tap.py`) takes a line `okay` for a test that passed, and two tests `A#b` and `A#c` for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from perdure.adapters.checks.junit import JUNIT_TAG_BYTES, BadReport
from perdure.adapters.checks.report_text import clean_message, clean_name
from perdure.adapters.system.output import read_tail
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.text import cut_middle

_RESULT = re.compile(r"(not )?ok(?: {1,9}(\d{1,9}))?(?:$|[ \t](?:[ \t]{0,9}-(?=[ \t]))?(.*))")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s{0,9}(?=(?:skip|todo)(?:\b|_))", re.IGNORECASE)
_PLAN = re.compile(r"1\.\.(\d{1,9})(?: {0,9}#(.*))?")
_EXIT_STATUS = re.compile(
    r"^(\S.{0,1000}?) {1,99}\(Wstat: [1-9]\d{0,9} (?:\((?:exited (\d+)|Signal:[^()]*)\) )?Tests: \d+ Failed: (\d+)\)$",
    re.MULTILINE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read_tap(report: Path, output: Path, command: Callable[[str], str], kind: str) -> tuple[TestCase, ...]:
    """Read the test cases of a TAP file, or of all files below a directory, which are named by their paths there.

    output   what was printed: prove's summary tells of programs that ended with another exit code than failures make
    command  gives what a person types to run a test alone, by its name
    kind     `titled tap`: a comment is the title of the tests behind it, as `tape` writes it; `nested tap`: tests stand
             indented in others, the outermost of which are files, as `tap` writes it; else `tap`

    A program like that has one errored case more, and so has one that bails out, or ends before its plan is fulfilled:
    one for all of it; the tests that it has not reached have none.
    Raises BadReport where there is no test, the files are missing, too large or unreadable, or have more than
    JUNIT_CASES cases.
    """
    cases = list[TestCase]()
    try:
        found = sorted(report.rglob("*")) if report.is_dir() else [report]
        files = [file for file in found if file.is_file() and not file.is_symlink()]
        if sum(file.stat().st_size for file in files) > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        for file in files:
            for case in _iter_cases(file, clean_name(str(file.relative_to(report))) if file != report else "", kind):
                cases.append(case.model_copy(update={"command": command(case.name)}))
                if len(cases) > JUNIT_CASES:
                    raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
        for match in _EXIT_STATUS.finditer(read_tail(output, JUNIT_TAG_BYTES)) if report.is_dir() else ():
            program, name = clean_name(match[1]), f"{clean_name(match[1])}::exit status {match[2] or 'of a signal'}"
            if match[3] != match[2] and not any(case.is_program and case.file == program for case in cases):
                cases.append(TestCase(name=name, file=program, outcome="errored", is_program=True))
    except OSError as error:
        raise BadReport(f"the report cannot be read: {error}") from None
    if not cases:
        raise BadReport("it reports no test")
    return tuple(cases)


def _iter_lines(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream without what is blank at their ends, cut at JUNIT_TAG_BYTES."""
    while line := stream.readline(JUNIT_TAG_BYTES):
        yield line.decode(errors="backslashreplace").rstrip()


def _flatten_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of nested TAP as flat TAP: each test that has none in it, by the titles of those around it and
    its own; one that failed around tests that passed; and the plan, fulfilled where the outermost one is."""
    around = list[tuple[str, int, int]]()  # titles, and how many tests and failures were before them
    planned, outermost_count, count, failures = None, 0, 0, 0
    block: str | None = None  # the indentation of a test's diagnosis
    for text in lines:
        content = text.lstrip(" ")
        indent = text[: -len(content)] if content else ""
        depth, result, plan = len(indent) // 4, _RESULT.fullmatch(content), _PLAN.fullmatch(content)
        if block is not None or content == "---":
            block = None if text == f"{block}..." else indent if block is None else block
            yield f"  {text}"
        elif content.startswith("# Subtest"):
            around[depth:] = [(content.partition(": ")[2], count, failures)]
        elif result and len(indent) == depth * 4:
            outermost_count += depth == 0
            title, *before = around[depth] if depth < len(around) else ("", count, failures)
            failed = bool(result[1])
            if count == before[0] or (failed and failures == before[1]):
                names = [name for name, *_ in around[:depth]]
                description = title or result[3] or f"test {result[2] or count + 1}"
                count, failures = count + 1, failures + failed
                yield f"{'not ' * failed}ok - {' > '.join([*names, description.strip()])}"
            del around[depth:]
        elif plan and not depth:
            planned = int(plan[1])
        elif not plan:
            yield content if content.startswith("Bail out!") else f"  {text}"
    if planned == outermost_count:
        yield f"1..{count}"


def _iter_cases(path: Path, file: str, kind: str) -> Iterator[TestCase]:
    """Yield the cases of one stream in its order: each line `ok` or `not ok` that is not indented (in nested TAP, each
    that has none in it), with what stands behind a failure as its message; and what its plan or its end says."""

    def make_case(name: str, outcome: str, lines: Iterable[str] = (), *, is_program: bool = False) -> TestCase:
        name = clean_name(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", name))
        message = cut_middle(clean_message("\n".join(lines)), CASE_MESSAGE_CHARS, "\n…\n", head_share=0.5)
        program, own_name = file, name
        if kind == "nested tap" and not is_program:
            program, _, own_name = name.partition(" > ")
        if not own_name:
            own_name, outcome, is_program = "ended", "errored", True
        name = f"{program}::{own_name}" if program else own_name
        return TestCase(name=name, file=program, outcome=outcome, message=message, is_program=is_program)

    planned, count, title, bail = None, 0, "", ""
    failed, lines, room = "", list[str](), 0  # of the failure whose message is being read
    with path.open("rb") as stream:
        lines_read = _iter_lines(stream)
        for text in _flatten_lines(lines_read) if kind == "nested tap" else lines_read:
            result, plan = _RESULT.fullmatch(text), _PLAN.fullmatch(text)
            is_title = kind == "titled tap" and text.startswith("# ")
            if failed and (result or plan or is_title):
                yield make_case(failed, "failed", lines)
                failed = ""
            if result:
                count += 1
                description, *directive = _DIRECTIVE.split(result[3] or "", maxsplit=1)
                name = description.strip() or f"test {result[2] or count}"
                name = f"{title} > {name}" if title else name
                if directive or not result[1]:
                    yield make_case(name, "skipped" if directive else "passed")
                else:
                    failed, lines, room = name, [], JUNIT_TAG_BYTES
            elif plan:
                planned = int(plan[1])
                if not planned and plan[2]:
                    yield make_case("all", "skipped")
            elif is_title:
                title = text[2:].strip()
            elif text.startswith("Bail out!"):
                bail = text
            elif failed and room > 0:
                lines.append(text)
                room -= len(text)
    if failed:
        yield make_case(failed, "failed", lines)
    if bail or planned != count:
        yield make_case(bail or "ended before its plan", "errored", [f"{count} tests of {planned}"], is_program=True)
