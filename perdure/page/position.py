"""A browser's exact place in the events of all deliveries and backlogs, short enough for one header."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from perdure.models.events import Event

LATE = timedelta(seconds=30)
"""The time after newer ones of other streams an event may be told: lists are seconds behind."""

BACK = timedelta(days=1)
"""Nobody goes on from further back: the page itself shows what was before."""

_STREAMS = 300
"""Most streams in one position: with more, those told of longest ago count as told up to then. 5 KB; a header takes
8."""

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)

_WRITTEN = re.compile(r"(\d{1,15})((?:~[0-9a-f]{10}\.\d{1,9})*)")


class StreamPosition:
    """A place in the feed: all up to one moment and, of each stream that has told something since then, its next
    offset.

    A time alone is no place: events of one millisecond are many, and streams are told as they are read.
    """

    def __init__(self, since: datetime) -> None:
        self._until = _ms(since)
        self._next: dict[str, tuple[int, int]] = {}  # stream → its next offset, and the time of its last event

    @classmethod
    def parse(cls, text: str) -> StreamPosition:
        """Parse a position as `str` wrote it, at most a day back; any other text means now."""
        now = datetime.now(UTC)
        if (match := _WRITTEN.fullmatch(text)) is None:
            return cls(now)
        position = cls(now - BACK)
        position._until = max(position._until, int(match[1]))
        for part in match[2].split("~")[1:]:
            stream, _, offset = part.partition(".")
            position._next[stream] = int(offset), position._until + LATE // _MS
        return position

    def __str__(self) -> str:
        return "~".join([str(self._until), *(f"{stream}.{offset}" for stream, (offset, _) in self._next.items())])

    @property
    def since(self) -> datetime:
        """Return the moment before which no event is missing."""
        return _EPOCH + self._until * _MS

    def advance_past(self, event: Event) -> bool:
        """Record an event as told; return True where it was not told before, else False."""
        time = _ms(datetime.fromisoformat(event.time))
        stream = sha256((event.delivery or event.backlog or "").encode()).hexdigest()[:10]
        reached = self._next.get(stream)
        if event.offset < reached[0] if reached is not None else time <= self._until:
            return False
        self._next[stream] = event.offset + 1, max(time, reached[1] if reached is not None else 0)
        self._until = max(self._until, time - LATE // _MS)
        if len(self._next) > _STREAMS:
            self._until = max(self._until, min(last for _, last in self._next.values()))
        self._next = {name: place for name, place in self._next.items() if place[1] > self._until}
        return True


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS
