"""Times and hours as people write them, by the clock of a zone."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.system.zones import zone_offsets
from perdure.models.errors import InvalidRequest
from perdure.models.schedule import RecurringTime, SingleTime, Window
from tests.costs import examples

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


NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
"""A Monday."""


def moment(text: str, now: datetime = NOON) -> str:
    at = SingleTime.parse(text)
    found = at.next_occurrence(
        now, ZoneInfo(at.zone) if at.zone else timezone(timedelta(minutes=at.utc_offset_minutes))
    )
    assert found.tzinfo is UTC
    return f"{found:%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("text", "in_utc"),
    [
        ("23:00", "2026-11-23 23:00"),
        ("9:00", "2026-11-24 09:00"),
        ("12:00", "2026-11-24 12:00"),  # later than now, not now
        ("23:00 Europe/Berlin", "2026-11-23 22:00"),
        ("00:30 +02:00", "2026-11-23 22:30"),
        ("2026-11-23 23:00", "2026-11-23 23:00"),
        ("2026-11-23T23:00Z", "2026-11-23 23:00"),
        ("2026-11-23 23:00+01:00", "2026-11-23 22:00"),
        ("2027-03-28 03:00 Europe/Berlin", "2027-03-28 01:00"),
        ("2027-10-31 02:30 Europe/Berlin", "2027-10-31 00:30"),  # shown twice: the first
    ],
)
def test_a_time_is_read_by_the_clock_of_its_zone(text: str, in_utc: str) -> None:
    assert moment(text) == in_utc


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tonight", "is no time: write 23:00"),
        ("25:00", "25:00 is no time of a day"),
        ("24:00", "24:00 is no time of a day"),
        ("2026-11-23 11:59", "is past: it is 2026-11-23 12:00 there"),
        ("2026-11-23 12:30 Europe/Berlin", "is past: it is 2026-11-23 13:00 there"),
        ("2026-02-30 23:00", "2026-02-30 is no day"),
        ("2101-01-01 00:00", "beyond what a schedule knows"),
        ("2027-03-28 02:30 Europe/Berlin", "clocks there leave it out"),
        ("23:00 +15:00", "+15:00 is no offset"),
        ("23:00 Mars!", "'Mars!' is no time zone"),
        ("", "is no time"),
    ],
)
def test_what_is_no_time_or_past_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        moment(text)


@pytest.mark.parametrize(
    ("text", "calendar", "said"),
    [
        ("weekdays 23:00", ([1, 2, 3, 4, 5], 23, 0, "UTC"), "weekdays 23:00 UTC"),
        ("23:00", ([0, 1, 2, 3, 4, 5, 6], 23, 0, "UTC"), "daily 23:00 UTC"),
        ("every day at 9:05", ([0, 1, 2, 3, 4, 5, 6], 9, 5, "UTC"), "every day at 09:05 UTC"),
        ("Mondays and Thursdays 09:30", ([1, 4], 9, 30, "UTC"), "Mondays and Thursdays 09:30 UTC"),
        ("fri-mon 8:00 Europe/Berlin", ([0, 1, 5, 6], 8, 0, "Europe/Berlin"), "fri-mon 08:00 Europe/Berlin"),
        ("weekends, wed 08:00Z", ([0, 3, 6], 8, 0, "UTC"), "weekends, wed 08:00 UTC"),
        ("mon 01:00 +02:00", ([0], 23, 0, "UTC"), "mon 01:00 +02:00"),  # Sunday in UTC
        ("sat 23:00 -05:30", ([0], 4, 30, "UTC"), "sat 23:00 -05:30"),
    ],
)
def test_days_and_a_time_become_a_calendar(text: str, calendar: tuple[list[int], int, int, str], said: str) -> None:
    every = RecurringTime.parse(text)
    assert (every.calendar, every.text) == (calendar, said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("weekdays", "says no days and time"),
        ("weekday 23", "says no days and time"),
        ("wekdays 23:00", "'wekdays' is no day (did you mean weekdays?)"),
        ("weekdays 23:61", "23:61 is no time of a day"),
        ("weekdays-fri 23:00", "is no day"),
        ("* 23:00", "is no day: write weekdays"),
        ("0 23 * * 1-5", "says no days and time"),
        ("weekdays 23:00 Mars!", "is no time zone"),
    ],
)
def test_what_names_no_days_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        RecurringTime.parse(text)


@settings(max_examples=examples(200), deadline=None)
@given(st.sets(st.integers(0, 6), min_size=1), st.integers(0, 24 * 60 - 1), st.integers(-14 * 60, 14 * 60))
def test_an_offset_moves_hours_and_days_alike(days: set[int], at: int, ahead: int) -> None:
    names = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
    zone = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}:{abs(ahead) % 60:02}"
    every = RecurringTime.parse(f"{','.join(names[day] for day in sorted(days))} {at // 60}:{at % 60:02} {zone}")
    there, sunday = timezone(timedelta(minutes=ahead)), datetime(2026, 11, 22)
    meant = {
        (sunday + timedelta(days=day, minutes=at)).replace(tzinfo=there).astimezone(UTC).strftime("%w %H %M")
        for day in days
    }
    found, hour, minute, utc = every.calendar
    assert ({f"{day} {hour:02} {minute:02}" for day in found}, utc) == (meant, "UTC")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 1)),
    st.integers(0, 24 * 60 - 1),
    st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")),
)
def test_a_time_without_a_day_is_the_next_at_which_clocks_show_it(now: datetime, at: int, zone: str) -> None:
    since, clock = now.replace(tzinfo=UTC), ZoneInfo(zone)
    found = SingleTime.parse(f"{at // 60}:{at % 60:02} {zone}").next_occurrence(since, clock)
    assert since < found <= since + timedelta(hours=49)
    assert (found.astimezone(clock).hour, found.astimezone(clock).minute) == divmod(at, 60)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for read in (SingleTime.parse, RecurringTime.parse):
        with suppress(ValueError):
            parsed = read(text)
            assert parsed.zone_text if isinstance(parsed, SingleTime) else parsed.text
