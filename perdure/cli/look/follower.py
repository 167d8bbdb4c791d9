"""Looks at a delivery or backlog on this home's server, as often as there may be something to see, until it ends. Used
by the commands that watch one; another home's server is never listened to."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Generic

from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from perdure.cli.screen import Screen
from perdure.cli.session import DeliveryOrBacklog, describe_on_own_server
from perdure.client import RunDescription
from perdure.local.connect import external_server_config
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.render.step_lines import WARN
from perdure.text import one_line

LOOK_S = 1.0
"""Seconds between two looks at what changes: each is a call to the server, which works for everybody."""

LOOK_RARELY_S = 5.0
"""The most seconds between two looks, where nothing has changed for long, or nothing of it is shown."""

UNCHANGED_SHARE = 0.1
"""Of the time for which nothing has changed, until the next look: half a minute without news is looked at after three
seconds."""

WATCH_LOST_S = 60.0
"""Seconds that a live view waits for a server that has gone away: one that is restarted is back in seconds."""

AWAY = f"{WARN} Temporal does not answer: this goes on by itself when it is back"
"""Said once an outage, by every command that watches."""


class RunFollower(Generic[DeliveryOrBacklog]):
    """Looks at a delivery or backlog again and again; it survives servers that go away and come back.

    workflow   the handle to ask next
    come_back  the command that looks at it again, for people whose server is gone
    seconds    between two looks at what changes, at least; the end of the run is seen at once, by a call that waits
    """

    def __init__(self, workflow: DeliveryOrBacklog, screen: Screen, come_back: str, seconds: float = LOOK_S) -> None:
        self.workflow: DeliveryOrBacklog = workflow
        self.seconds = seconds
        self._screen, self._come_back = screen, come_back
        self._own_runs: set[str] = set()
        self._last: RunDescription | None = None
        self._changed_at = self._reached_at = time.monotonic()
        self._is_away = False
        self._wake = asyncio.Event()
        self._end_task: asyncio.Task[None] | None = None

    async def describe(self) -> RunDescription | None:
        """Read what the server knows of it; None while the server does not answer, or another home's answers in its
        place.

        Says once that it is away. Raises TemporalUnreachable after WATCH_LOST_S without an answer.
        """
        try:
            described, workflow = await describe_on_own_server(self._screen, self.workflow, self._own_runs)
        except (RPCError, TemporalUnreachable) as error:
            if time.monotonic() - self._reached_at > WATCH_LOST_S:
                raise TemporalUnreachable(
                    "Temporal went away and did not come back",
                    where=one_line(str(error)),
                    fix=f"{'once it is back' if external_server_config() else 'perdure up --detach'}, then "
                    f"{self._come_back}: the work is safe",
                ) from None
            if not self._is_away:
                self._screen.say(AWAY)
            self._is_away = True
            return None
        if described is None:
            self.stop_waiting()  # it waits at a server that is not this home's
            self.workflow = workflow
            return None
        self._reached_at, self._is_away = time.monotonic(), False
        if described != self._last:
            self._last, self._changed_at = described, self._reached_at
        return described

    async def wait_for_next_look(self) -> None:
        """Wait until the next look: at once when the run has ended or `look_soon` is called, else the later the longer
        nothing has changed."""
        if self._end_task is None:
            self._end_task = asyncio.create_task(self._wait_for_end())
        unchanged_s = time.monotonic() - self._changed_at
        seconds = LOOK_S if self._last is None or self._is_away else self.seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, min(UNCHANGED_SHARE * unchanged_s, LOOK_RARELY_S))):
                await self._wake.wait()
        self._wake.clear()

    def look_soon(self) -> None:
        """Let the next look be now: something was done that changes what is to be seen."""
        self._changed_at = time.monotonic()
        self._wake.set()

    def stop_waiting(self) -> None:
        """Wait for the end no longer."""
        if self._end_task is not None:
            self._end_task.cancel()
            self._end_task = None

    async def _wait_for_end(self) -> None:
        """Let the next look be now when the run has ended. Where it then has not, as at another home's server, wait
        again later."""
        while True:
            with suppress(PerdureError, TemporalError):
                await self.workflow.result()
            self._wake.set()
            await asyncio.sleep(LOOK_RARELY_S)
