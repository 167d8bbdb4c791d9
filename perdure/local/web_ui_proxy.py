"""Script that proxies the Web UI, and refuses every request that another site's page could have sent.

The Web UI asks nobody who they are and answers to any host name: a page whose name was made to resolve to 127.0.0.1
(DNS rebinding) could read and decide everything. It therefore listens where no page can find it, at a random address of
127.0.0.0/8 and a random port; this proxy passes on only requests to this machine's own names, from its own pages.

Standard library only and small: it runs isolated (`-I -S`), started by `perdure.local.server`, as long as the server
does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import socket
import sys
import threading

_HEAD_BYTES = 64 * 1024
_HEAD_S = 30  # a browser sends a head at once
_HOST = re.compile(rb"(?i)(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_REQUEST = re.compile(rb"[A-Z]{1,10} /[!-~\x80-\xff]* HTTP/1\.[01]")
_PER_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"upgrade"}


def head_to_forward(head: bytes) -> bytes | None:
    """Return a request's head as it is sent on to the Web UI, None for a request to refuse.

    Refused are malformed heads, any Host but a name of this machine, and an Origin other than that host. Headers about
    the connection are dropped and `Connection: close` is added: each connection carries one request.
    """
    first, *lines = head.split(b"\r\n")
    matches = [_HEADER.fullmatch(line) for line in lines]
    if not _REQUEST.fullmatch(first) or not all(matches):
        return None
    headers = [(match[1].lower(), match[2], match[0]) for match in matches if match]
    hosts = [value for name, value, _ in headers if name == b"host"]
    origins = [value for name, value, _ in headers if name == b"origin"]
    if (
        len(hosts) != 1
        or not _HOST.fullmatch(hosts[0])
        or any(match.lower() != b"http://" + hosts[0].lower() for match in origins)
    ):
        return None
    forwarded = [line for name, _, line in headers if name not in _PER_HOP]
    return b"\r\n".join([first, *forwarded, b"Connection: close", b"", b""])


async def _proxy_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Read one request, pass it to the Web UI at `host`:`port` and copy the answer back; then close the connection.

    Answers 403 to a request that is refused and 503 when the Web UI does not listen. Connections that break, or send no
    head within _HEAD_S seconds, are closed without an answer.
    """
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        forwarded = head_to_forward(head[:-4])
        if forwarded is None:
            writer.write(
                _plain_response(b"403 Forbidden", b"The Web UI answers pages of its own, at a name of this machine.")
            )
            return
        try:
            ui_reader, ui_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.write(_plain_response(b"503 Service Unavailable", b"The Web UI does not answer yet."))
            return
        ui_writer.write(forwarded)
        upload = asyncio.create_task(_copy_stream(reader, ui_writer))
        try:
            await _copy_stream(ui_reader, writer)
        finally:
            upload.cancel()
            ui_writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def _copy_stream(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes from `source` to `target` until `source` ends."""
    while data := await source.read(_HEAD_BYTES):
        target.write(data)
        await target.drain()


def _plain_response(status: bytes, text: bytes) -> bytes:
    """Return a complete HTTP response of `status` whose body is `text` as plain text."""
    length = str(len(text) + 1).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %b\r\nConnection: close\r\n\r\n%b\n" % (
        status, length, text,
    )  # fmt: skip


def _exit_when_unlocked(lock: str) -> None:
    """Wait until the server's flock `lock` is released, which its end does in any case, and exit this process."""
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os._exit(0)


async def _serve_until_unlocked(listener: int, host: str, port: int, lock: str) -> None:
    """Handle connections on the socket `listener` for ever; the process exits when the server's `lock` is free."""
    threading.Thread(target=_exit_when_unlocked, args=(lock,), daemon=True).start()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _proxy_connection(reader, writer, host, port)

    server = await asyncio.start_server(accept, sock=socket.socket(fileno=listener), limit=_HEAD_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve_until_unlocked(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
