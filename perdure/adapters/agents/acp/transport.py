"""The transport of the Agent Client Protocol: one JSON message a line, over a Unix socket; all sizes are bounded.
`perdure.adapters.worker.turn.acp_agent` opens the socket, `session` speaks over it."""

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
from perdure.text import shorten

LINE_BYTES = 16 * 1024**2
"""The longest message: the result of one tool can be a whole file. asyncio's limit of 64 KiB would end the
connection."""

ALL_BYTES = 1024**3
"""The most that an agent may send in one process: what is more is a flood."""

FOREIGN_LINES = 1000
"""The most lines that are no message: adapters print a few lines of some library; more than that is no agent of this
protocol."""

SEND_S = 60.0
"""The time an agent has to read what it is sent; one that reads nothing for a minute hangs."""

_STREAMS = 2
"""Connections that are accepted: the agent's standard input, then its output, in the order in which
stdio_over_socket.py connects."""


class AcpTransport:
    """The transport that a connection of the ACP library uses: messages as JSON, one a line.

    foreign_count       lines so far that were no message; first_foreign_line: the first of them
    failure             the AgentFailed that was raised for a flood, garbage or a line that is too long; it is kept,
                        because the connection tells its waiters only that it has ended
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._received_bytes = 0
        self.foreign_count, self.first_foreign_line = 0, ""
        self.failure: AgentFailed | None = None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message to the agent and wait until it is sent. Raises AgentFailed, kept as `failure`, when the agent
        does not read for SEND_S."""
        self._writer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        try:
            async with asyncio.timeout(SEND_S):
                await self._writer.drain()
        except TimeoutError:
            raise self._record_failure(f"it has read nothing for {SEND_S:g} s") from None

    async def receive(self) -> dict[str, Any] | None:
        """Read the agent's next message and return it; None when the agent has closed its output or the connection has
        failed.

        Lines that are no message are left out and counted. Raises AgentFailed, kept as `failure`, for a line over
        LINE_BYTES, more than ALL_BYTES in all, and more than FOREIGN_LINES foreign lines.
        """
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as cut:
                if cut.partial.strip():
                    self._count_foreign_line(cut.partial)
                return None
            except asyncio.LimitOverrunError:
                raise self._record_failure(f"a line of more than {LINE_BYTES // 1024**2} MiB") from None
            except OSError:
                return None
            self._received_bytes += len(line)
            if self._received_bytes > ALL_BYTES:
                raise self._record_failure(f"it has said more than {ALL_BYTES // 1024**3} GiB")
            if (message := _parse_message(line)) is not None:
                return message
            if line.strip():
                self._count_foreign_line(line)

    async def close(self) -> None:
        """Close the connection to the agent's input, and wait up to a second until it is closed; errors are ignored."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def _count_foreign_line(self, line: bytes) -> None:
        """Count a line that is no message, and keep the first 100 characters of the first one. Raises AgentFailed when
        there are more than FOREIGN_LINES."""
        self.foreign_count += 1
        self.first_foreign_line = self.first_foreign_line or shorten(line.decode(errors="replace").strip(), 100)
        if self.foreign_count > FOREIGN_LINES:
            raise self._record_failure(
                f"{FOREIGN_LINES} lines that are no message, the first: {self.first_foreign_line!r}"
            )

    def _record_failure(self, reason: str) -> AgentFailed:
        """Return an AgentFailed with this reason, after keeping it as `failure`."""
        self.failure = AgentFailed(f"not the Agent Client Protocol: {reason}")
        return self.failure


def _parse_message(line: bytes) -> dict[str, Any] | None:
    """Parse a line as a JSON-RPC message: an object with `method` or `id`. Returns None for any other line."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    has_valid_fields = isinstance(message.get("method", ""), str) and isinstance(message.get("id", 0), int | str | None)
    return message if has_valid_fields and ("method" in message or "id" in message) else None


@dataclass(frozen=True)
class AgentSocket:
    """A listening socket to which stdio_over_socket.py connects from inside the sandbox; the streams are there once the
    agent has begun."""

    socket: Path
    _streams: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]

    async def wait_for_transport(self, within_s: float) -> AcpTransport:
        """Wait until the agent has connected, and return the transport over its streams. Raises AgentFailed when that
        takes longer than `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s):
                return AcpTransport(*await asyncio.shield(self._streams))
        except TimeoutError:
            raise AgentFailed(f"the agent has not begun within {within_s:g} s") from None


@asynccontextmanager
async def open_agent_socket(path: Path) -> AsyncIterator[AgentSocket]:
    """Listen on a Unix socket at `path` (at most 107 bytes) while the block runs, and yield it; then close it and its
    streams.

    Only the first two connections are accepted, which are the agent's standard input and output. After them the socket
    is closed, so that a shell of the agent finds nobody listening.
    """
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    streams_ready: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
        asyncio.get_running_loop().create_future()
    )

    async def accept_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection; with the second one stop listening and hand over both streams."""
        if streams_ready.done():
            writer.close()
            return
        streams.append((reader, writer))
        if len(streams) == _STREAMS:
            server.close()
            streams_ready.set_result((streams[1][0], streams[0][1]))

    server = await asyncio.start_unix_server(accept_stream, path, limit=LINE_BYTES)
    try:
        yield AgentSocket(path, streams_ready)
    finally:
        server.close()
        for _, writer in streams:
            writer.close()
        if not streams_ready.done():
            streams_ready.cancel()
