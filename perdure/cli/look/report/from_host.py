"""The report's parts that only the delivery's own host has: artifacts, and what was said in its turns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from perdure.cli.look.report.facts import Turn
from perdure.client import Delivery
from perdure.client.standalone import HostRefused, HostSilent
from perdure.models.errors import PerdureError
from perdure.models.report import Screenshots
from perdure.models.turn import Page

REPORT_DIFF_CHARS = 400_000
"""Of the change, in a report: 10,000 lines, which is more than anybody reads on one page."""

REPORT_PICTURES_BYTES = 24_000_000
"""Of all screenshots in one page, before base64: mail takes it, and browsers open it without a pause."""

REPORT_PATIENCE = timedelta(seconds=15)
"""For a host to begin with what a report asks it: a living one does so in milliseconds, unless all its slots are full;
a person waits for it, and the rest of the report does not need it."""


T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

PNG = b"\x89PNG\r\n\x1a\n"


class HostReader:
    """Reads through Temporal. What cannot be read is written down, and a host that is silent is not asked again."""

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self._delivery, self._queue = delivery, queue
        self._silent: bool | None = None if queue else True
        self._missed: list[str] = []
        self._odd: list[str] = []

    @property
    def unread(self) -> list[str]:
        """One sentence for each reason."""
        if not self._missed:
            return self._odd
        host = f"the delivery's host does not answer (task queue {self._queue}): it is busy, or has no worker; "
        host += "perdure up --detach there starts one"
        return [f"{_and(self._missed)}: {host if self._queue else 'it has no host yet'}", *self._odd]

    async def document(self, sha256: str, what: str, model: type[T]) -> T | None:
        """An artifact that is a model's JSON; None where there is none."""
        if not sha256 or (data := await self._bytes(sha256, what)) is None:
            return None
        try:
            return model.model_validate_json(data)
        except ValidationError:
            self._odd.append(f"{what}: written by a release that this one does not know")
            return None

    async def pictures(self, shots: Screenshots) -> dict[str, bytes]:
        """The pictures by their SHA-256, until they are too much for one page."""
        found: dict[str, bytes] = {}
        for shot in shots.pictures:
            what = f"the picture of {shot.page[:80]}"
            if not shot.artifact or shot.artifact in found or (data := await self._bytes(shot.artifact, what)) is None:
                continue
            if not data.startswith(PNG):
                self._odd.append(f"{what}: it is no PNG")
            elif sum(map(len, found.values())) + len(data) > REPORT_PICTURES_BYTES:
                self._odd.append(f"{what}: left out, the page would be too large")
            else:
                found[shot.artifact] = data
        return found

    async def diff(self) -> str:
        """The change against the base; the beginning of it, as much as a page can hold."""
        text, offset = "", 0
        while len(text) < REPORT_DIFF_CHARS:
            if (page := await self._page("diff", offset, "the change")) is None:
                return ""
            text += page.text
            if page.next is None:
                return text
            offset = page.next
        return f"{text}\n… and more: perdure diff shows all of it\n"

    async def said(self, turns: list[Turn]) -> list[Turn]:
        """The turns, each with what was said and done in it, where the host still has it."""
        words: dict[str, str] = {}
        offset: int | None = 0 if turns else None
        while offset is not None:
            if (page := await self._page("turns_json", offset, "what was said in the turns")) is None:
                break
            told = [json.loads(line) for line in page.text.splitlines()]
            words |= {turn["checkpoint"]: turn["said"] for turn in told}
            offset = page.next
        return [turn.model_copy(update={"said": words.get(turn.checkpoint, "")}) for turn in turns]

    async def _bytes(self, sha256: str, what: str) -> bytes | None:
        return await self._asked(lambda: self._delivery.artifact(sha256, self._queue, REPORT_PATIENCE), what)

    async def _page(self, name: str, offset: int, what: str) -> Page | None:
        return await self._asked(lambda: self._delivery.read(name, offset, self._queue, patience=REPORT_PATIENCE), what)

    async def _asked(self, read: Callable[[], Awaitable[R]], what: str) -> R | None:
        if self._silent is None:
            self._silent = not await self._delivery.polled(self._queue)
        if self._silent:
            self._missed.append(what)
            return None
        try:
            return await read()
        except HostSilent:
            self._silent = True
            self._missed.append(what)
        except HostRefused as error:
            self._odd.append(f"{what}: {error.said}")
        except PerdureError as error:
            self._odd.append(f"{what}: {error.what}")
        return None


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
