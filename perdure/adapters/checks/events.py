"""The events of `go test -json`: written by Go's own process, one JSON object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.adapters.checks.testcases import BadReport
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.models.report import TestCase

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
