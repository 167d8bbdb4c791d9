"""Hours in which deliveries of a backlog may begin: `23:00-07:00`, `23:00-07:00 +02:00`, `23:00-07:00 Europe/Berlin`.

A named zone is looked up once, by the activity that opens the backlog: its offsets stand in history from then on. What
a host knows of zones may change, or be missing where a history is replayed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.models.base import HistoryModel

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
        """Parse hours such as `23:00-07:00 Europe/Berlin`.

        Raises ValueError, with a message for people, for a text that is none, or hours that never open.
        """
        if (match := _SHAPE.fullmatch(text.strip())) is None:
            raise ValueError(f"{text[:60]!r} are no hours: write 23:00-07:00, or 23:00-07:00 Europe/Berlin")
        opens, closes = _parse_minute_of_day(match[1], match[2]), _parse_minute_of_day(match[3], match[4])
        if opens == closes or (opens == DAY and closes == 0):
            raise ValueError(f"{text[:60]} never opens: name two hours that differ")
        zone_text = match[5] or ""
        offset_minutes, zone = parse_zone(zone_text)
        return cls(opens % DAY, closes, utc_offset_minutes=offset_minutes, zone=zone, zone_text=zone_text)

    @property
    def opening_text(self) -> str:
        """Return when it opens, `23:00 Europe/Berlin`."""
        return f"{self.opens // 60:02}:{self.opens % 60:02}" + (f" {self.zone_text}" if self.zone_text else "")

    def is_open(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> bool:
        """Return whether it is open, by the clock on a wall there, with the zone's `offsets` where it has a name.

        An hour that clocks leave out does not open it; one that they show twice opens it twice.
        """
        local = now.astimezone(UTC) + timedelta(minutes=self._minutes_ahead(now, offsets))
        minute = local.hour * 60 + local.minute
        if self.opens < self.closes:
            return self.opens <= minute < self.closes
        return minute >= self.opens or minute < self.closes

    def next_opening(self, now: datetime, offsets: tuple[Offset, ...] = ()) -> datetime:
        """Return when it is open next, in UTC: `now` where it is open. Changes of the zone's offset are followed."""
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
        """Return `tomorrow `, with a space, where it next opens on another day than it is there now; empty: today."""
        opening = self.next_opening(now, offsets)
        today, opening_day = (
            moment + timedelta(minutes=self._minutes_ahead(moment, offsets))
            for moment in (now.astimezone(UTC), opening)
        )
        return "tomorrow " if opening_day.date() > today.date() else ""

    def _minutes_ahead(self, now: datetime, offsets: tuple[Offset, ...]) -> int:
        """Return how many minutes its zone is ahead of UTC at this time; before the first known offset, by that."""
        sorted_offsets = sorted(offsets, key=lambda offset: offset.since)
        past_offsets = [offset.minutes for offset in sorted_offsets if offset.since <= now] or [
            offset.minutes for offset in sorted_offsets[:1]
        ]
        return past_offsets[-1] if self.zone and past_offsets else self.utc_offset_minutes


def parse_zone(text: str) -> tuple[int, str]:
    """Parse a zone into minutes ahead of UTC, or a name that has to be looked up; (0, "") for UTC.

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
    """Return the minutes after midnight, 24:00 among them, or raise ValueError for what is no time of day."""
    minute_of_day = int(hours) * 60 + int(minutes)
    if minute_of_day > DAY or int(minutes) > 59:
        raise ValueError(f"{hours}:{minutes} is no time of a day")
    return minute_of_day
