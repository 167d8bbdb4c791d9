"""The demo: a real delivery of a scripted model's work, while its worker is killed again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from perdure.cli.host.web import web_page
from perdure.cli.keys import ENTER, Keys, at_a_terminal
from perdure.cli.look.closing import closing
from perdure.cli.look.story import Teller
from perdure.cli.look.watch import Watcher
from perdure.cli.screen import Screen
from perdure.client import Delivery, Described, Perdure
from perdure.demo import text as words
from perdure.demo.killer import STRIKES, Killer, paced
from perdure.demo.scene import DemoScene, scene_for
from perdure.demo.stage import PACKAGE, DemoDirectories, best_grade, environment, for_agent, stage, supervised
from perdure.local.connect import connect
from perdure.local.places import Places, examples
from perdure.local.processes import last_lines
from perdure.local.server import stop_server
from perdure.models.config import SandboxGrade
from perdure.models.decisions import Asked, Gate
from perdure.models.errors import PerdureError
from perdure.models.result import DeliveryResult, Reason, Status
from perdure.models.rules.allowance import Limit
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.secrets import within

DEMO_S = 900.0
"""For a demo that nobody watches: twenty times what it takes, so that a build server is not kept for ever."""


@dataclass(frozen=True)
class Performance:
    """Everything one performance needs. `keys` None: nobody is there to press any. `killing`: the killer at work."""

    screen: Screen
    stage: DemoDirectories
    scene: DemoScene
    delivery: Delivery
    killer: Killer
    killing: asyncio.Task[None]
    supervisor: Process
    keys: Keys | None
    page: str


@dataclass(frozen=True)
class Wanted:
    """Options of the demo; see `perdure demo --help`."""

    keep: Path | None = None
    github: bool = False
    fast: bool = False
    kills: int = 0
    yes: bool = False
    json: bool = False
    backlog: bool = False
    agent: str | None = None


def demo(wanted: Wanted) -> int:
    """Play it, and return the exit code: 0 when exactly one pull request came out of it.

    On a terminal a person may kill too, and it waits for Enter in the end. Ctrl-C and SIGTERM end it and leave nothing.
    """
    return asyncio.run(_until_interrupted(wanted))


async def _until_interrupted(wanted: Wanted) -> int:
    signals, loop, ours = list[int](), asyncio.get_running_loop(), asyncio.current_task()
    screen, keep = Screen(json=wanted.json), wanted.keep
    assert ours is not None

    def interrupt(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:  # further ones would interrupt the tidying up
            ours.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt, number)
    person = not wanted.yes and screen.terminal and at_a_terminal()
    try:
        async with AsyncExitStack() as stack:
            if wanted.backlog:
                from perdure.demo.night import play

                async with asyncio.timeout(DEMO_S):
                    return await play(screen, wanted)
            keys = await stack.enter_async_context(Keys.of_terminal()) if person else None
            performance = await stack.enter_async_context(_opened(screen, keys, wanted))
            async with asyncio.timeout(None if person else DEMO_S):
                return await _perform(performance)
    except TimeoutError:
        raise PerdureError(f"the demo did not end within {DEMO_S / 60:.0f} minutes", fix="perdure doctor") from None
    except asyncio.CancelledError:
        if not signals:
            raise
        screen.say("stopped; " + (f"what there is stays in {keep}" if keep else "nothing of it is left"))
        return 128 + signals[0]


@dataclass(frozen=True)
class World:
    """All that a performance plays with. `worker`: the first one's pid; `grade`: of the sandbox, and why not full."""

    perdure: Perdure
    rehearsal: Rehearsal
    supervisor: Process
    worker: int
    grade: tuple[SandboxGrade, str]


@asynccontextmanager
async def opened_world(
    place: DemoDirectories,
    screenplay: Screenplay,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    agent: str | None = None,
) -> AsyncIterator[World]:
    """A model that plays the screenplay, Temporal and a supervised worker, for as long as the context lasts."""
    async with AsyncExitStack() as stack:
        rehearsal = await stack.enter_async_context(Rehearsal(screenplay))
        grade = await asyncio.to_thread(best_grade)
        ours = environment(place, rehearsal.url, grade[0], os.environ)
        stack.enter_context(within(ours | dict(variables) | (for_agent(rehearsal.url, ours) if agent else {})))
        stack.push_async_callback(stop_server, place.home)
        client = await connect(place.home, start=True, say=lambda _: None)
        supervisor, worker = await stack.enter_async_context(supervised(place.home))
        yield World(Perdure(client, place.home.key()), rehearsal, supervisor, worker, grade)


@asynccontextmanager
async def _opened(screen: Screen, keys: Keys | None, wanted: Wanted) -> AsyncIterator[Performance]:
    """Home, repository, forge, model, server and worker, all fresh, with the delivery under way."""
    scene, strikes = scene_for(github=wanted.github), STRIKES[: wanted.kills]
    screenplay = Screenplay.load(examples() / f"{PACKAGE}.toml")
    async with AsyncExitStack() as stack:
        place = stack.enter_context(stage(wanted.keep))
        played = await stack.enter_async_context(scene(place))
        screen.say(words.title(played))
        world = await stack.enter_async_context(
            opened_world(
                place, paced(screenplay, strikes) if wanted.fast else screenplay, played.variables, agent=wanted.agent
            )
        )
        rehearsal, supervisor, worker = world.rehearsal, world.supervisor, world.worker
        grade, why = world.grade
        found = await world.perdure.submit(
            {**played.submission, **({"agent": wanted.agent} if wanted.agent else {})}, id=played.id
        )
        page = await web_page(place.home, played.id)
        _say(screen, words.opening(place, played, page, grade, why))
        _say(screen, ["", words.worker(worker, keys is not None), ""])
        killer = Killer(place.home, worker, rehearsal, strikes, screen.say)
        killing = asyncio.create_task(killer.run())
        try:
            yield Performance(screen, place, played, found.delivery, killer, killing, supervisor, keys, page)
        finally:
            killing.cancel()


async def _perform(performance: Performance) -> int:
    """Watch to the end. Killing is what a visitor is asked to do: what a third death ends or asks, goes on."""
    screen, teller, killed = performance.screen, Teller(width=performance.screen.width), 0
    while True:
        watcher = Watcher(performance.delivery, screen, teller=teller, through=Going(performance).on)
        result = await _watched(performance, watcher)
        _say(screen, ["", *closing(result.model_copy(update={"next": ()}), watcher.elapsed_s), ""])
        if result.reason != Reason.LIMITS or performance.killer.killed == killed:
            break
        killed = performance.killer.killed
        await performance.delivery.retry()  # while it was prepared, before there is anything to be asked about
        _say(screen, [words.RETRIED, ""])
    outcome = await asyncio.to_thread(performance.scene.outcome)
    performance.stage.over.touch()
    _say(screen, [*outcome.lines, "", *words.ending(performance.stage, performance.scene)])
    if screen.json:
        screen.data(result.model_dump_json(indent=2))
    if performance.keys is not None:
        performance.keys.forget()
        _say(screen, ["", *words.until_enter(outcome, performance.page)])
        await performance.keys.wait(*ENTER)
    return 0 if result.status == Status.DELIVERED and outcome.whole else 1


def _say(screen: Screen, lines: Iterable[str]) -> None:
    """The story is said besides: with --json the answer is the result alone."""
    for line in lines:
        screen.say(line)


class Going:
    """Answers for the visitor what the kills make Perdure ask: whether a turn that has seen three workers die goes on,
    and for more money, because a reply that was cut off counts at its upper bound. The kills were asked for."""

    def __init__(self, performance: Performance) -> None:
        self._performance, self._told = performance, ""
        self._answer: asyncio.Task[None] | None = None

    def on(self, described: Described) -> Described:
        asked = described.asked
        if asked is not None and asked.gate in words.ASKED_BY_KILLS:
            described = replace(described, asked=None)  # nobody else is asked: K at a question would be no kill
            if self._answer is None or self._answer.done():
                if asked.key != self._told:
                    unpriced = asked.limit == Limit.PRICE
                    self._performance.screen.say(words.UNPRICED if unpriced else words.ASKED_BY_KILLS[asked.gate])
                self._told = asked.key
                self._answer = asyncio.create_task(self._go_on(asked))
        return self._performance.killer.saw(described)

    async def _go_on(self, asked: Asked) -> None:
        with contextlib.suppress(PerdureError):  # counted meanwhile, or asked again at the next look
            if asked.limit == Limit.PRICE:
                await self._performance.delivery.approve(asked.of, note="nothing is paid", by="demo")
            elif asked.gate is Gate.BUDGET:
                await self._performance.delivery.add_budget(1, id=asked.key, by="demo")
            else:
                await self._performance.delivery.approve(asked.of, note="the kills were asked for", by="demo")


async def _watched(performance: Performance, watcher: Watcher) -> DeliveryResult:
    """The result; raises when there can be none, because no worker can start or their supervisor is gone."""
    if performance.keys is not None:
        performance.keys.on["k"] = lambda: performance.killer.strike("killed by you")
    watching = asyncio.create_task(watcher.watch())
    gone = asyncio.create_task(performance.supervisor.wait())
    try:
        await asyncio.wait({watching, gone, performance.killing}, return_when=asyncio.FIRST_COMPLETED)
        if performance.killing.done():
            performance.killing.result()
        if not watching.done():
            said = last_lines(Places(performance.stage.home).worker_log, lines=3)
            raise PerdureError(f"the worker's supervisor ended: {said}")
        result = watching.result()
        assert result is not None, "watched to the end"
        return result
    finally:
        if performance.keys is not None:
            performance.keys.on.clear()
        for task in (watching, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
