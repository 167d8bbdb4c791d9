"""The offsets of a named time zone, as this host knows them, for a backlog's window of hours: a workflow cannot look
them up itself; and zones found by name. Used where backlogs and starts of deliveries are planned."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from perdure.models.errors import InvalidRequest
from perdure.models.schedule import Offset, Window
from perdure.text import nearest

_AHEAD = timedelta(days=400)
"""A backlog's window knows how clocks change within the next year or so; after that the last change holds."""


def zone_offsets(window: str | None, now: datetime) -> tuple[Offset, ...]:
    """Return the UTC offsets of the zone that a window names (`23:00-07:00 Europe/Berlin`), for the next 400 days.

    The first one holds from `now` on, each further one from a change of clocks on; empty: the window names no zone.
    Raises InvalidRequest for a zone that this host does not know.
    """
    zone = Window.parse(window).zone if window else ""
    if not zone:
        return ()
    try:
        zone_info = find_zone(0, zone)
    except ValueError as error:
        raise InvalidRequest(f"window: {error}", fix="or write +02:00") from None
    start = now.astimezone(UTC).replace(second=0, microsecond=0)
    changes = [Offset(since=start, minutes=_offset_minutes(zone_info, start))]
    day = start
    while (day := day + timedelta(days=1)) < start + _AHEAD:
        if (minutes := _offset_minutes(zone_info, day)) != changes[-1].minutes:
            changes.append(Offset(since=_find_clock_change(zone_info, day - timedelta(days=1), day), minutes=minutes))
    return tuple(changes)


def find_zone(minutes: int, zone: str) -> tzinfo:
    """Return the zone of this name, or without a name the one that is so many minutes ahead of UTC.

    Raises ValueError, with a message for people, for a name that this host does not know.
    """
    if not zone:
        return timezone(timedelta(minutes=minutes))
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        suggestion = nearest(zone, zoneinfo.available_timezones())
        raise ValueError(f"this host knows no time zone {zone}{suggestion}") from None


def _find_clock_change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return the minute at which clocks change, which they do once between these two times."""
    old = _offset_minutes(zone, before)
    while after - before > timedelta(minutes=1):
        middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
        before, after = (middle, after) if _offset_minutes(zone, middle) == old else (before, middle)
    return after


def _offset_minutes(zone: tzinfo, at: datetime) -> int:
    return (at.astimezone(zone).utcoffset() or timedelta()) // timedelta(minutes=1)
