"""The process of an agent with a command line of its own, over as many turns as it lives: started in the sandbox behind
a proxy, let take a turn, watched, and ended. What a turn makes of it is in `cli_agent`."""

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
from typing import TYPE_CHECKING

from perdure.adapters.agents.cli_process import (
    AGENT_OUTPUT_BYTES,
    AgentClaim,
    AgentStartRequest,
    has_all_results,
    make_agent_command,
    pack_session_files,
    parse_output,
    read_home_file,
    unpack_session_files,
    write_home_files,
)
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.sandbox.base import SandboxResult
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.paid_replies import PaidReplies
from perdure.adapters.worker.turn.request_gate import GatedTurn, RequestGate
from perdure.models.base import Message
from perdure.models.config.preset import Preset
from perdure.models.delivery.turn import TurnInput

if TYPE_CHECKING:
    from perdure.adapters.agents.proxied.proxy import Proxy

AGENT_LIFE_S = 7 * 86400.0
"""The limit of one agent process; each of its turns has limits of its own."""

AGENT_TURN_S = 3600.0
"""The limit of the tools of one turn: a test suite may take half of that."""

AGENT_SILENT_S = 180.0
"""The limit of an agent that has nothing to do but to ask its model, or to end: some try for ever to reach a model."""

AGENT_ENDS_S = 10.0
"""The time an agent has to end by itself after its output says that it has ended: some sessions never do."""

SESSION_WRITTEN_S = 10.0
"""The time an agent has to write down what it has asked with; Claude Code was seen to take 150 ms on an idle
machine."""

_ERRORS_BYTES = 64 * 1024
"""Bytes that are read of what an agent prints as errors: its last line is shown."""

_LOOK_S, _WATCH_S = 0.05, 2.0
_HOMES, _SOCKETS = "agent-home-", "perdure-agent-"


class AgentProcess:
    """An agent in its sandbox, behind a proxy that lets one request through a turn.

    session  the id of its session, as it was given; fault: why it was ended, where it did not behave
    """

    def __init__(
        self, preset: Preset, gate: RequestGate, paid_replies: PaidReplies, session: str, home: Path, output: Path
    ) -> None:
        self.preset, self.session, self.fault = preset, session, ""
        self._gate, self._paid_replies, self._home, self._output = gate, paid_replies, home, output
        self._stack = AsyncExitStack()
        self._run_task: asyncio.Task[SandboxResult] | None = None
        self._ended_at: float | None = None

    @classmethod
    async def start(
        cls,
        session: WorkspaceSession,
        preset: Preset,
        start_request: AgentStartRequest,
        memory: bytes | None,
        upstream: Upstream,
        paid_replies: PaidReplies,
    ) -> AgentProcess:
        """Start an agent in the sandbox, with a home, a proxy and a gate of its own, and return its process. `memory`:
        the session files of the checkpoint that it goes on from; None: a new session.

        Homes and sockets that agents of killed workers have left of this delivery are removed first. Raises BadInput
        when the agent is not installed, or its socket cannot be made; nothing is left behind then.
        """
        await in_thread(_remove_leftovers, session.directory)
        home, gate = (
            session.directory / f"{_HOMES}{uuid.uuid4().hex[:8]}",
            RequestGate(paid_replies, (start_request.model, *preset.also)),
        )
        process = cls(preset, gate, paid_replies, start_request.session, home, session.logs / f"{home.name}.log")
        try:
            await process._start_in_sandbox(session, start_request, memory, upstream)
        except BaseException:
            await process.stop()
            raise
        return process

    async def _start_in_sandbox(
        self, session: WorkspaceSession, start_request: AgentStartRequest, memory: bytes | None, upstream: Upstream
    ) -> None:
        """Make the agent's home with its session files, the proxy's socket and its directory, and start the agent's
        command in the sandbox as a task. All of it is removed when the process is stopped. Raises BadInput when the
        agent is not installed, or the socket cannot be made."""
        self._home.mkdir(parents=True)
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._stack.callback(remove_path, self._home)
        if memory is not None:
            await in_thread(unpack_session_files, self._home, memory)
        await in_thread(write_home_files, self._home, self.preset, start_request)
        # The paths of sockets have to be short; a worker that is killed leaves it, and the next one finds its name.
        sockets = Path(tempfile.mkdtemp(prefix=_SOCKETS))
        socket_note = self._home.with_suffix(".socket")
        socket_note.write_text(str(sockets))
        self._stack.callback(socket_note.unlink, missing_ok=True)
        self._stack.callback(remove_path, sockets)
        proxy = (await in_thread(_load_proxy_class))(sockets / "model", upstream, WIRES[self.preset.wire], self._gate)
        await self._stack.enter_async_context(proxy)
        base_command = replace(session.base_command(), lock=session.lease.agent_lock)
        streams = await self._open_connection(session, start_request, sockets)
        agent_command = make_agent_command(
            base_command,
            self.preset,
            start_request,
            home=self._home,
            socket=proxy.socket,
            output=self._output,
            streams=streams,
        )
        self._run_task = asyncio.create_task(
            session.sandbox.run_command(replace(agent_command, timeout_s=AGENT_LIFE_S))
        )

    async def _open_connection(
        self, session: WorkspaceSession, start_request: AgentStartRequest, sockets: Path
    ) -> Path | None:
        """Return the socket over which the agent is spoken to. None, as here: it is given its prompt, and prints how
        that ended."""
        return None

    def permissions(self) -> dict[str, str]:
        """Return how many permissions it asked for in this process, as texts under `allowed` and `refused`; empty where
        none are asked for."""
        return {}

    @property
    def is_running(self) -> bool:
        return self._run_task is not None and not self._run_task.done()

    @property
    def alive(self) -> bool:
        """Return whether it runs, and its gate was not ended with an error for all further requests."""
        return self.is_running and self._gate.end_error is None

    @property
    def waited_s(self) -> float:
        """Return the seconds for which the pace of its key held it back."""
        return self._paid_replies.waited_s

    @property
    def process_end(self) -> SandboxResult | None:
        """Return how its process ended; None before its start, while it lives, and where its task was cancelled, as
        `stop` does. Raises the error with which running it has failed."""
        task = self._run_task
        return task.result() if task is not None and task.done() and not task.cancelled() else None

    async def run_turn(self, work: TurnInput, run_id: str, on_calls: Callable[[Message], None]) -> GatedTurn:
        """Let the running agent take a turn, to the end of the turn's tools: it makes the next turn's request, or it
        has ended. Return the turn, once its results are in the session's files. `on_calls` gets a reply with calls as
        they begin.

        Kill an agent that does neither in time, and say why in this process's `fault`; kill one that lives on after it
        has said that it ended, without a fault. Raises the error that the gate answers all further requests with, such
        as BudgetReached.
        """
        turn = await self._gate.admit_turn(work, run_id)
        next_request = asyncio.create_task(_wait_for_next_request(self._gate, turn, on_calls))
        assert self._run_task is not None
        try:
            while not (self._run_task.done() or next_request.done()):
                await asyncio.wait(
                    {self._run_task, next_request}, timeout=_WATCH_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not (self._run_task.done() or next_request.done()) and await self._must_be_ended(turn):
                    await self._end_process()
        finally:
            next_request.cancel()
            await asyncio.gather(next_request, return_exceptions=True)
        if self._gate.end_error is not None:
            raise self._gate.end_error
        if self.is_running:
            await self._wait_until_saved(turn)
        return turn

    async def read_claim(self) -> AgentClaim:
        """Read what the agent says about its end in what it has printed, as its preset tells."""
        return await in_thread(_read_output, self.preset, self._output)

    async def pack_memory(self) -> bytes:
        """Return the files of its session as one archive. Raises WorkspaceLost when they are too large to be kept."""
        return await in_thread(pack_session_files, self._home, self.preset.sessions)

    def last_error_line(self) -> str:
        """Return the last line that it printed as an error; empty: none."""
        printed = read_home_file(self._home, Path(".perdure-errors"), _ERRORS_BYTES) or b""
        return "".join(printed.decode(errors="replace").strip().splitlines()[-1:])

    async def stop(self) -> None:
        """End the agent with all that it started, and remove its home, proxy and sockets."""
        await self._end_process()
        await self._stack.aclose()

    async def _end_process(self) -> None:
        """Cancel the task of the sandbox, which kills the process, and wait for its end."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.gather(self._run_task, return_exceptions=True)

    async def _must_be_ended(self, turn: GatedTurn) -> bool:
        """Return whether there is nothing to wait for any more: the agent says that it has ended and lives on for
        AGENT_ENDS_S, or it neither makes a request nor ends within its limit, which `fault` then says. False while it
        waits for its model. The time at which it first said that it has ended is kept."""
        now = time.monotonic()
        if self._ended_at is None and turn.reply is not None and (await self.read_claim()).ended:
            self._ended_at = now
        if self._ended_at is not None:
            return now - self._ended_at > AGENT_ENDS_S
        if turn.request is not None and turn.reply is None and turn.failure is None:
            return False  # the model's time is not its own
        calls = turn.reply is not None and bool(_call_ids(turn))
        limit = AGENT_TURN_S if calls else AGENT_SILENT_S
        if now - turn.active_at > limit:
            behaviour = "worked on the calls of one turn" if calls else "neither asked its model nor ended"
            self.fault = f"it {behaviour} for {limit:.0f} s"
            return True
        return False

    async def _wait_until_saved(self, turn: GatedTurn) -> None:
        """Wait until its session files hold the results of the turn's calls, with which it makes its next request;
        after SESSION_WRITTEN_S return without them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SESSION_WRITTEN_S):
                while not await in_thread(has_all_results, self._home, self.preset.sessions, _call_ids(turn)):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)


def _call_ids(turn: GatedTurn) -> list[str]:
    """Return the ids of the tool calls in a turn's reply."""
    content = turn.reply.message["content"] if turn.reply is not None else []
    return [block["id"] for block in content if block.get("type") == "tool_use"]


async def _wait_for_next_request(gate: RequestGate, turn: GatedTurn, on_calls: Callable[[Message], None]) -> None:
    """Wait until this turn's reply was given and the next request waits. `on_calls` gets a reply with tool calls."""
    while turn.reply is None and gate.end_error is None:
        await gate.wait_for_answer(turn)
        if turn.reply is None and gate.end_error is None:
            await asyncio.sleep(_LOOK_S)  # an error: the agent asks again, or ends
    if turn.reply is not None and _call_ids(turn):
        on_calls(turn.reply.message)
    await gate.wait_for_request()


def _remove_leftovers(directory: Path) -> None:
    """Remove homes and sockets of agents whose worker was killed. Only for the holder of the lease, which proves that
    none of them lives."""
    for socket_note in directory.glob(f"{_HOMES}*.socket"):
        sockets = Path(tempfile.gettempdir(), Path(socket_note.read_text(errors="replace")).name)
        if sockets.name.startswith(_SOCKETS):  # after a power cut the file may be empty, or hold anything
            remove_path(sockets)
        socket_note.unlink(missing_ok=True)
    for home in directory.glob(f"{_HOMES}*"):
        remove_path(home)


def _read_output(preset: Preset, output: Path) -> AgentClaim:
    """Read the end of an agent's output, at most AGENT_OUTPUT_BYTES, and return what it says by its preset."""
    with output.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - AGENT_OUTPUT_BYTES))
        return parse_output(preset, file.read())


def _load_proxy_class() -> type[Proxy]:
    """Import and return the proxy's class. It is loaded with the first agent: aiohttp is a tenth of a worker's
    start."""
    from perdure.adapters.agents.proxied.proxy import Proxy

    return Proxy
