"""The process of an agent with a command line of its own, over as many turns as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.adapters.agents.cli.launch import Asking, command, furnish
from perdure.adapters.agents.cli.memory import gather, holds, put_back, read_inside
from perdure.adapters.agents.cli.output import AGENT_OUTPUT_BYTES, AgentSaid, understood
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.sandbox.base import Finished
from perdure.adapters.system.removal import remove
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.buy import Books
from perdure.adapters.worker.turn.held import Held, Turn
from perdure.models.preset import Preset
from perdure.models.turn import TurnInput

if TYPE_CHECKING:
    from perdure.adapters.agents.proxied.proxy import Proxy

AGENT_LIFE_S = 7 * 86400.0
"""Of one process; each of its turns has limits of its own."""

AGENT_TURN_S = 3600.0
"""For the tools of one turn: a test suite may take half of that."""

AGENT_SILENT_S = 180.0
"""For an agent that has nothing to do but to ask its model, or to end: some try for ever to reach a model."""

AGENT_ENDS_S = 10.0
"""For an agent to end by itself after its output says that it has ended: some sessions never do."""

SESSION_WRITTEN_S = 10.0
"""For an agent to write down what it has asked with; Claude Code was seen to take 150 ms on an idle machine."""

_ERRORS_BYTES = 64 * 1024
"""Of what an agent prints as errors: its last line is shown."""

Message = dict[str, Any]

_LOOK_S, _WATCH_S = 0.05, 2.0
_HOMES, _SOCKETS = "agent-home-", "perdure-agent-"


class AgentProcess:
    """An agent in its sandbox, behind a proxy that lets one request through a turn.

    session  the id of its session, as it was given; fault: why it was ended, where it did not behave
    """

    def __init__(self, preset: Preset, held: Held, books: Books, session: str, home: Path, output: Path) -> None:
        self.preset, self.session, self.fault = preset, session, ""
        self._held, self._books, self._home, self._output = held, books, home, output
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[Finished] | None = None
        self._ended: float | None = None

    @classmethod
    async def begin(
        cls,
        session: WorkspaceSession,
        preset: Preset,
        asking: Asking,
        memory: bytes | None,
        upstream: Upstream,
        books: Books,
    ) -> AgentProcess:
        """Start it, with the session files of a checkpoint where it goes on. BadInput when it is not installed."""
        await in_thread(_clear, session.directory)
        home, held = session.directory / f"{_HOMES}{uuid.uuid4().hex[:8]}", Held(books, (asking.model, *preset.also))
        made = cls(preset, held, books, asking.session, home, session.logs / f"{home.name}.log")
        try:
            await made._begin(session, asking, memory, upstream)
        except BaseException:
            await made.stop()
            raise
        return made

    async def _begin(self, session: WorkspaceSession, asking: Asking, memory: bytes | None, upstream: Upstream) -> None:
        self._home.mkdir(parents=True)
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._stack.callback(remove, self._home)
        if memory is not None:
            await in_thread(put_back, self._home, memory)
        await in_thread(furnish, self._home, self.preset, asking)
        # The paths of sockets have to be short; a worker that is killed leaves it, and the next one finds its name.
        sockets = Path(tempfile.mkdtemp(prefix=_SOCKETS))
        named = self._home.with_suffix(".socket")
        named.write_text(str(sockets))
        self._stack.callback(named.unlink, missing_ok=True)
        self._stack.callback(remove, sockets)
        proxy = (await in_thread(_proxy))(sockets / "model", upstream, WIRES[self.preset.wire], self._held)
        await self._stack.enter_async_context(proxy)
        common = replace(session.command(), lock=session.lease.agent_lock)
        streams = await self._plugged(session, asking, sockets)
        start = command(
            common, self.preset, asking, home=self._home, socket=proxy.socket, output=self._output, streams=streams
        )
        self._running = asyncio.create_task(session.sandbox.run(replace(start, timeout_s=AGENT_LIFE_S)))

    async def _plugged(self, session: WorkspaceSession, asking: Asking, sockets: Path) -> Path | None:
        """The socket over which it is spoken to; None: it is given its prompt, and prints how that ended."""
        return None

    def permissions(self) -> dict[str, str]:
        """Those that it asked for in this process: `allowed` and `refused`, each a number; nothing where none ask."""
        return {}

    @property
    def runs(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def alive(self) -> bool:
        """It runs, and its model answers it."""
        return self.runs and self._held.over is None

    @property
    def waited(self) -> float:
        """Seconds for which the pace of its key held it back."""
        return self._books.waited

    @property
    def finished(self) -> Finished | None:
        """The end of its process; None while it lives, or where we ended it."""
        running = self._running
        return running.result() if running is not None and running.done() and not running.cancelled() else None

    async def take(self, work: TurnInput, run_id: str, on_calls: Callable[[Message], None]) -> Turn:
        """Let it take a turn, to the end of the turn's tools: it asks for the next one, or it has ended. `on_calls`
        gets the reply as it begins to carry out the calls in it.

        Where it does neither it is ended, and `fault` says why. Raises the error that all its requests get from now on.
        """
        turn = await self._held.let_through(work, run_id)
        asked = asyncio.create_task(_next_asked(self._held, turn, on_calls))
        assert self._running is not None
        try:
            while not (self._running.done() or asked.done()):
                await asyncio.wait({self._running, asked}, timeout=_WATCH_S, return_when=asyncio.FIRST_COMPLETED)
                if not (self._running.done() or asked.done()) and await self._is_over(turn):
                    await self._end()
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        if self._held.over is not None:
            raise self._held.over
        if self.runs:
            await self._written(turn)
        return turn

    async def said(self) -> AgentSaid:
        """Read what it has printed, as its preset says."""
        return await in_thread(_read, self.preset, self._output)

    async def memory(self) -> bytes:
        """The files of its session. WorkspaceLost when they are too large to be kept."""
        return await in_thread(gather, self._home, self.preset.sessions)

    def errors(self) -> str:
        """The last line that it printed as an error."""
        printed = read_inside(self._home, Path(".perdure-errors"), _ERRORS_BYTES) or b""
        return "".join(printed.decode(errors="replace").strip().splitlines()[-1:])

    async def stop(self) -> None:
        """End it with all that it started, and what was there for it."""
        await self._end()
        await self._stack.aclose()

    async def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _is_over(self, turn: Turn) -> bool:
        """True once there is nothing to wait for: it says that it has ended and lives on, or it does nothing at all."""
        now = time.monotonic()
        if self._ended is None and turn.reply is not None and (await self.said()).ended:
            self._ended = now
        if self._ended is not None:
            return now - self._ended > AGENT_ENDS_S
        if turn.asked is not None and turn.reply is None and turn.failure is None:
            return False  # the model's time is not its own
        calls = turn.reply is not None and bool(_calls(turn))
        limit = AGENT_TURN_S if calls else AGENT_SILENT_S
        if now - turn.since > limit:
            doing = "worked on the calls of one turn" if calls else "neither asked its model nor ended"
            self.fault = f"it {doing} for {limit:.0f} s"
            return True
        return False

    async def _written(self, turn: Turn) -> None:
        """Its session holds the results it asks with, or will not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SESSION_WRITTEN_S):
                while not await in_thread(holds, self._home, self.preset.sessions, _calls(turn)):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)


def _calls(turn: Turn) -> list[str]:
    content = turn.reply.message["content"] if turn.reply is not None else []
    return [block["id"] for block in content if block.get("type") == "tool_use"]


async def _next_asked(held: Held, turn: Turn, on_calls: Callable[[Message], None]) -> None:
    """Return when this turn's reply was given and the next request waits."""
    while turn.reply is None and held.over is None:
        await held.settled(turn)
        if turn.reply is None and held.over is None:
            await asyncio.sleep(_LOOK_S)  # an error: the agent asks again, or ends
    if turn.reply is not None and _calls(turn):
        on_calls(turn.reply.message)
    await held.waits()


def _clear(directory: Path) -> None:
    """Remove homes and sockets of agents whose worker was killed: the lease says that none of them lives."""
    for named in directory.glob(f"{_HOMES}*.socket"):
        sockets = Path(tempfile.gettempdir(), Path(named.read_text(errors="replace")).name)
        if sockets.name.startswith(_SOCKETS):  # after a power cut the file may be empty, or hold anything
            remove(sockets)
        named.unlink(missing_ok=True)
    for home in directory.glob(f"{_HOMES}*"):
        remove(home)


def _read(preset: Preset, output: Path) -> AgentSaid:
    with output.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - AGENT_OUTPUT_BYTES))
        return understood(preset, file.read())


def _proxy() -> type[Proxy]:
    """Loaded with the first agent: aiohttp is a tenth of a worker's start."""
    from perdure.adapters.agents.proxied.proxy import Proxy

    return Proxy
