"""The place of somebody in the events of all deliveries and backlogs, exact, and short enough for one header."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from perdure.models.events import Event

LATE = timedelta(seconds=30)
"""An event may be told so long after newer ones of other streams: lists are seconds behind."""

BACK = timedelta(days=1)
"""Nobody goes on from further back: the page itself shows what was before."""

_STREAMS = 300
"""In one position: with more, those told of longest ago count as told up to then. 5 KB; a header takes 8."""

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)

_WRITTEN = re.compile(r"(\d{1,15})((?:~[0-9a-f]{10}\.\d{1,9})*)")


class Position:
    """All up to one moment, and of each stream that has told something since then its next offset.

    A time alone is no place: events of one millisecond are many, and streams are told as they are read.
    """

    def __init__(self, since: datetime) -> None:
        self._until = _ms(since)
        self._next: dict[str, tuple[int, int]] = {}  # stream → its next offset, and the time of the last one

    @classmethod
    def read(cls, text: str) -> Position:
        """As `str` wrote it, at most a day back; now where it says none."""
        now = datetime.now(UTC)
        if (found := _WRITTEN.fullmatch(text)) is None:
            return cls(now)
        made = cls(now - BACK)
        made._until = max(made._until, int(found[1]))
        for one in found[2].split("~")[1:]:
            stream, _, offset = one.partition(".")
            made._next[stream] = int(offset), made._until + LATE // _MS
        return made

    def __str__(self) -> str:
        return "~".join([str(self._until), *(f"{stream}.{offset}" for stream, (offset, _) in self._next.items())])

    @property
    def since(self) -> datetime:
        """Nothing before this moment is missing."""
        return _EPOCH + self._until * _MS

    def take(self, event: Event) -> bool:
        """True for an event that was not told before: from now on it was."""
        at = _ms(datetime.fromisoformat(event.time))
        stream = sha256((event.delivery or event.backlog or "").encode()).hexdigest()[:10]
        known = self._next.get(stream)
        if event.offset < known[0] if known is not None else at <= self._until:
            return False
        self._next[stream] = event.offset + 1, max(at, known[1] if known is not None else 0)
        self._until = max(self._until, at - LATE // _MS)
        if len(self._next) > _STREAMS:
            self._until = max(self._until, min(last for _, last in self._next.values()))
        self._next = {one: place for one, place in self._next.items() if place[1] > self._until}
        return True


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS
