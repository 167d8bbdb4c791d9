"""The offsets of a named time zone, as this host knows them."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from perdure.models.errors import InvalidRequest
from perdure.models.window import Offset, Window
from perdure.text import nearest

_AHEAD = timedelta(days=400)
"""A backlog knows when it opens how clocks change within the next year; after that the last change holds."""


def offsets(window: str | None, now: datetime) -> tuple[Offset, ...]:
    """Of the zone that these hours name, from `now` on; none where they name none. InvalidRequest."""
    zone = Window.parse(window).zone if window else ""
    if not zone:
        return ()
    try:
        known = clock(0, zone)
    except ValueError as error:
        raise InvalidRequest(f"window: {error}", fix="or write +02:00") from None
    start = now.astimezone(UTC).replace(second=0, microsecond=0)
    found = [Offset(since=start, minutes=_minutes(known, start))]
    at = start
    while (at := at + timedelta(days=1)) < start + _AHEAD:
        if (minutes := _minutes(known, at)) != found[-1].minutes:
            found.append(Offset(since=_change(known, at - timedelta(days=1), at), minutes=minutes))
    return tuple(found)


def clock(minutes: int, zone: str) -> tzinfo:
    """Of a named zone, or so many minutes ahead of UTC. ValueError, in words, for a name that this host has not."""
    if not zone:
        return timezone(timedelta(minutes=minutes))
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = nearest(zone, zoneinfo.available_timezones())
        raise ValueError(f"this host knows no time zone {zone}{near}") from None


def _change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The minute at which clocks change between these two."""
    old = _minutes(zone, before)
    while after - before > timedelta(minutes=1):
        middle = before + timedelta(minutes=(after - before) // timedelta(minutes=2))
        before, after = (middle, after) if _minutes(zone, middle) == old else (before, middle)
    return after


def _minutes(zone: tzinfo, at: datetime) -> int:
    return (at.astimezone(zone).utcoffset() or timedelta()) // timedelta(minutes=1)
