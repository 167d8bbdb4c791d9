"""Hours in which a backlog may begin something, by the clock of a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.system.zones import zone_offsets
from perdure.models.errors import InvalidRequest
from perdure.models.schedule import Window
from tests.examples import examples

SPRING, AUTUMN = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
"""The days before clocks in Berlin change, at 01:00 UTC of the next."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "now", "opens"),
    [
        ("23:00-07:00", "2026-06-01 12:00", "2026-06-01 23:00"),
        ("23:00-07:00", "2026-06-01 23:00", "2026-06-01 23:00"),
        ("23:00-07:00", "2026-06-02 06:59", "2026-06-02 06:59"),
        ("23:00-07:00", "2026-06-02 07:00", "2026-06-02 23:00"),
        ("9:00-17:00", "2026-06-02 17:00", "2026-06-03 09:00"),
        ("00:00-24:00", "2026-06-02 17:00", "2026-06-02 17:00"),
        ("24:00-06:00", "2026-06-02 17:00", "2026-06-03 00:00"),
        ("18:00-24:00 Z", "2026-06-03 00:00", "2026-06-03 18:00"),
        ("23:00-07:00 +02:00", "2026-06-01 12:00", "2026-06-01 21:00"),
        ("23:00-07:00 -05:30", "2026-06-01 12:30", "2026-06-02 04:30"),
        ("23:00-07:00 Europe/Berlin", "2026-06-01 12:00", "2026-06-01 21:00"),
        ("23:00-07:00 Europe/Berlin", "2026-12-01 12:00", "2026-12-01 22:00"),
        ("02:30-05:00 Europe/Berlin", "2026-03-28 12:00", "2026-03-29 01:00"),  # 02:30 is left out: 03:00 there
        ("02:10-02:50 Europe/Berlin", "2026-03-28 12:00", "2026-03-30 00:10"),  # all of it is left out
        ("02:10-02:50 Europe/Berlin", "2026-10-24 12:00", "2026-10-25 00:10"),
        ("02:10-02:50 Europe/Berlin", "2026-10-25 00:50", "2026-10-25 01:10"),  # the same hour once more
        ("23:00-02:30 Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:00"),  # 02:30, then clocks say 02:00
        ("23:00-07:00 America/New_York", "2026-11-01 12:00", "2026-11-02 04:00"),
    ],
)
def test_it_opens_when_the_clock_there_says_so(hours: str, now: str, opens: str) -> None:
    window, known = Window.parse(hours), zone_offsets(hours, at(now))
    assert window.next_opening(at(now), known) == at(opens)
    assert window.is_open(at(now), known) == (now == opens)


MINUTES = st.integers(0, 24 * 60 - 1)


@settings(max_examples=examples(150), deadline=None)
@given(MINUTES, MINUTES, st.sampled_from((SPRING, AUTUMN)), st.integers(0, 2 * 24 * 60))
def test_the_next_opening_is_the_first_minute_at_which_it_is_open(
    opens: int, closes: int, day: datetime, later: int
) -> None:
    if opens == closes:
        return
    hours = f"{opens // 60:02}:{opens % 60:02}-{closes // 60:02}:{closes % 60:02} Europe/Berlin"
    window, known, now = Window.parse(hours), zone_offsets(hours, day), day + timedelta(minutes=later)
    found = now
    while not window.is_open(found, known):
        found += timedelta(minutes=1)
    assert window.next_opening(now, known) == found


def test_offsets_are_the_zones_own_for_a_year_and_none_where_no_zone_is_named() -> None:
    found = zone_offsets("1:00-2:00 Europe/Berlin", SPRING)
    assert [(one.since, one.minutes) for one in found] == [
        (SPRING, 60),
        (at("2026-03-29 01:00"), 120),
        (at("2026-10-25 01:00"), 60),
        (at("2027-03-28 01:00"), 120),
    ]
    assert (
        zone_offsets(None, SPRING)
        == zone_offsets("1:00-2:00", SPRING)
        == zone_offsets("1:00-2:00 +02:00", SPRING)
        == ()
    )


def test_an_unknown_zone_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidRequest, match=r"no time zone Europe/Berln \(did you mean Europe/Berlin\?\)"):
        zone_offsets("23:00-07:00 Europe/Berln", SPRING)


def test_a_zone_is_read_from_what_was_recorded_and_not_from_this_host() -> None:
    window = Window.parse("23:00-07:00 Nowhere/Never")
    known = zone_offsets("23:00-07:00 Europe/Berlin", SPRING)
    assert window.next_opening(SPRING, known) == at("2026-03-28 22:00")
