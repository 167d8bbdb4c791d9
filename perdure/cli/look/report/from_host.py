"""The parts of a report that only the delivery's own host has: artifacts, the change, and the transcripts of its
turns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from perdure.cli.look.report.facts import ReportTurn
from perdure.client import Delivery
from perdure.client.host_activities import HostRefused, HostSilent
from perdure.models.errors import PerdureError
from perdure.models.report import Screenshots
from perdure.models.turn import TextPage

REPORT_DIFF_CHARS = 400_000
"""Characters of the change in a report: 10,000 lines, which is more than anybody reads on one page."""

REPORT_PICTURES_BYTES = 24_000_000
"""Bytes of all screenshots in one page, before base64: mail takes it, and browsers open it without a pause."""

REPORT_PATIENCE = timedelta(seconds=15)
"""Limit for a host to begin with what a report asks of it: a living one does so in milliseconds, unless all its slots
are full; a person waits for it, and the rest of the report does not need it."""


T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

PNG = b"\x89PNG\r\n\x1a\n"


class HostReader:
    """Reads from a delivery's host through Temporal.

    What cannot be read is noted in `unread`, and a host that is silent is not asked again.
    """

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self._delivery, self._queue = delivery, queue
        self._silent: bool | None = None if queue else True
        self._unanswered: list[str] = []
        self._problems: list[str] = []

    @property
    def unread(self) -> list[str]:
        """Return what could not be read and why, one sentence for each reason."""
        if not self._unanswered:
            return self._problems
        host = f"the delivery's host does not answer (task queue {self._queue}): it is busy, or has no worker; "
        host += "perdure up --detach there starts one"
        return [f"{_join_names(self._unanswered)}: {host if self._queue else 'it has no host yet'}", *self._problems]

    async def read_document(self, sha256: str, what: str, model: type[T]) -> T | None:
        """Read an artifact and parse it as this model's JSON; None where the hash is empty.

        None, too, where it cannot be read or parsed, which is noted in `unread` under the name `what`.
        """
        if not sha256 or (data := await self._read_artifact(sha256, what)) is None:
            return None
        try:
            return model.model_validate_json(data)
        except ValidationError:
            self._problems.append(f"{what}: written by a release that this one does not know")
            return None

    async def read_pictures(self, shots: Screenshots) -> dict[str, bytes]:
        """Read the screenshots, as PNG by SHA-256, until they are too much for one page; note in `unread` what is left
        out."""
        pictures: dict[str, bytes] = {}
        for shot in shots.pictures:
            what = f"the picture of {shot.page[:80]}"
            if (
                not shot.artifact
                or shot.artifact in pictures
                or (data := await self._read_artifact(shot.artifact, what)) is None
            ):
                continue
            if not data.startswith(PNG):
                self._problems.append(f"{what}: it is no PNG")
            elif sum(map(len, pictures.values())) + len(data) > REPORT_PICTURES_BYTES:
                self._problems.append(f"{what}: left out, the page would be too large")
            else:
                pictures[shot.artifact] = data
        return pictures

    async def read_diff(self) -> str:
        """Read the change against the base: its beginning where a page cannot hold all of it. Empty where a part cannot
        be read."""
        text, offset = "", 0
        while len(text) < REPORT_DIFF_CHARS:
            if (page := await self._read_page("diff", offset, "the change")) is None:
                return ""
            text += page.text
            if page.next is None:
                return text
            offset = page.next
        return f"{text}\n… and more: perdure diff shows all of it\n"

    async def add_transcripts(self, turns: list[ReportTurn]) -> list[ReportTurn]:
        """Return the turns with their transcripts, read from the host; empty in those of which the host has none."""
        transcripts: dict[str, str] = {}
        offset: int | None = 0 if turns else None
        while offset is not None:
            if (page := await self._read_page("turns_json", offset, "what was said in the turns")) is None:
                break
            entries = [json.loads(line) for line in page.text.splitlines()]
            transcripts |= {turn["checkpoint"]: turn["said"] for turn in entries}
            offset = page.next
        return [turn.model_copy(update={"transcript": transcripts.get(turn.checkpoint, "")}) for turn in turns]

    async def _read_artifact(self, sha256: str, what: str) -> bytes | None:
        """Read an artifact by its SHA-256; None where it cannot be read."""
        return await self._ask_host(lambda: self._delivery.artifact(sha256, self._queue, REPORT_PATIENCE), what)

    async def _read_page(self, name: str, offset: int, what: str) -> TextPage | None:
        """Read one page from the host; None where it cannot be read."""
        return await self._ask_host(
            lambda: self._delivery.read_page(name, offset, self._queue, patience=REPORT_PATIENCE), what
        )

    async def _ask_host(self, fetch: Callable[[], Awaitable[R]], what: str) -> R | None:
        """Call `fetch` and return its result; None where the host is silent or refuses, which is noted under the name
        `what`.

        Where no worker takes work from the host's queue, or the host was silent before, `fetch` is not called.
        """
        if self._silent is None:
            self._silent = not await self._delivery.has_pollers(self._queue)
        if self._silent:
            self._unanswered.append(what)
            return None
        try:
            return await fetch()
        except HostSilent:
            self._silent = True
            self._unanswered.append(what)
        except HostRefused as error:
            self._problems.append(f"{what}: {error.failure_message}")
        except PerdureError as error:
            self._problems.append(f"{what}: {error.what}")
        return None


def _join_names(names: list[str]) -> str:
    """Join names with commas, and `and` before the last."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
