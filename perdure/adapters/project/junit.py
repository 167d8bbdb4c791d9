"""JUnit files: evidence, read case by case and never trusted about totals."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import junitparser

from perdure.adapters.project.detect import DEPENDENCIES
from perdure.models.policy import CASE_MESSAGE_CHARS, JUNIT_BYTES
from perdure.models.report import TestCase


class BadReport(Exception):
    """The file is absent or not a JUnit report: a contradiction, never a pass. The text says why in a few words."""


def read_junit(path: Path, root: Path) -> tuple[TestCase, ...]:
    """The cases of a report. `root`: the working directory of the tests, left out of file names. Raises BadReport.

    `iter("testcase")` and not the suites: node puts top-level cases directly below the root, where a walk over suites
    misses them. Suite counters are ignored. expat stops entity bombs and external entities.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("no report was written")
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        tree = ET.parse(path)  # noqa: S314 - see above
    except ET.ParseError as error:
        raise BadReport(f"the report is not valid XML: {error}") from None
    except (OSError, ValueError, LookupError) as error:
        raise BadReport(f"the report cannot be read: {error}") from None
    if tree.getroot().tag not in ("testsuites", "testsuite"):
        raise BadReport(f"the report is not JUnit: its root is <{tree.getroot().tag[:40]}>")
    return tuple(_case(element, root) for element in tree.getroot().iter("testcase"))


def left_behind(tree: Path, endings: Sequence[str]) -> list[Path]:
    """JUnit files `TEST-*.xml` in directories of the tree whose paths end like this (`target/surefire-reports`)."""
    found = []
    for directory, names, files in os.walk(tree):  # links are not followed
        names[:] = [name for name in names if name not in (".git", *DEPENDENCIES)]
        here = Path(directory)
        if any(here.match(ending) for ending in endings):
            found += [here / name for name in files if name.startswith("TEST-") and name.endswith(".xml")]
    return sorted(found)


def read_left_behind(tree: Path, endings: Sequence[str], root: Path) -> tuple[TestCase, ...]:
    """The cases of all of them together. Raises BadReport when one of them cannot be read, or they are too large."""
    files = left_behind(tree, endings)
    if sum(file.lstat().st_size for file in files) > JUNIT_BYTES:
        raise BadReport(f"the reports are larger than {JUNIT_BYTES // 1024**2} MiB")
    return tuple(case for file in files for case in read_junit(file, root))


def _case(element: ET.Element, root: Path) -> TestCase:
    case = junitparser.TestCase.fromelem(element)  # type: ignore[no-untyped-call]  # junitparser is typed in part
    outcome, message = _outcome(case)
    file = _relative(element.get("file", ""), root)
    group = _group(file, case.classname or "")
    return TestCase(
        name=f"{group}::{case.name or 'unnamed'}" if group else (case.name or "unnamed"),
        file=file,
        outcome=outcome,
        message=message,
        duration_s=max(0.0, _number(element.get("time"))),
    )


def _outcome(case: junitparser.TestCase) -> tuple[str, str]:
    """A skip wins over a failure: node reports a todo as both, and does not count it as failed."""
    results = list(case.result)
    for kind, outcome in (
        (junitparser.Error, "errored"),
        (junitparser.Skipped, "skipped"),
        (junitparser.Failure, "failed"),
    ):
        found = [result for result in results if isinstance(result, kind)]
        if found:
            texts = [part.strip() for part in (found[0].message, found[0].text) if part and part.strip()]
            if len(texts) == 2 and texts[0] in texts[1]:
                texts = texts[1:]
            return outcome, _trimmed("\n".join(texts))
    return "passed", ""


def _trimmed(text: str) -> str:
    """Head and tail: what was compared stands first, where it happened last."""
    if len(text) <= CASE_MESSAGE_CHARS:
        return text
    half = CASE_MESSAGE_CHARS // 2 - 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def _relative(file: str, root: Path) -> str:
    path = Path(file)
    return str(path.relative_to(root)) if path.is_absolute() and path.is_relative_to(root) else file


def _group(file: str, classname: str) -> str:
    """`tests/test_x.py::TestClass` as pytest names it; else the file, else the class."""
    if not file:
        return "" if classname == "test" else classname  # node's constant says nothing
    inner = classname.removeprefix(file.removesuffix(".py").replace("/", "."))
    return f"{file}::{inner[1:].replace('.', '::')}" if inner.startswith(".") and inner != classname else file


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
