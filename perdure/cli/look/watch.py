"""Watching a delivery until it ends: live on a terminal, the same lines one by one elsewhere."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from perdure.cli.decide.asking import waits_for_you
from perdure.cli.decide.gate import at_gate, choices
from perdure.cli.host.workers import STARTING, absent
from perdure.cli.keys import at_a_terminal
from perdure.cli.look.chapters import STOPS, phase_bar, row
from perdure.cli.look.closing import closing
from perdure.cli.look.story import Teller
from perdure.cli.screen import Screen
from perdure.cli.session import look_at
from perdure.models.decisions import Asked
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.models.limits import WATCH_EVERY_S, WATCH_SILENCE_S
from perdure.models.result import SUCCESSES, DeliveryResult, Status
from perdure.models.state import Progress
from perdure.text import one_line, visible

if TYPE_CHECKING:
    from rich.live import Live

    from perdure.client import Delivery, Described

TURNS_SHOWN = 4
"""The turn of this moment and those before it, above the line that tells of it."""

WATCH_LOST_S = 60.0
"""A live view's wait for a server that has gone away: one that is restarted is back in seconds."""

AWAY = f"{STOPS} Temporal does not answer: this goes on by itself when it is back"
"""Said once an outage, by whoever looks on."""


EXIT_MISSING, EXIT_WAITS, EXIT_CANCELLED, EXIT_DETACHED = 1, 4, 5, 130


def exit_code(result: DeliveryResult) -> int:
    """0: what was asked for exists, 1: it does not, 5: cancelled."""
    if result.status in SUCCESSES:
        return 0
    return EXIT_CANCELLED if result.status == Status.CANCELLED else EXIT_MISSING


async def follow(delivery: Delivery, screen: Screen, *, wait: bool = True) -> int:
    """Show a delivery until it ends, say how, and return the exit code; with `wait` False leave when it waits."""
    watcher = Watcher(delivery, screen)
    result = await watcher.watch(wait=wait)
    if result is None:
        for line in coming_back(delivery.id, "Left", "waits"):
            screen.say(line)
        return EXIT_WAITS
    if screen.json:
        screen.data(result.model_dump_json(indent=2))
    else:
        screen.lines(["", *closing(result, watcher.elapsed_s)])
    return exit_code(result)


def detached(screen: Screen, id: str) -> typer.Exit:
    """Leave on Ctrl-C: the work goes on."""
    for line in ["", *coming_back(id, "Left")]:
        screen.say(line)
    return typer.Exit(EXIT_DETACHED)


def coming_back(id: str, word: str, stays: str = "goes on") -> list[str]:
    typed = shlex.quote(id)
    return [f"{word}: {id} {stays}", f"  come back  perdure watch {typed}", f"  cancel     perdure cancel {typed}"]


class Watcher:
    """Looks at one delivery again and again. Survives servers and workers that go away and come back.

    teller  one that has told the beginning already
    through what every look passes through before it is told: to see it, or to tell a part of it in other words
    """

    def __init__(
        self,
        delivery: Delivery,
        screen: Screen,
        *,
        teller: Teller | None = None,
        through: Callable[[Described], Described] | None = None,
    ) -> None:
        self._delivery, self._screen = delivery, screen
        self._teller = teller or Teller(width=screen.width)
        self._through = through
        self._progress: Progress | None = None
        self._asked = ""
        self._away = False
        self._left: set[str] = set()
        self._turns: dict[str, str] = {}
        self._answered = self._reached = time.monotonic()
        self.elapsed_s: float | None = None

    async def watch(self, *, wait: bool = True) -> DeliveryResult | None:
        """The result, once there is one. None with `wait` False, as soon as it waits for somebody or something."""
        asking = asyncio.create_task(self._ask_on())
        try:
            with self._screen.live() as live:
                while True:
                    described = await self._look()
                    if described is not None:
                        self._tell(described, live)
                        if described.closed is not None:
                            self.elapsed_s = (described.closed - described.started).total_seconds()
                        if not described.running:
                            return await self._end()
                        if not wait and self._waits(described):
                            return None
                        if wait and live is not None and (asked := self._asks_here(described)) is not None:
                            await self._at_gate(asked, live)
                    await asyncio.sleep(WATCH_EVERY_S)
        finally:
            asking.cancel()

    def _asks_here(self, described: Described) -> Asked | None:
        """The decision that the person at this terminal can take by a key, and has not left for later."""
        asked = self._progress.asked if self._progress is not None else None
        if asked is None or described.asked is None or asked.key != described.asked.key or asked.key in self._left:
            return None
        return asked if choices(asked) and at_a_terminal() else None

    async def _at_gate(self, asked: Asked, live: Live) -> None:
        async def open() -> bool:
            there = self._progress.asked if self._progress is not None else None
            return there is not None and there.key == asked.key

        live.stop()
        self._left.add(asked.key)
        if not await at_gate(self._delivery, asked, self._screen, open=open):
            self._screen.line(f"  left for later: perdure approve {shlex.quote(self._delivery.id)}; Ctrl-C leaves")
        live.start()

    def _waits(self, described: Described) -> bool:
        """The workflow's own word; without any worker, what it asked last."""
        if time.monotonic() - self._answered > WATCH_SILENCE_S:
            return described.asked is not None
        return self._progress is not None and bool(self._progress.waiting)

    def _tell(self, described: Described, live: Live | None) -> None:
        from rich.text import Text

        if self._screen.json or self._progress is None:
            self._ask_for(described)
        if self._screen.json:
            return
        now = time.monotonic()
        silent = self._silent(now - self._answered)
        if described.running:
            self._screen.lines(self._teller.hear(self._progress, described.pending, silent=silent))
        if live is not None:
            line = self._teller.now(self._progress, described.pending, now) if described.running else None
            below = self._screen.painted(row(line, self._screen.width) if line else "")
            live.update(Text("\n").join([*map(Text, self._above(described)), below]), refresh=True)

    def _above(self, described: Described) -> list[str]:
        """Say how far it has come, and its last turns, for above the line of this moment; nothing once it has ended."""
        if not described.running or self._progress is None or not self._progress.phase:
            return []
        for one in described.pending:
            turn, doing = one.details.get("turn"), one.details.get("doing")
            if turn and doing:
                words = one_line(str(doing), min(60, self._screen.width - 12))
                self._turns[f"{one.activity} {turn}"] = f"  turn {turn}: {words}"
        self._turns = dict(list(self._turns.items())[-TURNS_SHOWN:])
        return [phase_bar(self._progress.phase), *list(self._turns.values())[:-1]]

    def _silent(self, seconds: float) -> str:
        """The reason why no worker has answered for so long; empty as long as that is nothing to tell."""
        if seconds <= WATCH_SILENCE_S:
            return ""
        why = absent()
        return why if why != STARTING or seconds > WATCH_LOST_S else ""

    def _ask_for(self, described: Described) -> None:
        """That it waits for somebody, where nothing else is told: before any worker has answered, and to programs."""
        key = described.asked.key if described.asked is not None else ""
        if described.asked is not None and key != self._asked:
            for line in waits_for_you(described.asked, self._delivery.id):
                self._screen.say(line)
            self._teller.asked = key
        self._asked = key

    async def _look(self) -> Described | None:
        """Return what the server knows; None while it does not answer."""
        from temporalio.service import RPCError

        try:
            described, self._delivery = await look_at(self._screen, self._delivery)
        except (RPCError, TemporalUnreachable) as error:
            if time.monotonic() - self._reached > WATCH_LOST_S:
                raise TemporalUnreachable(
                    "Temporal went away and did not come back",
                    where=visible(str(error))[:200],
                    fix=f"perdure up --detach, then perdure watch {self._delivery.id}: the work is safe",
                ) from None
            if not self._away:
                self._screen.say(AWAY)
            self._away = True
            return None
        if described is None:
            return None
        self._reached, self._away = time.monotonic(), False
        return self._through(described) if self._through is not None else described

    async def _ask_on(self) -> None:
        """Ask the workflow itself, for ever: a query waits for seconds when no worker takes it."""
        while True:
            await self._ask()
            await asyncio.sleep(WATCH_EVERY_S)

    async def _ask(self) -> None:
        from temporalio.exceptions import TemporalError

        from perdure.adapters.system.home import Home
        from perdure.local.strangers import astray

        try:
            progress = await self._delivery.progress(once=True)
            if not await astray(self._delivery.client, Home.find()):
                self._progress, self._answered = progress, time.monotonic()
        except (PerdureError, TemporalError):
            pass  # seen by the time that has passed since the last answer

    async def _end(self) -> DeliveryResult:
        """The result, after the steps that ended between the last look and the end."""
        result = await self._delivery.result()
        if not self._screen.json:
            self._screen.lines(self._teller.end(result.steps, self._progress))
        return result
