"""The `testcase` elements of a JUnit file, one at a time, in bounded memory whatever the file holds.

A tree of the whole file takes ten to a hundred times its size (measured: 850 MB for 9 MB of nested elements), and the
file was written by the code under test.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_BYTES

JUNIT_DEPTH = 500
"""Levels to which elements of a report may be nested: nested suites are some ten deep, and expat keeps a hundred bytes
for each."""

JUNIT_TAG_BYTES = 4 * 1024 * 1024
"""Bytes of one tag with its attributes, kept whole until it ends: a failure's message may be one, a million of them
not."""


_CHUNK = 64 * 1024
_RESULTS = ("error", "skipped", "failure")


class BadReport(Exception):
    """The file is absent or not a JUnit report: a contradiction, never a pass. The text says why in a few words."""


def iter_testcases(path: Path) -> Iterator[ET.Element]:
    """Yield each `testcase` element with its attributes, and in it only its first error, skip and failure, their texts
    cut in the middle.

    Entities are not followed: a report has no need to define any. Raises BadReport where the file is missing, a link,
    too large, unreadable, too deep, or not JUnit.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("no report was written")
        if path.stat().st_size > JUNIT_BYTES:
            raise BadReport(f"the report is larger than {JUNIT_BYTES // 1024**2} MiB")
        with path.open("rb") as file:
            reader = _TestcaseParser()
            while data := file.read(_CHUNK):
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
        self._parser = expat.ParserCreate()
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
        """Parse the next bytes of the report. Raises BadReport where a tag is larger than JUNIT_TAG_BYTES, and
        ExpatError where it is no XML."""
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
            raise BadReport(f"the report is not JUnit: its root is <{tag[:40]}>")
        if len(self._open) >= JUNIT_DEPTH:
            raise BadReport(f"the report is nested deeper than {JUNIT_DEPTH} elements")
        outer = self._open[-1] if self._open else None
        element = None
        if tag == "testcase":
            element = ET.Element(tag, attributes)
        elif tag in _RESULTS and outer is not None and outer.tag == "testcase" and outer.find(tag) is None:
            element = ET.SubElement(outer, tag, attributes)
            self._text = _TrimmedText()
        self._open.append(element)

    def _end_element(self, tag: str) -> None:
        """Close an element: a `testcase` is ready then, and an error, skip or failure has its text."""
        element = self._open.pop()
        if element is None:
            return
        if element.tag == "testcase":
            self._ready.append(element)
        else:
            element.text, self._text = str(self._text or ""), None

    def _add_characters(self, data: str) -> None:
        if self._text is not None and self._open[-1] is not None:
            self._text.add(data)


def _refuse_entities(*_: object) -> None:
    raise BadReport("the report is not valid: it defines entities")
