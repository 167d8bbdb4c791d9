"""JUnit files: evidence, read case by case and never trusted about totals."""

from __future__ import annotations

import contextlib
import itertools
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import junitparser

from perdure.adapters.checks.testcases import BadReport, testcases
from perdure.adapters.repository.detect import DEPENDENCIES
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.models.report import TestCase

_FIELDS = set(TestCase.model_fields)


def read_junit(
    path: Path,
    root: Path,
    command: Callable[[str], str] = lambda _: "",
    place: Callable[[str], str] = lambda _: "",
) -> tuple[TestCase, ...]:
    """The cases of a report.

    root     the working directory of the tests, left out of file names
    command  what a person types to run one test alone, by its name in the report
    place    the file of a test for which the report names none, by its class

    Every `testcase`, wherever it stands: node puts top-level cases directly below the root, where a walk over suites
    misses them. Suite counters are ignored. Raises BadReport.
    """
    return _read([path], root, command, place)


def left_behind(tree: Path, endings: Sequence[str]) -> list[Path]:
    """JUnit files `TEST-*.xml` in directories of the tree whose paths end like this (`target/surefire-reports`)."""
    found, left = list[Path](), [str(tree)]
    while left:  # not os.walk: it recurses, and a suite can nest directories thousands deep
        directory = left.pop()
        wanted = any(Path(directory).match(ending) for ending in endings)
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left += [entry.path] if entry.name not in (".git", *DEPENDENCIES) else []
                elif wanted and entry.name.startswith("TEST-") and entry.name.endswith(".xml"):
                    found.append(Path(entry.path))
    return sorted(found)


def read_left_behind(
    tree: Path,
    endings: Sequence[str],
    root: Path,
    command: Callable[[str], str] = lambda _: "",
    place: Callable[[str], str] = lambda _: "",
) -> tuple[TestCase, ...]:
    """The cases of all of them together. Raises BadReport when one of them cannot be read, or they are too large."""
    files = left_behind(tree, endings)
    if sum(file.lstat().st_size for file in files) > JUNIT_BYTES:
        raise BadReport(f"the reports are larger than {JUNIT_BYTES // 1024**2} MiB")
    return _read(files, root, command, place)


def _read(
    files: Sequence[Path], root: Path, command: Callable[[str], str], place: Callable[[str], str]
) -> tuple[TestCase, ...]:
    found, place = list[TestCase](), lru_cache(maxsize=JUNIT_CASES)(place)
    seen: dict[str, str] = {}
    for element in itertools.chain.from_iterable(map(testcases, files)):
        if len(found) == JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
        found.append(_case(element, root, command, place, seen))
    return tuple(found)


def _case(
    element: ET.Element,
    root: Path,
    command: Callable[[str], str],
    place: Callable[[str], str],
    seen: dict[str, str],
) -> TestCase:
    """`seen`: file names so far, so that a thousand cases of one file share it.

    They share the set of fields that were given, too: one of each case's own would be half of its memory. Nothing
    here needs validation.
    """
    outcome, message = _outcome(element) if len(element) else ("passed", "")
    file = _relative(element.get("file", ""), root)
    group, name = _group(file, element.get("classname", "")), element.get("name") or "unnamed"
    name = f"{group}::{name}" if group else name
    file = file or place(element.get("classname", ""))
    return TestCase.model_construct(
        _FIELDS,
        name=name,
        file=seen.setdefault(file, file),
        outcome=outcome,
        message=message,
        duration_s=max(0.0, _number(element.get("time"))),
        command=command(name),
        known=False,
        flaky=False,
    )


def _outcome(element: ET.Element) -> tuple[str, str]:
    """A skip wins over a failure: node reports a todo as both, and does not count it as failed."""
    results = list(junitparser.TestCase.fromelem(element).result)  # type: ignore[no-untyped-call]  # typed in part
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
    path = Path(file) if file.startswith("/") else None
    return str(path.relative_to(root)) if path is not None and path.is_relative_to(root) else file


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
