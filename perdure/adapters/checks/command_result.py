"""Make the result of a test command that has ended: its exit code decides, and a report that contradicts it turns it
red.

`perdure.adapters.checks.tests` calls it after each run. `go test` events are read here; JUnit files in `checks.junit`,
TAP in `checks.tap`, the output of `cargo test` in `checks.runners.rust`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.checks.baseline import FAILING, case_key
from perdure.adapters.checks.junit import JUNIT_TAG_BYTES, BadReport, read_junit, read_junit_files
from perdure.adapters.checks.report_receiver import split_documents
from perdure.adapters.checks.report_text import clean_name, storable_text
from perdure.adapters.checks.runners import case_identifier_of, reproduction_command
from perdure.adapters.checks.runners.base import Invocation, RunPlace
from perdure.adapters.checks.runners.rust import read_libtest_output
from perdure.adapters.checks.tap import read_tap
from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.usage import describe_kill
from perdure.adapters.system.output import flood_reason, read_tail
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.config.repository import TestCommand
from perdure.models.limits import CASE_MESSAGE_CHARS, CASE_NAME_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.text import shell_word, shorten

TEST_TAIL_CHARS = 8_000
"""Characters of a test command's output that its result keeps, from the end: the fix step reads them, and no runner's
summary is longer."""


# Ways of saying "the runner is not installed" that do not exit with 127.
_NOT_INSTALLED = re.compile(
    r"No module named '?(pytest|coverage)'?$|^error: Failed to spawn: "
    r"|^make: \*\*\* No (rule to make target '[^']*'|targets specified and no makefile found)\.  Stop\.$"
    r"|^npm (ERR!|error) Missing script: ",
    re.MULTILINE,
)

# pytest, where its configuration says `-x` and the command does not.
_STOPPED = re.compile(r"^!+ stopping after \d+ failures !+$", re.MULTILINE)


@dataclass(frozen=True)
class _EndedCommand:
    """A test command that ended: what was to run, how it ended, and what it left.

    report_error  why its report could not be read; empty when it could, or none was expected
    """

    test: TestCommand
    call: Invocation
    finished: SandboxResult
    tail: str
    cases: tuple[TestCase, ...] = ()
    report_error: str = ""


def make_command_result(
    test: TestCommand, call: Invocation, finished: SandboxResult, command: SandboxCommand
) -> CommandResult:
    """Read the output and the report of a command that ended, and return its result: verdict, reason, test cases, and
    the end of its output.

    A report that is missing, damaged or too large raises nothing: its result has no cases, and where the exit code is 0
    its verdict is `contradicted`. mocha's exit code is the number of its failures, and counts as 1.
    `partial` is set where the command stops at its first failure.
    """
    output = read_tail(command.output, TEST_TAIL_CHARS)
    if call.events and call.report is not None and not call.report.is_dir():
        report_tail = (
            read_go_output(call.report, TEST_TAIL_CHARS)
            if call.events == "go"
            else read_tail(call.report, TEST_TAIL_CHARS)
        )
        output = f"{output}{report_tail}"[-TEST_TAIL_CHARS:]
    ended = _EndedCommand(test, call, finished, output)
    try:
        cases = tuple(map(_storable_case, _read_cases(test, call, command)))
        ended = _EndedCommand(test, call, finished, output, cases)
    except BadReport as error:
        ended = _EndedCommand(test, call, finished, output, report_error=str(error))
    failures = sum(case.outcome in FAILING for case in ended.cases)
    if call.runner == "mocha" and failures and finished.exit_code == min(failures, 255):  # it is their number
        finished = replace(finished, exit_code=1)
        ended = replace(ended, finished=finished)
    verdict, reason = _decide_verdict(ended)
    return CommandResult(
        name=test.name,
        command=test.command,
        directory=test.directory,
        required=test.required,
        verdict=verdict,
        partial=call.partial or _STOPPED.search(output) is not None,
        exit_code=finished.exit_code,
        duration_s=finished.duration_s,
        tail=output,
        reason=reason,
        cases=ended.cases,
    )


def _storable_case(case: TestCase) -> TestCase:
    """Return the case itself, or one without what UTF-8 cannot hold, where a text of it has that."""
    texts = {name: getattr(case, name) for name in ("name", "file", "message", "command")}
    storable_texts = {name: storable_text(text) for name, text in texts.items()}
    return case if storable_texts == texts else case.model_copy(update=storable_texts)


def _read_cases(test: TestCommand, call: Invocation, command: SandboxCommand) -> tuple[TestCase, ...]:
    """Read the test cases from the report that a command left: JUnit files, `go test` events, or the output of `cargo
    test`.

    Files are named from the repository's top. Empty where no report was asked for, or one that is not required is
    missing. Where one file holds several JUnit documents, each is written to a file beside it, and the last one counts.
    Raises BadReport where the report is missing, damaged or too large, or where it was written more than once and the
    last one hides a failure of an earlier one.
    """

    def reproduce(name: str) -> str:
        if len(name) > CASE_NAME_CHARS:  # its runner knows it by another one
            return ""
        script = reproduction_command(call, test.command, TestCase(name=name, outcome=""))
        return f"cd {shell_word(test.directory)} && {script}" if script and test.directory else script

    def prefix_directory(reported_cases: tuple[TestCase, ...]) -> tuple[TestCase, ...]:
        """Put the command's directory before file names: runners name files from where they run, or from the top when
        their settings stand there."""
        prefix = f"{test.directory}/"
        if not test.directory:
            return reported_cases
        return tuple(
            case.model_copy(update={"file": prefix + case.file})
            if case.file and not case.file.startswith(("/", prefix))
            else case
            for case in reported_cases
        )

    tree = command.source or command.worktree
    identify = case_identifier_of(call, RunPlace(tree, test.directory, command.shown_at))
    if call.collect:
        return prefix_directory(read_junit_files(tree, call.collect, identify, reproduce))
    if call.report is None or not (call.report_required or call.report.is_file()):
        return ()
    if call.events == "go":
        return read_go_events(call.report, reproduce)
    if call.events in ("tap", "titled tap", "nested tap"):
        return prefix_directory(read_tap(call.report, command.output, reproduce, call.events))
    if call.events == "libtest":
        return prefix_directory(read_libtest_output(call.report, command.output, tree / test.directory, reproduce))
    *earlier, report = split_documents(call.report) if call.writing == "through" else [call.report]
    cases = read_junit(report, identify, reproduce)
    for earlier_report in earlier:
        _check_agreement(read_junit(earlier_report, identify), cases)
    return prefix_directory(cases)


def _check_agreement(earlier: tuple[TestCase, ...], final: tuple[TestCase, ...]) -> None:
    """Raise BadReport where a test that failed in an earlier report of a run is not failing in the final one.

    An earlier failure does not count where the final report has neither that test nor another one of its file: tests
    that run others in a process of their own may have written the earlier report.
    """
    reported, failed = {case_key(case) for case in final}, {case_key(case) for case in final if case.outcome in FAILING}
    files = {case.file for case in final if case.file}
    for case in earlier:
        if (
            case.outcome in FAILING
            and case_key(case) not in failed
            and (case.file in files or case_key(case) in reported)
        ):
            raise BadReport(f"two reports were written, and they disagree about {shorten(case.name, 100)}")


def _decide_verdict(ended: _EndedCommand) -> tuple[str, str]:
    """Return (verdict, reason) of a command that ended; the reason is empty where it passed.

    Time-out, too much output and an end from outside come first, then the exit code. With exit code 0 a report that
    disagrees, or is required and missing, makes a failure; a failing exit code without a failing case in the report is
    contradicted. The verdict is passed, failed, timed_out, not_started (no such program, runner, script or target) or
    contradicted.
    """
    code, failing = ended.finished.exit_code, [case for case in ended.cases if case.outcome in FAILING]
    if ended.finished.timed_out:
        return "timed_out", f"not finished after {ended.test.timeout}"
    if ended.finished.truncated:
        return "failed", flood_reason()
    if ended.finished.over:
        return "failed", f"ended: {ended.finished.over}"
    if code is None:
        return "failed", "it was ended from outside"
    if code in (126, 127) and not ended.cases:
        return "not_started", f"exit code {code}"
    if code != 0 and not ended.cases and _NOT_INSTALLED.search(ended.tail):
        return "not_started", "there is no such runner, script or target"
    if code == 0:
        return _verdict_on_success(ended, failing)
    if ended.call.runner == "pytest" and code == 5:
        return "failed", "no tests were collected"
    if code > 128:
        return "failed", describe_kill(code - 128, ended.finished.peak)
    if failing:
        return "failed", f"exit code {code}"
    if ended.cases:
        return "contradicted", f"exit code {code}, although no reported test failed"
    return "failed", f"exit code {code}" + (f", {ended.report_error}" if ended.report_error else "")


def _verdict_on_success(ended: _EndedCommand, failing: list[TestCase]) -> tuple[str, str]:
    """Return (verdict, reason) for exit code 0: `passed` with an empty reason, or `contradicted` where the report says
    otherwise.

    The report contradicts where it cannot be read, has a failing case, or is required and holds not one test (`go test`
    and `cargo test` may hold none).
    """
    if ended.report_error:
        return "contradicted", f"exit code 0, but {ended.report_error}"
    if ended.call.report is not None and ended.call.report_required and not ended.cases and not ended.call.events:
        return "contradicted", "exit code 0, but not one test ran"
    if failing:
        return "contradicted", f"exit code 0, but {len(failing)} of {len(ended.cases)} reported tests failed"
    return "passed", ""


_BROKEN = re.compile(rb"FAIL\t(\S+) \[(?:build|setup) failed\]")
_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def read_go_events(path: Path, command: Callable[[str], str] = lambda _: "") -> tuple[TestCase, ...]:
    """Read the test cases from a file of `go test -json` events, in the order in which the tests ended.

    command  gives what a person types to run a test alone, by its name

    A test without an end has failed, but not one that waited for its turn, nor one beside which another one panicked; a
    package that failed without a failing test is an errored case of its own. Empty where Go reported packages without
    tests. Raises BadReport where the file is missing, too large or unreadable, reports the end of no package, or has
    more than JUNIT_CASES cases.
    """
    open_tests, outputs, ended = (
        dict[tuple[str, str], None](),
        dict[tuple[str, str], str](),
        list[tuple[str, str, str]](),
    )
    ended_packages, failed_packages = 0, set[str]()
    panicked, paused = dict[str, tuple[str, str]](), set[tuple[str, str]]()
    for event in _load_events(path):
        event_key = clean_name(str(event.get("Package", ""))), clean_name(str(event.get("Test", "")))
        action = event.get("Action")
        ended_packages += action in _OUTCOMES and not event_key[1]
        if action == "run":
            open_tests[event_key] = None
        elif action == "pause":
            paused.add(event_key)
        elif action == "cont":
            paused.discard(event_key)
        elif action == "output":
            if re.match(r"panic: (?!test timed out)", str(event.get("Output", ""))):
                panicked[event_key[0]] = event_key
            outputs[event_key] = (outputs.get(event_key, "") + str(event.get("Output", "")))[-CASE_MESSAGE_CHARS:]
        elif action in _OUTCOMES and event_key[1]:
            open_tests.pop(event_key, None)
            if action == "pass":
                outputs.pop(event_key, None)
            ended.append((*event_key, _OUTCOMES[action]))
            if action == "fail":
                failed_packages.add(event_key[0])
        elif action == "fail" and event_key[0] not in failed_packages:
            ended.append((*event_key, "errored"))
        if max(len(ended) + len(open_tests), len(outputs)) > JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
    if not ended_packages:
        raise BadReport("the report tells the end of no package")
    failed_packages |= {package for package, test, _ in ended if not test}
    red = {*open_tests, *((package, test) for package, test, outcome in ended if outcome == "failed")}
    panicked = {package: key for package, key in panicked.items() if key in red}
    not_run = {
        key for key in open_tests if panicked.get(key[0], key) != key or (key in paused and key[0] in failed_packages)
    }
    ended += [(*event_key, "failed") for event_key in open_tests if event_key not in not_run]
    return tuple(
        _case_of_event(package, test, outcome, outputs.get((package, test), ""), command)
        for package, test, outcome in ended
    )


def read_go_output(path: Path, max_chars: int) -> str:
    """Return the last `max_chars` characters of what Go and its tests printed, from a file of `go test -json` events;
    empty where that is missing, too large or cannot be read."""
    output = ""
    try:
        for event in _load_events(path):
            output = (output + str(event.get("Output", "")))[-max_chars:]
    except BadReport:
        return ""
    return storable_text(output)[-max_chars:]


def _load_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file, one JSON object a line, which is read as the events are asked for. Other lines are
    left out, but for those by which Go says that a package did not build, which become `fail` events.

    Raises BadReport where the file is missing, a link, larger than JUNIT_BYTES, or unreadable.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("no report was written")
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        with path.open("rb") as file:
            while line := file.readline(JUNIT_TAG_BYTES):
                if event := _parse_event(line):
                    yield event
    except OSError as error:
        raise BadReport(f"the report cannot be read: {error}") from None


def _parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event in a line of `go test -json` output; None for a line that is no JSON object.

    A line in which Go says that a package did not build, which is no JSON, becomes a `fail` event of that package.
    """
    try:
        event = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):  # what a build says stands between the events
        broken = _BROKEN.match(line)
        return {"Action": "fail", "Package": broken[1].decode(errors="replace")} if broken else None
    return event if isinstance(event, dict) else None


def _case_of_event(package: str, test: str, outcome: str, output: str, command: Callable[[str], str]) -> TestCase:
    """Return the case of a test (`package::test`), or of a whole package where `test` is empty.

    Its message is the output, empty where it passed; a package's case has no command to run it alone.
    """
    name = f"{package}::{test}" if test else package
    message = "" if outcome == "passed" else output
    reproduction = command(name) if test else ""
    return TestCase(name=name, outcome=outcome, message=message, command=reproduction, is_program=not test)
