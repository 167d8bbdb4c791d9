"""Hours and times as people write them: the window of time in which a backlog's deliveries may begin (`23:00-07:00
Europe/Berlin`), and when something begins once or again and again (`weekdays 23:00`).

The zone of a window is looked up once, by the activity that opens the backlog: its offsets stand in history from then
on. What a host knows of zones may change, or be missing where a history is replayed.

Temporal's schedules carry times out (perdure.client.schedules). A time's zone stands behind it; without one it is UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from perdure.models.base import HistoryModel
from perdure.text import nearest, shorten

DAY = 24 * 60
"""Minutes of a day."""

_SHAPE = re.compile(r"(\d{1,2}):(\d{2}) *[-–] *(\d{1,2}):(\d{2})(?: +(\S{1,60}))?")
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_ZONE = re.compile(r"[A-Za-z][\w+-]*(?:/[\w+-]+){0,2}", re.ASCII)


class Offset(HistoryModel):
    """The offset of a zone: from `since` on, its clocks are `minutes` ahead of UTC."""

    since: datetime
    minutes: int


@dataclass(frozen=True)
class Window:
    """Hours of every day in which something may begin; they go over midnight where `closes` is before `opens`.

    opens, closes       minutes after midnight, by the clock of the zone
    utc_offset_minutes  how far the zone is ahead of UTC, where it is given as an offset
    zone                the name of a zone whose offsets have to be looked up
    zone_text           the zone as it was written
    """

    opens: int
    closes: int
    utc_offset_minutes: int = 0
    zone: str = ""
    zone_text: str = ""

    @classmethod
    def parse(cls, text: str) -> Window:
        """Parse hours such as `23:00-07:00 Europe/Berlin`; without a zone they are UTC.

        Raises ValueError, with a message for people, for a text that is none, or hours that never open.
        """
        if (match := _SHAPE.fullmatch(text.strip())) is None:
            raise ValueError(f"{shorten(text, 60)!r} are no hours: write 23:00-07:00, or 23:00-07:00 Europe/Berlin")
        opens, closes = _parse_minute_of_day(match[1], match[2]), _parse_minute_of_day(match[3], match[4])
        if opens == closes or (opens == DAY and closes == 0):
            raise ValueError(f"{shorten(text, 60)} never opens: name two hours that differ")
        zone_text = match[5] or ""
        offset_minutes, zone = parse_zone(zone_text)
        return cls(opens % DAY, closes, utc_offset_minutes=offset_minutes, zone=zone, zone_text=zone_text)

    @property
    def opening_text(self) -> str:
        """Return when it opens, `23:00 Europe/Berlin`."""
        return f"{self.opens // 60:02}:{self.opens % 60:02}" + (f" {self.zone_text}" if self.zone_text else "")

    def is_open(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> bool:
        """Return True when the window is open at this time, by the clocks of its zone. `offsets`: of a zone that has a
        name, as they were looked up; without them it counts as UTC.

        An hour that clocks leave out does not open it; one that they show twice opens it twice.
        """
        local = now.astimezone(UTC) + timedelta(minutes=self._minutes_ahead(now, offsets))
        minute = local.hour * 60 + local.minute
        if self.opens < self.closes:
            return self.opens <= minute < self.closes
        return minute >= self.opens or minute < self.closes

    def next_opening(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> datetime:
        """Return when the window opens next, in UTC; `now` when it is open. Changes of the zone's offset until then are
        taken into account."""
        moment = now.astimezone(UTC)
        changes = sorted(offset.since.astimezone(UTC) for offset in offsets if offset.since > now)
        for until in [*changes, None]:
            if self.is_open(moment, offsets):
                return moment
            ahead = timedelta(minutes=self._minutes_ahead(moment, offsets))
            midnight = (moment + ahead).replace(hour=0, minute=0, second=0, microsecond=0)
            opening = midnight + timedelta(minutes=self.opens) - ahead
            opening += timedelta(days=1) if opening < moment else timedelta()
            if until is None or opening < until:
                return opening
            moment = until
        return moment

    def day_prefix(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> str:
        """Return `tomorrow `, with a space, when the window next opens on a later day, by the clocks of its zone; empty
        when today."""
        opening = self.next_opening(now, offsets)
        today, opening_day = (
            moment + timedelta(minutes=self._minutes_ahead(moment, offsets))
            for moment in (now.astimezone(UTC), opening)
        )
        return "tomorrow " if opening_day.date() > today.date() else ""

    def _minutes_ahead(self, now: datetime, offsets: tuple[Offset, ...]) -> int:
        """Return how many minutes the window's zone is ahead of UTC at this time: for a zone with a name by the newest
        of the `offsets` before it, or by the first of all; else as it was written."""
        sorted_offsets = sorted(offsets, key=lambda offset: offset.since)
        past_offsets = [offset.minutes for offset in sorted_offsets if offset.since <= now] or [
            offset.minutes for offset in sorted_offsets[:1]
        ]
        return past_offsets[-1] if self.zone and past_offsets else self.utc_offset_minutes


def parse_zone(text: str) -> tuple[int, str]:
    """Parse a zone into the minutes it is ahead of UTC and the name that has to be looked up, of which one is set:
    `+02:00` → (120, ""), `Europe/Berlin` → (0, "Europe/Berlin"). (0, "") for UTC or an empty text.

    Raises ValueError, with a message for people, for a text that is neither.
    """
    if text in ("", "Z", "UTC"):
        return 0, ""
    if (offset := _OFFSET.fullmatch(text)) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes > 14 * 60 or int(offset[3]) > 59:
            raise ValueError(f"{text} is no offset: clocks are at most 14:00 from UTC")
        return (-minutes if offset[1] == "-" else minutes), ""
    if _ZONE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no time zone: write Europe/Berlin or +02:00")
    return 0, text


def _parse_minute_of_day(hours: str, minutes: str) -> int:
    """Return the minutes after midnight of a time of day, up to and including 24:00. Raises ValueError, with a message
    for people, for anything later."""
    minute_of_day = int(hours) * 60 + int(minutes)
    if minute_of_day > DAY or int(minutes) > 59:
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return minute_of_day


YEARS = (2000, 2100)
"""First year, and the one after the last, that the calendar of a schedule knows."""

_AT = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)(?:T| +))?(\d{1,2}):(\d\d)(?: *(Z|[+-]\d\d:\d\d)| +(\S{1,60}))?")
_EVERY = re.compile(r"(.*?) *\b(\d{1,2}):(\d\d)(?: *(Z|[+-]\d\d:\d\d)| +(\S{1,60}))?")

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SETS = {
    **{word: frozenset(range(7)) for word in ("day", "days", "daily", "everyday")},
    **{word: frozenset(range(1, 6)) for word in ("weekday", "weekdays")},
    **{word: frozenset((0, 6)) for word in ("weekend", "weekends")},
    **{short: frozenset((n,)) for n, day in enumerate(_DAYS) for short in (day, f"{day}s", day[:3])},
}
_FILLERS = ("every", "at", "on", "and")


@dataclass(frozen=True)
class RecurringTime:
    """A time of day on certain days of the week, by the clock of a zone.

    days                0 for Sunday to 6
    minute_of_day       minutes after midnight
    utc_offset_minutes  how far the zone is ahead of UTC, where it is given as an offset
    zone                the zone's name, which the server has to know; empty: the offset counts
    text                as it was written, tidied: `weekdays 23:00 Europe/Berlin`
    """

    days: frozenset[int]
    minute_of_day: int
    utc_offset_minutes: int = 0
    zone: str = ""
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> RecurringTime:
        """Parse days and a time such as `weekdays 23:00` or `mon,thu 09:30 Europe/Berlin`; without days it is daily,
        without a zone UTC.

        Raises ValueError, with a message for people, for a text that is none.
        """
        if (match := _EVERY.fullmatch(text.strip())) is None:
            raise ValueError(
                f"{shorten(text, 60)!r} says no days and time: write weekdays 23:00, or mon,thu 09:30 Europe/Berlin"
            )
        offset_minutes, zone = parse_zone(zone_text := match[4] or match[5] or "")
        days = frozenset[int]().union(*(_parse_days(word) for word in re.split(r"[\s,]+", match[1].lower()) if word))
        days_text = " ".join(match[1].split())
        tidied = (
            f"{days_text or 'daily'} {int(match[2]):02}:{match[3]} {zone_text if zone_text not in ('', 'Z') else 'UTC'}"
        )
        return cls(days or _SETS["daily"], _parse_minute_within_day(match[2], match[3]), offset_minutes, zone, tidied)

    @property
    def calendar(self) -> tuple[list[int], int, int, str]:
        """Return days (0 for Sunday), hour and minute for Temporal's calendar, and the name of the zone whose clock
        counts.

        When the zone is given as an offset they are converted to UTC, which may shift the days by one.
        """
        day_shift, minute = divmod(self.minute_of_day - self.utc_offset_minutes, DAY)
        return sorted((day + day_shift) % 7 for day in self.days), minute // 60, minute % 60, self.zone or "UTC"


@dataclass(frozen=True)
class SingleTime:
    """One time, by the clock of a zone.

    day                 None: the next day on which clocks there show it
    minute_of_day       minutes after midnight
    utc_offset_minutes  how far the zone is ahead of UTC, where it is given as an offset; zone: its name, otherwise
    zone_text           the zone as it was written, or `UTC`
    """

    day: date | None
    minute_of_day: int
    utc_offset_minutes: int = 0
    zone: str = ""
    zone_text: str = ""

    @classmethod
    def parse(cls, text: str) -> SingleTime:
        """Parse `23:00`, `2026-11-23 23:00` or `23:00 Europe/Berlin`; without a zone it is UTC, without a day the next
        one.

        Raises ValueError, with a message for people, for a text that is none, or a year that no schedule knows.
        """
        if (match := _AT.fullmatch(text.strip())) is None:
            raise ValueError(f"{shorten(text, 60)!r} is no time: write 23:00, 2026-11-23 23:00, or 23:00 Europe/Berlin")
        offset_minutes, zone = parse_zone(zone_text := match[6] or match[7] or "")
        day = None
        if match[1]:
            try:
                day = date(int(match[1]), int(match[2]), int(match[3]))
            except ValueError:
                raise ValueError(f"{match[1]}-{match[2]}-{match[3]} is no day") from None
            if not YEARS[0] <= day.year < YEARS[1]:
                raise ValueError(f"{day:%Y-%m-%d} is beyond what a schedule knows: {YEARS[0]} to {YEARS[1] - 1}")
        return cls(
            day,
            _parse_minute_within_day(match[4], match[5]),
            offset_minutes,
            zone,
            zone_text if zone_text not in ("", "Z") else "UTC",
        )

    def next_occurrence(self, now: datetime, clock: tzinfo) -> datetime:
        """Return the first time later than `now`, in UTC, at which clocks in zone `clock` show this time; without a
        day, within three days.

        Raises ValueError, with a message for people, for a time that is past, or that clocks there leave out.
        """
        local_now = now.astimezone(clock)
        days = [self.day] if self.day is not None else [local_now.date() + timedelta(days=n) for n in range(3)]
        occurrences = [occurrence for day in days for occurrence in self._occurrences_on(day, clock)]
        if not occurrences:
            raise ValueError(f"{self._describe(days[0])} does not come: clocks there leave it out")
        if later_ones := [occurrence for occurrence in occurrences if occurrence > now]:
            return later_ones[0]
        raise ValueError(f"{self._describe(days[0])} is past: it is {local_now:%Y-%m-%d %H:%M} there")

    def _occurrences_on(self, day: date, clock: tzinfo) -> list[datetime]:
        """Return the times, in UTC, at which clocks in zone `clock` show this time on a day: none when they skip it,
        two when they show it twice."""
        shown = datetime.combine(day, time(self.minute_of_day // 60, self.minute_of_day % 60))
        moments = {shown.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(moment for moment in moments if moment.astimezone(clock).replace(tzinfo=None, fold=0) == shown)

    def _describe(self, day: date) -> str:
        """Return the time on this day as people write it, `2026-11-23 23:00 UTC`."""
        return f"{day:%Y-%m-%d} {self.minute_of_day // 60:02}:{self.minute_of_day % 60:02} {self.zone_text}"


def _parse_days(word: str) -> frozenset[int]:
    """Return the days of the week, 0 for Sunday, that a word such as `weekdays` or a range such as `mon-fri` names;
    none for a filler word such as `every`.

    Raises ValueError, with a message for people, for another word.
    """
    if word in _FILLERS:
        return frozenset()
    first, dash, last = word.partition("-")
    for name in (first, last) if dash else (first,):
        if name not in _SETS or (dash and len(_SETS[name]) > 1):
            hint = nearest(name, _SETS) or ": write weekdays, daily, weekends, or mon,thu"
            raise ValueError(f"{shorten(name, 40)!r} is no day{hint}")
    if not dash:
        return _SETS[first]
    (begin,), (end,) = _SETS[first], _SETS[last]
    return frozenset((begin + n) % 7 for n in range((end - begin) % 7 + 1))


def _parse_minute_within_day(hours: str, minutes: str) -> int:
    """Return the minutes after midnight of a time of day, up to 23:59. Raises ValueError, with a message for people,
    for anything later."""
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return int(hours) * 60 + int(minutes)
