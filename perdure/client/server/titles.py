"""Titles of deliveries and backlogs by id, for events and for lists of a server that lists no titles: read from the
server and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from temporalio.client import Client
from temporalio.service import RPCError

from perdure.client.server.view import find_workflow, read_title

TITLES_KEPT = 5_000
"""Titles that are kept, of those that were asked for last: a hundred bytes each."""

TITLES_AT_ONCE = 300
"""Titles that one call reads, those first that are named first: a millisecond of a processor each."""

TITLES_KEPT_S = 300.0
"""Age at which a title is read again: with its plan a delivery can get another one."""

TITLES_PATIENCE_S = 2.0
"""Limit for all that one call reads; what comes later is known at the next one."""


class TitleCache:
    """The titles of one namespace's workflows, each read every TITLES_KEPT_S at most, with the time of that."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._titles: dict[str, tuple[float, str]] = {}

    async def read_titles(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the titles of these workflows by id; without those that have none, or cannot be read in time."""
        wanted, oldest = list(dict.fromkeys(ids)), time.monotonic() - TITLES_KEPT_S
        missing = [id for id in wanted if id not in self._titles or self._titles[id][0] < oldest][:TITLES_AT_ONCE]
        if missing:
            await asyncio.wait([asyncio.create_task(self._read_title(id)) for id in missing], timeout=TITLES_PATIENCE_S)
        titles = {id: title for id in wanted if (title := self._titles.pop(id, None)) is not None}
        self._titles |= titles
        while len(self._titles) > TITLES_KEPT:
            del self._titles[next(iter(self._titles))]
        return {id: title for id, (_, title) in titles.items() if title}

    async def _read_title(self, id: str) -> None:
        """Read one title; nothing is kept when the server does not answer."""
        try:
            execution = await find_workflow(self._client, id)
        except RPCError:
            return
        title = await read_title(execution) if execution is not None else ""
        self._titles[id] = (time.monotonic(), title)
