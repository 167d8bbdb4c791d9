"""Texts that the server keeps of a delivery for lists: made here when they are set, and parsed again when read."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.models.result import TestsStatus
from perdure.models.state import DeliveryState
from perdure.text import one_line

_SHOWN_CHARS = 200
"""Servers whose lists are in an SQL database take 255."""

_TESTS, _SINCE, _MOMENT = " · tests ", " · since ", "%Y-%m-%dT%H:%M:%SZ"


def format_change(state: DeliveryState) -> str:
    """Return the size of the change and its tests, `+120 −14, 3 files · tests 455/455`.

    Empty while there is no commit; without the tests where the newest commit was not tested.
    """
    size, tests = state.change, state.tests
    if size is None:
        return ""
    text = f"+{size.added} −{size.deleted}, {size.files} file" + ("s" if size.files != 1 else "")
    if tests is None or state.tested_commit != state.head or tests.status not in (TestsStatus.GREEN, TestsStatus.RED):
        return text
    if tests.passed is None:
        return f"{text}{_TESTS}{tests.status}"
    return f"{text}{_TESTS}{tests.passed}/{tests.passed + (tests.failed or 0)}"


def format_waiting(text: str, since: datetime) -> str:
    """Return what a delivery waits for and since when: `held by Ada: lunch · since 2026-01-02T12:00:00Z`; empty for no
    text."""
    return f"{one_line(text, _SHOWN_CHARS)}{_SINCE}{since.astimezone(UTC).strftime(_MOMENT)}" if text else ""


def parse_waiting(value: str) -> tuple[str, datetime | None]:
    """Parse a text of `format_waiting` into what it waits for and since when; a text without a valid time is returned
    whole, with None."""
    text, _, since = value.rpartition(_SINCE)
    try:
        return text, datetime.strptime(since, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return value, None
