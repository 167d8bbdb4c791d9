"""Messages of an agent, a line each: foreign lines left out and counted, everything bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.models.errors import AgentFailed

LINE_BYTES = 16 * 1024**2
"""Of one message: the result of one tool can be a whole file. asyncio's 64 KiB would end the connection."""

ALL_BYTES = 1024**3
"""Of everything an agent says in one process: what is more is a flood."""

FOREIGN_LINES = 1000
"""Lines that are no message: adapters print a few of a library's; more than that is no agent of this protocol."""

SEND_S = 60.0
"""For an agent to read what it is sent; one that reads nothing for a minute hangs."""

_STREAMS = 2
"""The agent's standard input, and then its output: in the order in which plug.py connects."""


class Lines:
    """The connection's transport. `foreign` counts lines that were no message, `first` is the first of them.

    Raises AgentFailed from `receive` for a flood, garbage, and a line that is too long; `failure` keeps it, because the
    connection tells its waiters only that it has ended.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._read = 0
        self.foreign, self.first = 0, ""
        self.failure: AgentFailed | None = None

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        try:
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()
        except TimeoutError:
            raise self._failed(f"it has read nothing for {SEND_S:g} s") from None

    async def receive(self) -> dict[str, Any] | None:
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as cut:
                if cut.partial.strip():
                    self._foreign(cut.partial)
                return None
            except asyncio.LimitOverrunError:
                raise self._failed(f"a line of more than {LINE_BYTES // 1024**2} MiB") from None
            except OSError:
                return None
            self._read += len(line)
            if self._read > ALL_BYTES:
                raise self._failed(f"it has said more than {ALL_BYTES // 1024**3} GiB")
            if (message := _message(line)) is not None:
                return message
            if line.strip():
                self._foreign(line)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def _foreign(self, line: bytes) -> None:
        self.foreign += 1
        self.first = self.first or line.decode(errors="replace").strip()[:100]
        if self.foreign > FOREIGN_LINES:
            raise self._failed(f"{FOREIGN_LINES} lines that are no message, the first: {self.first!r}")

    def _failed(self, why: str) -> AgentFailed:
        self.failure = AgentFailed(f"not the Agent Client Protocol: {why}")
        return self.failure


def _message(line: bytes) -> dict[str, Any] | None:
    """A message of the protocol, None for any other line."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    told = isinstance(found.get("method", ""), str) and isinstance(found.get("id", 0), int | str | None)
    return found if told and ("method" in found or "id" in found) else None


@dataclass(frozen=True)
class Plug:
    """The socket that `plug.py` takes inside; its end here comes once the agent has begun."""

    socket: Path
    _taken: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]

    async def lines(self, within_s: float) -> Lines:
        """Raises AgentFailed where nothing has begun within that time."""
        try:
            async with asyncio.timeout(within_s):
                return Lines(*await asyncio.shield(self._taken))
        except TimeoutError:
            raise AgentFailed(f"the agent has not begun within {within_s:g} s") from None


@asynccontextmanager
async def plug(path: Path) -> AsyncIterator[Plug]:
    """A socket, at a path of at most 107 bytes, for the two streams of the first who comes, and for nobody else: a
    shell finds nobody listening."""
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    taken: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
        asyncio.get_running_loop().create_future()
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if taken.done():
            writer.close()
            return
        streams.append((reader, writer))
        if len(streams) == _STREAMS:
            server.close()
            taken.set_result((streams[1][0], streams[0][1]))

    server = await asyncio.start_unix_server(serve, path, limit=LINE_BYTES)
    try:
        yield Plug(path, taken)
    finally:
        server.close()
        for _, writer in streams:
            writer.close()
        if not taken.done():
            taken.cancel()
