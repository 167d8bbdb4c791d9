"""Titles of deliveries and backlogs by id, for lists that name many: read from the server once and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from temporalio.client import Client
from temporalio.service import RPCError

from perdure.client.server.view import find_workflow, read_title

TITLES_KEPT = 5_000
"""Titles that are kept, of those that were asked for last: a hundred bytes each."""

TITLES_AT_ONCE = 300
"""Titles that one call reads, those first that are named first: a millisecond of a processor each."""

TITLES_PATIENCE_S = 2.0
"""Limit for all that one call reads; what comes later is known at the next one."""


class TitleCache:
    """The titles of one namespace's workflows, each read once: a later run of an id is about the same."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._titles: dict[str, str] = {}

    async def read_titles(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the titles of these workflows by id; without those that have none, or cannot be read in time."""
        wanted = list(dict.fromkeys(ids))
        missing = [id for id in wanted if id not in self._titles][:TITLES_AT_ONCE]
        if missing:
            await asyncio.wait([asyncio.create_task(self._read_title(id)) for id in missing], timeout=TITLES_PATIENCE_S)
        titles = {id: title for id in wanted if (title := self._titles.pop(id, None)) is not None}
        self._titles |= titles
        while len(self._titles) > TITLES_KEPT:
            del self._titles[next(iter(self._titles))]
        return {id: title for id, title in titles.items() if title}

    async def _read_title(self, id: str) -> None:
        """Read one title; nothing is kept when the server does not answer."""
        try:
            execution = await find_workflow(self._client, id)
        except RPCError:
            return
        self._titles[id] = await read_title(execution) if execution is not None else ""
