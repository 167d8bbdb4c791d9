"""Words that the server keeps of a delivery for lists: made here when they are set, and taken apart again when read."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.models.result import TestsStatus
from perdure.models.state import DeliveryState
from perdure.text import one_line

_SHOWN_CHARS = 200
"""Servers whose lists are in an SQL database take 255."""

_TESTS, _SINCE, _MOMENT = " · tests ", " · since ", "%Y-%m-%dT%H:%M:%SZ"


def change(state: DeliveryState) -> str:
    """`+120 −14, 3 files · tests 455/455`: all of the change, and the tests where its newest commit was tested; empty
    while there is no commit."""
    size, tests = state.change, state.tests
    if size is None:
        return ""
    words = f"+{size.added} −{size.deleted}, {size.files} file" + ("s" if size.files != 1 else "")
    if tests is None or state.tested != state.head or tests.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return words
    if tests.passed is None:
        return f"{words}{_TESTS}{tests.status}"
    return f"{words}{_TESTS}{tests.passed}/{tests.passed + (tests.failed or 0)}"


def waiting(words: str, since: datetime) -> str:
    """`held by Ada: lunch · since 2026-01-02T12:00:00Z`."""
    return f"{one_line(words, _SHOWN_CHARS)}{_SINCE}{since.astimezone(UTC).strftime(_MOMENT)}" if words else ""


def read_waiting(value: str) -> tuple[str, datetime | None]:
    """The words, and since when; None for what nobody could have set."""
    words, _, since = value.rpartition(_SINCE)
    try:
        return words, datetime.strptime(since, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return value, None
