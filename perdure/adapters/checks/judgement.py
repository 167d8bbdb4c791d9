"""The result of one test command that ended: its exit code decides, its report is the evidence."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.checks.baseline import FAILING, key
from perdure.adapters.checks.junit import read_junit, read_left_behind
from perdure.adapters.checks.libtest import read_lines
from perdure.adapters.checks.received import documents
from perdure.adapters.checks.runners import place, reproduction
from perdure.adapters.checks.runners.base import Invocation
from perdure.adapters.checks.testcases import BadReport
from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.sandbox.usage import killed
from perdure.adapters.system.output import flooded, tail
from perdure.models.config import TestCommand
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.models.report import CommandResult, TestCase

TEST_TAIL_CHARS = 8_000
"""Of a test command's output in the report: what the fix step reads, longer than any runner's summary."""


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
class _Run:
    """One command that ended: what it was, how it ended, what it left."""

    test: TestCommand
    call: Invocation
    finished: Finished
    tail: str
    cases: tuple[TestCase, ...] = ()
    unread: str = ""


def judged(test: TestCommand, call: Invocation, finished: Finished, command: Command) -> CommandResult:
    """The result of a command that ended, by its exit code, its report and its output."""
    output = tail(command.output, TEST_TAIL_CHARS)
    if call.events and call.report is not None:
        more = read_output(call.report, TEST_TAIL_CHARS) if call.events == "go" else tail(call.report, TEST_TAIL_CHARS)
        output = f"{output}{more}"[-TEST_TAIL_CHARS:]
    run = _Run(test, call, finished, output)
    try:
        run = _Run(test, call, finished, output, _cases(test, call, command))
    except BadReport as error:
        run = _Run(test, call, finished, output, unread=str(error))
    verdict, reason = _verdict(run)
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
        cases=run.cases,
    )


def _cases(test: TestCommand, call: Invocation, command: Command) -> tuple[TestCase, ...]:
    def again(name: str) -> str:
        alone = reproduction(call, test.command, TestCase(name=name, outcome=""))
        return f"cd {shlex.quote(test.directory)} && {alone}" if alone and test.directory else alone

    def placed(found: tuple[TestCase, ...]) -> tuple[TestCase, ...]:
        """Runners name files from where they run, or from the top when their settings stand there."""
        below = f"{test.directory}/"
        if not test.directory:
            return found
        return tuple(
            case.model_copy(update={"file": below + case.file})
            if case.file and not case.file.startswith(("/", below))
            else case
            for case in found
        )

    root = (command.source or command.worktree) / test.directory

    def located(classname: str) -> str:
        return place(call, classname, root)

    if call.collect:
        return placed(read_left_behind(command.source or command.worktree, call.collect, command.seen, again, located))
    if call.report is None or not (call.owed or call.report.is_file()):
        return ()
    if call.events == "go":
        return read_events(call.report, again)
    if call.events == "libtest":
        return placed(read_lines(call.report, command.output, root, again))
    *earlier, report = documents(call.report) if call.written == "through" else [call.report]
    cases = read_junit(report, command.seen, again, located)
    for one in earlier:
        _agrees(read_junit(one, command.seen), cases)
    return placed(cases)


def _agrees(first: tuple[TestCase, ...], last: tuple[TestCase, ...]) -> None:
    """BadReport where a report takes back a failure that an earlier one of the same run has told, of a file that it
    tells about, too: tests that run others in a process of their own may have written the earlier one."""
    told, failed = {key(case) for case in last}, {key(case) for case in last if case.outcome in FAILING}
    files = {case.file for case in last if case.file}
    for case in first:
        if case.outcome in FAILING and key(case) not in failed and (case.file in files or key(case) in told):
            raise BadReport(f"two reports were written, and they disagree about {case.name[:100]}")


def _verdict(run: _Run) -> tuple[str, str]:
    """The exit code decides; a report that disagrees with it, or is owed and missing, makes a failure as well."""
    code, failing = run.finished.exit_code, [case for case in run.cases if case.outcome in FAILING]
    if run.finished.timed_out:
        return "timed_out", f"not finished after {run.test.timeout}"
    if run.finished.truncated:
        return "failed", flooded()
    if run.finished.over:
        return "failed", f"ended: {run.finished.over}"
    if code is None:
        return "failed", "it was ended from outside"
    if code in (126, 127) and not run.cases:
        return "not_started", f"exit code {code}"
    if code != 0 and not run.cases and _NOT_INSTALLED.search(run.tail):
        return "not_started", "there is no such runner, script or target"
    if code == 0:
        return _green(run, failing)
    if run.call.runner == "pytest" and code == 5:
        return "failed", "no tests were collected"
    if code > 128:
        return "failed", killed(code - 128, run.finished.peak)
    if failing:
        return "failed", f"exit code {code}"
    if run.cases:
        return "contradicted", f"exit code {code}, although no reported test failed"
    return "failed", f"exit code {code}" + (f", {run.unread}" if run.unread else "")


def _green(run: _Run, failing: list[TestCase]) -> tuple[str, str]:
    if run.unread:
        return "contradicted", f"exit code 0, but {run.unread}"
    if run.call.report is not None and run.call.owed and not run.cases and not run.call.events:
        return "contradicted", "exit code 0, but not one test ran"
    if failing:
        return "contradicted", f"exit code 0, but {len(failing)} of {len(run.cases)} reported tests failed"
    return "passed", ""


_BROKEN = re.compile(rb"FAIL\t(\S+) \[(?:build|setup) failed\]")
_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def read_events(path: Path, command: Callable[[str], str] = lambda _: "") -> tuple[TestCase, ...]:
    """The cases of a file of events, in the order they ended; a test without an end has failed, and so has a package
    in which no test did. None where Go told of packages without tests. Raises BadReport."""
    open_tests, said, ended = dict[tuple[str, str], None](), dict[tuple[str, str], str](), list[tuple[str, str, str]]()
    packages = 0
    for event in _events(path):
        key = str(event.get("Package", "")), str(event.get("Test", ""))
        action = event.get("Action")
        packages += action in _OUTCOMES and not key[1]
        if action == "run":
            open_tests[key] = None
        elif action == "output":
            said[key] = (said.get(key, "") + str(event.get("Output", "")))[-CASE_MESSAGE_CHARS:]
        elif action in _OUTCOMES and key[1]:
            open_tests.pop(key, None)
            ended.append((*key, _OUTCOMES[action]))
        elif action == "fail" and not any(package == key[0] and outcome == "failed" for package, _, outcome in ended):
            ended.append((*key, "errored"))
        if len(ended) > JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
    if not packages:
        raise BadReport("the report tells the end of no package")
    ended += [(*key, "failed") for key in open_tests]
    return tuple(
        _case(package, test, outcome, said.get((package, test), ""), command) for package, test, outcome in ended
    )


def read_output(path: Path, most: int) -> str:
    """The end of what Go and its tests printed, at most so many characters; empty where there is no such file."""
    try:
        said = "".join(str(event.get("Output", "")) for event in _events(path))
    except BadReport:
        return ""
    return said[-most:]


def _events(path: Path) -> Iterator[dict[str, Any]]:
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("no report was written")
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadReport(f"the report cannot be read: {error}") from None
    return filter(None, map(_event, lines))


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # what a build says stands between the events
        broken = _BROKEN.match(line)
        return {"Action": "fail", "Package": broken[1].decode(errors="replace")} if broken else None
    return found if isinstance(found, dict) else None


def _case(package: str, test: str, outcome: str, said: str, command: Callable[[str], str]) -> TestCase:
    name = f"{package}::{test}" if test else package
    message = "" if outcome == "passed" else said
    return TestCase(name=name, outcome=outcome, message=message, command=command(name) if test else "")
