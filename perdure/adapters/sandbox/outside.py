"""The one way out of setup's network namespace: an HTTP proxy on a Unix socket, which chooses whom it connects to.

It resolves names itself and connects to the addresses it has judged, so that a name which means something else a moment
later leads nowhere. It carries CONNECT and plain http, and knows no secret of ours but the owner's own proxy's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.adapters.sandbox.reach import LOCAL, Reach, ReachRefused

SETUP_CONNECT_S = 30.0
"""For a host outside to take a connection, and for a program in setup to say where it wants to go."""

SETUP_CONNECTIONS = 128
"""At once, through the proxy of one setup: each takes two of the worker's descriptors. By its defaults uv opens up to
50, npm 15."""

SETUP_HEAD_BYTES = 64 * 1024
"""Of a request to setup's proxy, and of what it carries at once."""


PORT = 3128
"""Of the proxy inside the namespace, where nothing else listens."""

_CONNECT = re.compile(rb"CONNECT (\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5}) HTTP/1\.[01]")
_PLAIN = re.compile(rb"([A-Z]{1,10}) http://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d{1,5}))?(/[!-~]*)? HTTP/1\.[01]")
_PER_HOP = (b"connection:", b"proxy-", b"keep-alive:", b"upgrade:")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def proxied(reach: Reach) -> dict[str, str]:
    """The variables by which installers find the proxy.

    What setup starts itself it reaches without: unless an index on this machine has that name, which is outside.
    """
    direct = () if any(name.rpartition(":")[0] in LOCAL for name in reach.trusted) else LOCAL
    return {
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(direct)),
        "JAVA_TOOL_OPTIONS": " ".join(f"-D{name}={value}" for name, value in _java(direct)),
    }


def _java(direct: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Properties for Maven, Gradle and others, which do not look at the variables; Maven 3.9 needs the last one."""
    for scheme in ("http", "https"):
        yield from ((f"{scheme}.proxyHost", "127.0.0.1"), (f"{scheme}.proxyPort", PORT))
    yield from (("http.nonProxyHosts", "|".join(direct)), ("aether.connector.http.useSystemProperties", "true"))


@asynccontextmanager
async def way_out(reach: Reach, owner: Mapping[str, str], tell: Callable[[str], None]) -> AsyncIterator[Path]:
    """The socket's path, while the proxy runs. `owner`: variables that name a proxy of the owner's own; every
    connection goes through that one then. `tell` gets a line for each host that was refused, once."""
    told: set[str] = set()
    open_now: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            if len(open_now) > SETUP_CONNECTIONS:
                raise ReachRefused(f"setup's proxy carries {SETUP_CONNECTIONS} connections at once, and no more")
            await _carry(reader, writer, reach, owner)
        except ReachRefused as refused:
            if (line := str(refused)) not in told:
                told.add(line)
                tell(line)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
            writer.write(line.encode(errors="replace") + b"\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            open_now.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    with tempfile.TemporaryDirectory(prefix="perdure-") as directory:  # a socket's path has at most 107 bytes
        path = Path(directory, "out")
        server = await asyncio.start_unix_server(serve, path, limit=SETUP_HEAD_BYTES)
        os.chmod(path, 0o600)
        try:
            yield path
        finally:
            server.close()
            for task in open_now:  # a host outside that does not close would keep them open
                task.cancel()
            await asyncio.gather(*open_now, return_exceptions=True)


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reach: Reach, owner: Mapping[str, str]
) -> None:
    async with asyncio.timeout(SETUP_CONNECT_S):
        first, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    if found := _CONNECT.fullmatch(first):
        host, port = found[1].decode(), int(found[2])
        outward = await _connected(host, port, reach, owner.get("https_proxy") or owner.get("HTTPS_PROXY") or "")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    elif found := _PLAIN.fullmatch(first):
        host, port = found[2].decode(), int(found[3] or 80)
        outward = await _connected(host, port, reach, owner.get("http_proxy") or "")
        kept = [line for line in headers if not line.lower().startswith(_PER_HOP)]
        lines = [b"%b %b HTTP/1.1" % (found[1], found[4] or b"/"), *kept, b"Connection: close", b"", b""]
        outward[1].write(b"\r\n".join(lines))
    else:
        raise ReachRefused("setup's proxy carries https and http, and nothing else")
    inward, sending = outward
    forth = asyncio.create_task(_copy(reader, sending))
    try:
        await _copy(inward, writer)
    finally:
        forth.cancel()
        with contextlib.suppress(OSError):
            sending.close()


async def _connected(host: str, port: int, reach: Reach, through: str) -> Streams:
    """A connection to a host that may be reached, directly or through the owner's proxy."""
    try:
        if not 0 < port < 1 << 16:
            raise ReachRefused("it has no such port")
        addresses = await reach.addresses(host, port, needed=not through)
    except ReachRefused as refused:
        raise ReachRefused(f"setup cannot reach {host}:{port}: {refused}") from None
    if through:
        return await _through(through, host, port)
    failed: OSError | TimeoutError = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(SETUP_CONNECT_S):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            failed = error
    raise ReachRefused(f"{host}:{port} does not answer: {failed or 'it took too long'}")


async def _through(proxy: str, host: str, port: int) -> Streams:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise ReachRefused("the proxy in this machine's environment is not an http:// one")
    async with asyncio.timeout(SETUP_CONNECT_S):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        login = b""
        if parts.username:
            said = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            login = b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(said)
        there = f"{host}:{port}".encode()
        writer.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (there, there, login))
        answer = await reader.readuntil(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 2\d\d", answer):
        writer.close()
        raise ReachRefused(f"the proxy in this machine's environment refuses {host}:{port}")
    return reader, writer


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(SETUP_HEAD_BYTES):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
