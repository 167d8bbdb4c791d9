"""Read TAP (the Test Anything Protocol, up to 14), a line a test, as `tape` and `bats` print it and `prove` stores it;
tested programs write it, so that it counts only with a plan that is fulfilled.

The library on PyPI (`tap.py`) takes a line `okay` for a test that passed, and two tests `A#b` and `A#c` for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

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


def read_tap(report: Path, output: Path, command: Callable[[str], str], *, titled: bool) -> tuple[TestCase, ...]:
    """Read the test cases of a TAP file, or of all files below a directory, which are named by their paths there.

    output   what was printed: prove's summary tells of programs that ended with another exit code than failures make
    command  gives what a person types to run a test alone, by its name
    titled   a comment is the title of the tests behind it, as `tape` writes it

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
            for case in _iter_cases(file, clean_name(str(file.relative_to(report))) if file != report else "", titled):
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


def _iter_cases(path: Path, file: str, titled: bool) -> Iterator[TestCase]:
    """Yield the cases of one stream in its order: a line `ok` or `not ok` that is not indented each, with what stands
    behind a failure as its message; what its plan or its end says beside that."""

    def make_case(name: str, outcome: str, lines: Iterable[str] = ()) -> TestCase:
        name = clean_name(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", name))
        message = cut_middle(clean_message("\n".join(lines)), CASE_MESSAGE_CHARS, "\n…\n", head_share=0.5)
        return TestCase(name=f"{file}::{name}" if file else name, file=file, outcome=outcome, message=message)

    planned, count, title, bail = None, 0, "", ""
    failed, lines, room = "", list[str](), 0  # of the failure whose message is being read
    with path.open("rb") as stream:
        while line := stream.readline(JUNIT_TAG_BYTES):
            text = line.decode(errors="backslashreplace").rstrip()
            result, plan = _RESULT.fullmatch(text), _PLAN.fullmatch(text)
            is_title = titled and text.startswith("# ")
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
        case = make_case(bail or "ended before its plan", "errored", [f"{count} tests of {planned}"])
        yield case.model_copy(update={"is_program": True})
