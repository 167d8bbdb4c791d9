"""Hours in which deliveries of a backlog may begin: `23:00-07:00`, `23:00-07:00 +02:00`, `23:00-07:00 Europe/Berlin`.

A named zone is looked up once, by the activity that opens the backlog: its offsets stand in history from then on. What
a host knows of zones may change, or be missing where a history is replayed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.models.base import Recorded

DAY = 24 * 60
"""In minutes."""

_SHAPE = re.compile(r"(\d{1,2}):(\d{2}) *[-–] *(\d{1,2}):(\d{2})(?: +(\S{1,60}))?")
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_ZONE = re.compile(r"[A-Za-z][\w+-]*(?:/[\w+-]+){0,2}", re.ASCII)


class Offset(Recorded):
    """From `since` on, clocks of the zone are `minutes` ahead of UTC."""

    since: datetime
    minutes: int


@dataclass(frozen=True)
class Window:
    """Every day from `opens` to `closes`, minutes after midnight; over midnight where it closes before it opens.

    minutes  its zone's, ahead of UTC; zone: the name whose offsets have to be looked up; said: the zone as written
    """

    opens: int
    closes: int
    minutes: int = 0
    zone: str = ""
    said: str = ""

    @classmethod
    def parse(cls, text: str) -> Window:
        """ValueError, in words, when it is none."""
        if (found := _SHAPE.fullmatch(text.strip())) is None:
            raise ValueError(f"{text[:60]!r} are no hours: write 23:00-07:00, or 23:00-07:00 Europe/Berlin")
        opens, closes = _minutes(found[1], found[2]), _minutes(found[3], found[4])
        if opens == closes or (opens == DAY and closes == 0):
            raise ValueError(f"{text[:60]} never opens: name two hours that differ")
        said = found[5] or ""
        minutes, zone = parse_zone(said)
        return cls(opens % DAY, closes, minutes=minutes, zone=zone, said=said)

    @property
    def words(self) -> str:
        """`23:00 Europe/Berlin`: when it opens."""
        return f"{self.opens // 60:02}:{self.opens % 60:02}" + (f" {self.said}" if self.said else "")

    def is_open(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> bool:
        """By the clock on a wall there: an hour that clocks leave out does not open it, one that comes twice does so
        twice."""
        local = now.astimezone(UTC) + timedelta(minutes=self._ahead(now, offsets))
        at = local.hour * 60 + local.minute
        if self.opens < self.closes:
            return self.opens <= at < self.closes
        return at >= self.opens or at < self.closes

    def next_open(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> datetime:
        """`now` where it is open."""
        at = now.astimezone(UTC)
        changes = sorted(offset.since.astimezone(UTC) for offset in offsets if offset.since > now)
        for until in [*changes, None]:
            if self.is_open(at, offsets):
                return at
            ahead = timedelta(minutes=self._ahead(at, offsets))
            midnight = (at + ahead).replace(hour=0, minute=0, second=0, microsecond=0)
            opening = midnight + timedelta(minutes=self.opens) - ahead
            opening += timedelta(days=1) if opening < at else timedelta()
            if until is None or opening < until:
                return opening
            at = until
        return at

    def day(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> str:
        """`tomorrow ` where it next opens on another day than this one is there; empty: today."""
        opening = self.next_open(now, offsets)
        here, there = (at + timedelta(minutes=self._ahead(at, offsets)) for at in (now.astimezone(UTC), opening))
        return "tomorrow " if there.date() > here.date() else ""

    def _ahead(self, now: datetime, offsets: tuple[Offset, ...]) -> int:
        known = sorted(offsets, key=lambda offset: offset.since)
        past = [offset.minutes for offset in known if offset.since <= now] or [offset.minutes for offset in known[:1]]
        return past[-1] if self.zone and past else self.minutes


def parse_zone(said: str) -> tuple[int, str]:
    """Minutes ahead of UTC, or a name that has to be looked up; (0, "") for UTC. ValueError, in words."""
    if said in ("", "Z", "UTC"):
        return 0, ""
    if (offset := _OFFSET.fullmatch(said)) is not None:
        ahead = int(offset[2]) * 60 + int(offset[3])
        if ahead > 14 * 60 or int(offset[3]) > 59:
            raise ValueError(f"{said} is no offset: clocks are at most 14:00 from UTC")
        return (-ahead if offset[1] == "-" else ahead), ""
    if _ZONE.fullmatch(said) is None:
        raise ValueError(f"{said!r} is no time zone: write Europe/Berlin or +02:00")
    return 0, said


def _minutes(hours: str, minutes: str) -> int:
    at = int(hours) * 60 + int(minutes)
    if at > DAY or int(minutes) > 59:
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return at
