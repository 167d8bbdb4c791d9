"""Times at which something begins: `23:00`, `2026-11-23 23:00 Europe/Berlin` once, `weekdays 23:00` again and again.

Temporal's schedules do it (perdure.client.schedules). A time has its zone behind it, UTC where it has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from perdure.models.window import DAY, parse_zone
from perdure.text import nearest

YEARS = (2000, 2100)
"""A schedule's calendar knows no others."""

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
class Every:
    """At these minutes after midnight on these days, 0 for Sunday, by the clock of a zone.

    minutes  the zone's, ahead of UTC; zone: the name that has to be known to the server; said: as it was written
    """

    days: frozenset[int]
    at: int
    minutes: int = 0
    zone: str = ""
    said: str = ""

    @classmethod
    def parse(cls, text: str) -> Every:
        """ValueError, in words, when it is none."""
        if (found := _EVERY.fullmatch(text.strip())) is None:
            raise ValueError(
                f"{text[:60]!r} says no days and time: write weekdays 23:00, or mon,thu 09:30 Europe/Berlin"
            )
        minutes, zone = parse_zone(said := found[4] or found[5] or "")
        days = frozenset[int]().union(*(_days(word) for word in re.split(r"[\s,]+", found[1].lower()) if word))
        words = " ".join(found[1].split())
        told = f"{words or 'daily'} {int(found[2]):02}:{found[3]} {said if said not in ('', 'Z') else 'UTC'}"
        return cls(days or _SETS["daily"], _minute(found[2], found[3]), minutes, zone, told)

    @property
    def calendar(self) -> tuple[list[int], int, int, str]:
        """Days, hour and minute, and the zone by whose clock: UTC for what is a fixed distance from it."""
        beyond, at = divmod(self.at - self.minutes, DAY)
        return sorted((day + beyond) % 7 for day in self.days), at // 60, at % 60, self.zone or "UTC"


@dataclass(frozen=True)
class At:
    """One time. `day`: None for the next day on which clocks there show it; the rest as in Every."""

    day: date | None
    at: int
    minutes: int = 0
    zone: str = ""
    said: str = ""

    @classmethod
    def parse(cls, text: str) -> At:
        """ValueError, in words, when it is none."""
        if (found := _AT.fullmatch(text.strip())) is None:
            raise ValueError(f"{text[:60]!r} is no time: write 23:00, 2026-11-23 23:00, or 23:00 Europe/Berlin")
        minutes, zone = parse_zone(said := found[6] or found[7] or "")
        day = None
        if found[1]:
            try:
                day = date(int(found[1]), int(found[2]), int(found[3]))
            except ValueError:
                raise ValueError(f"{found[1]}-{found[2]}-{found[3]} is no day") from None
            if not YEARS[0] <= day.year < YEARS[1]:
                raise ValueError(f"{day:%Y-%m-%d} is beyond what a schedule knows: {YEARS[0]} to {YEARS[1] - 1}")
        return cls(day, _minute(found[4], found[5]), minutes, zone, said if said not in ("", "Z") else "UTC")

    def moment(self, now: datetime, clock: tzinfo) -> datetime:
        """In UTC, later than `now`. ValueError for one that is past, or that clocks there leave out."""
        there = now.astimezone(clock)
        days = [self.day] if self.day is not None else [there.date() + timedelta(days=n) for n in range(3)]
        found = [moment for day in days for moment in self._on(day, clock)]
        if not found:
            raise ValueError(f"{self._words(days[0])} does not come: clocks there leave it out")
        if later := [moment for moment in found if moment > now]:
            return later[0]
        raise ValueError(f"{self._words(days[0])} is past: it is {there:%Y-%m-%d %H:%M} there")

    def _on(self, day: date, clock: tzinfo) -> list[datetime]:
        """None where clocks skip it, two where they show it twice."""
        shown = datetime.combine(day, time(self.at // 60, self.at % 60))
        moments = {shown.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(moment for moment in moments if moment.astimezone(clock).replace(tzinfo=None, fold=0) == shown)

    def _words(self, day: date) -> str:
        return f"{day:%Y-%m-%d} {self.at // 60:02}:{self.at % 60:02} {self.said}"


def _days(word: str) -> frozenset[int]:
    if word in _FILLERS:
        return frozenset()
    first, dash, last = word.partition("-")
    for name in (first, last) if dash else (first,):
        if name not in _SETS or (dash and len(_SETS[name]) > 1):
            words = nearest(name, _SETS) or ": write weekdays, daily, weekends, or mon,thu"
            raise ValueError(f"{name[:40]!r} is no day{words}")
    if not dash:
        return _SETS[first]
    (begin,), (end,) = _SETS[first], _SETS[last]
    return frozenset((begin + n) % 7 for n in range((end - begin) % 7 + 1))


def _minute(hours: str, minutes: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return int(hours) * 60 + int(minutes)
