"""Read JUnit files as evidence, case by case; the totals in them are never trusted. The `testcase` elements are read
one at a time, in bounded memory whatever the file holds. Also finds the files that runners leave inside the tree. Used
when a test command has been run, by `checks.tests` and `checks.command_result`.

A tree of the whole file takes ten to a hundred times its size (measured: 850 MB for 9 MB of nested elements), and the
file was written by the code under test.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias
from xml.parsers import expat

import junitparser

from perdure.adapters.checks.report_text import clean_message, clean_name, iter_xml
from perdure.adapters.repository.detect.commands import DEPENDENCIES
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES, JUNIT_CASES
from perdure.text import cut_middle, shorten

JUNIT_DEPTH = 500
"""Levels to which elements of a report may be nested: nested suites are some ten deep, and expat keeps a hundred bytes
for each."""

JUNIT_TAG_BYTES = 4 * 1024 * 1024
"""Bytes of one tag with its attributes, kept whole until it ends: a failure's message may be one, a million of them
not."""


CASE_SECONDS = 10.0**7
"""The longest time of a test that is believed, a hundred days: no command may take as long."""

_RESULTS = ("error", "skipped", "failure")


class BadReport(Exception):
    """The file is absent or not a JUnit report: a contradiction, never a pass. The text says why in a few words."""


def iter_testcases(path: Path) -> Iterator[ET.Element]:
    """Yield each `testcase` element with its attributes, and in it only its first error, skip and failure, of whose
    texts the beginning and the end are kept.

    Raises BadReport where the file is missing, a link, too large, unreadable, nested too deep, or not JUnit, or defines
    entities, which no report needs. Characters that XML cannot hold are no reason: they are escaped in names, and left
    out of messages.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("no report was written")
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        reader = _TestcaseParser()
        for data in iter_xml(path):
            reader.parse(data)
            yield from reader.take_ready()
        reader.close()
        yield from reader.take_ready()
    except expat.ExpatError as error:
        raise BadReport(f"the report is not valid XML: {error}") from None
    except (OSError, ValueError, LookupError) as error:
        raise BadReport(f"the report cannot be read: {error}") from None


class _TrimmedText:
    """The text of a failure: its beginning and its end."""

    def __init__(self) -> None:
        self._head, self._tail = "", ""

    def add(self, data: str) -> None:
        """Append text, of which the first and the last CASE_MESSAGE_CHARS characters are kept."""
        free_chars = CASE_MESSAGE_CHARS - len(self._head)
        self._head += data[:free_chars]
        rest = data[max(0, free_chars) :]
        self._tail = (self._tail + rest)[-CASE_MESSAGE_CHARS:] if rest else self._tail

    def __str__(self) -> str:
        """Return the beginning and the end; longer than CASE_MESSAGE_CHARS if anything was left out."""
        return self._head + self._tail


class _TestcaseParser:
    """Expat's events, put together to elements as they end."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element
        self._parser.CharacterDataHandler = self._add_characters
        self._parser.EntityDeclHandler = _refuse_entities
        self._ready: list[ET.Element] = []
        self._open: list[ET.Element | None] = []  # None: of no interest
        self._text: _TrimmedText | None = None
        self._fed_bytes = 0

    def parse(self, data: bytes) -> None:
        """Parse the next bytes of the report. Raises BadReport where a tag is larger than JUNIT_TAG_BYTES, or the
        report is not JUnit, nested too deep or defines entities; ExpatError where it is no XML."""
        self._parser.Parse(data, False)
        self._fed_bytes += len(data)
        if (
            self._fed_bytes - self._parser.CurrentByteIndex > JUNIT_TAG_BYTES
        ):  # read, and still in the middle of one tag
            raise BadReport(f"one tag of the report is larger than {JUNIT_TAG_BYTES // 1024**2} MiB")

    def close(self) -> None:
        self._parser.Parse(b"", True)

    def take_ready(self) -> list[ET.Element]:
        """Return the cases that ended since this was last called."""
        ready, self._ready = self._ready, []
        return ready

    def _start_element(self, tag: str, attributes: dict[str, str]) -> None:
        """Open an element: make one for a `testcase` and for its first error, skip and failure, and pass over all
        others.

        Raises BadReport where the root is not JUnit's, or elements are nested deeper than JUNIT_DEPTH.
        """
        if not self._open and tag not in ("testsuites", "testsuite"):
            raise BadReport(f"the report is not JUnit: its root is <{shorten(tag, 40)}>")
        if len(self._open) >= JUNIT_DEPTH:
            raise BadReport(f"the report is nested deeper than {JUNIT_DEPTH} elements")
        outer = self._open[-1] if self._open else None
        element = None
        if tag == "testcase":
            element = ET.Element(tag, {name: clean_name(value) for name, value in attributes.items()})
        elif tag in _RESULTS and outer is not None and outer.tag == "testcase" and outer.find(tag) is None:
            element = ET.SubElement(outer, tag, {name: clean_message(value) for name, value in attributes.items()})
            self._text = _TrimmedText()
        self._open.append(element)

    def _end_element(self, tag: str) -> None:
        """Close an element: put a `testcase` among those that are ready, and set the text of an error, skip or failure;
        pass over any other."""
        element = self._open.pop()
        if element is None:
            return
        if element.tag == "testcase":
            self._ready.append(element)
        else:
            element.text, self._text = clean_message(str(self._text or "")), None

    def _add_characters(self, data: str) -> None:
        if self._text is not None and self._open[-1] is not None:
            self._text.add(data)


def _refuse_entities(*_: object) -> None:
    raise BadReport("the report is not valid: it defines entities")


CaseIdentifier: TypeAlias = Callable[[Mapping[str, str]], tuple[str, str]]
"""Takes the attributes of a `testcase` element, and returns the (file, name) that its runner knows the test by; several
tests may have the same."""

_FIELDS = set(TestCase.model_fields)


def read_junit(
    path: Path, identify: CaseIdentifier, command: Callable[[str], str] = lambda _: ""
) -> tuple[TestCase, ...]:
    """Read the test cases of one JUnit file.

    identify  tells a test's file and name by the attributes of its element
    command   gives what a person types to run one test alone, by its name

    Every `testcase` counts, wherever it stands: node puts top-level cases directly below the root, where a walk over
    suites misses them. Suite counters are ignored. Raises BadReport where the file is missing, too large or not valid
    JUnit, or has more than JUNIT_CASES cases.
    """
    return _read_files([path], identify, command)


def find_junit_files(tree: Path, endings: Sequence[str]) -> list[Path]:
    """Find the JUnit files `TEST-*.xml` in directories of the tree whose paths end like this
    (`target/surefire-reports`), sorted.

    `.git`, installed dependencies and links to directories are not searched; a directory that cannot be read is
    skipped.
    """
    files, pending = list[Path](), [str(tree)]
    while pending:  # not os.walk: it recurses, and a suite can nest directories thousands deep
        directory = pending.pop()
        is_report_directory = any(Path(directory).match(ending) for ending in endings)
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending += [entry.path] if entry.name not in (".git", *DEPENDENCIES) else []
                elif is_report_directory and entry.name.startswith("TEST-") and entry.name.endswith(".xml"):
                    files.append(Path(entry.path))
    return sorted(files)


def read_junit_files(
    tree: Path, endings: Sequence[str], identify: CaseIdentifier, command: Callable[[str], str] = lambda _: ""
) -> tuple[TestCase, ...]:
    """Read the test cases of all files that find_junit_files finds; parameters as for read_junit. Empty where it finds
    none.

    Raises BadReport where one of them cannot be read, they are larger than JUNIT_BYTES together, or have more than
    JUNIT_CASES cases.
    """
    files = find_junit_files(tree, endings)
    if sum(file.lstat().st_size for file in files) > JUNIT_BYTES:
        raise BadReport(f"the reports are larger than {JUNIT_BYTES // 1024**2} MiB")
    return _read_files(files, identify, command)


def _read_files(files: Sequence[Path], identify: CaseIdentifier, command: Callable[[str], str]) -> tuple[TestCase, ...]:
    """Read the test cases of these files in order.

    Raises BadReport for a file that cannot be read, and for more than JUNIT_CASES cases.
    """
    cases, file_names = list[TestCase](), dict[str, str]()
    for element in itertools.chain.from_iterable(map(iter_testcases, files)):
        if len(cases) == JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
        cases.append(_make_case(element, identify, command, file_names))
    return tuple(cases)


def _make_case(
    element: ET.Element, identify: CaseIdentifier, command: Callable[[str], str], file_names: dict[str, str]
) -> TestCase:
    """Return the case of a `testcase` element, and record its file in `file_names`.

    file_names  file names so far, so that a thousand cases of one file share one string

    Nothing is validated, and all cases share the set of their given fields: a set for each would be half of their
    memory.
    """
    has_result = len(element) or element.get("status") == "disabled"
    outcome, message = _outcome_and_message(element) if has_result else ("passed", "")
    file, name = identify(element.attrib)
    return TestCase.model_construct(
        _FIELDS,
        name=name,
        file=file_names.setdefault(file, file),
        outcome=outcome,
        message=message,
        duration_s=max(0.0, _parse_number(element.get("time"))),
        command=command(name),
        known=False,
        flaky=False,
    )


def _outcome_and_message(element: ET.Element) -> tuple[str, str]:
    """Return (outcome, message) of a `testcase` element: errored, skipped or failed with a message, which is cut in the
    middle where it is long; else passed with an empty one.

    An error wins over a skip, and a skip over a failure: node reports a todo as both, and does not count it as failed.
    ctest calls a test skipped whose program is missing, and only its status says so of one that is disabled.
    """
    if element.get("status") == "disabled":
        return "skipped", ""
    results = list(junitparser.TestCase.fromelem(element).result)  # type: ignore[no-untyped-call]  # typed in part
    for kind, outcome in (
        (junitparser.Error, "errored"),
        (junitparser.Skipped, "skipped"),
        (junitparser.Failure, "failed"),
    ):
        matching = [result for result in results if isinstance(result, kind)]
        if matching:
            text = matching[0].message or ""
            if element.get("status") == "notrun" and outcome == "skipped" and not text.startswith("SKIP_"):
                outcome = "errored"
            texts = [part.strip() for part in (matching[0].message, matching[0].text) if part and part.strip()]
            if len(texts) == 2 and texts[0] in texts[1]:
                texts = texts[1:]
            # What was compared stands first, where it happened last.
            return outcome, cut_middle("\n".join(texts), CASE_MESSAGE_CHARS, "\n…\n", head_share=0.5)
    return "passed", ""


_THOUSANDS = re.compile(r",(?=\d{3}[,.])")


def _parse_number(text: str | None) -> float:
    """Return the number of seconds in an attribute (`1,234.5` as Java writes it, too); 0.0 where it is absent, or no
    time of a test: no number, negative, not finite or over CASE_SECONDS."""
    try:
        seconds = float(_THOUSANDS.sub("", text) if text and "," in text else text or "0")
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds <= CASE_SECONDS else 0.0
