"""Started as a script: stands before the Web UI, and lets nothing in that a page of somebody else's could send.

The Web UI asks nobody who they are and answers whatever name it is called by: a page whose name was made to mean
127.0.0.1 (DNS rebinding) could read and decide everything. It listens where no page can find it, an address of
127.0.0.0/8 and a port by chance; here only requests for this machine's own names, from its own pages, are passed on.

Standard library only and small: it runs isolated (`-I -S`) for as long as the server does.
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


def allowed(head: bytes) -> bytes | None:
    """Return a request's head as it is sent on, None for one to refuse. Each connection carries one request."""
    first, *lines = head.split(b"\r\n")
    found = [_HEADER.fullmatch(line) for line in lines]
    if not _REQUEST.fullmatch(first) or not all(found):
        return None
    headers = [(one[1].lower(), one[2], one[0]) for one in found if one]
    hosts = [value for name, value, _ in headers if name == b"host"]
    origins = [value for name, value, _ in headers if name == b"origin"]
    if (
        len(hosts) != 1
        or not _HOST.fullmatch(hosts[0])
        or any(one.lower() != b"http://" + hosts[0].lower() for one in origins)
    ):
        return None
    kept = [line for name, _, line in headers if name not in _PER_HOP]
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        passed = allowed(head[:-4])
        if passed is None:
            writer.write(_answer(b"403 Forbidden", b"The Web UI answers pages of its own, at a name of this machine."))
            return
        try:
            inward, outward = await asyncio.open_connection(host, port)
        except OSError:
            writer.write(_answer(b"503 Service Unavailable", b"The Web UI does not answer yet."))
            return
        outward.write(passed)
        sending = asyncio.create_task(_copy(reader, outward))
        try:
            await _copy(inward, writer)
        finally:
            sending.cancel()
            outward.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_HEAD_BYTES):
        target.write(data)
        await target.drain()


def _answer(status: bytes, words: bytes) -> bytes:
    length = str(len(words) + 1).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %b\r\nConnection: close\r\n\r\n%b\n" % (
        status, length, words,
    )  # fmt: skip


def _end_with(lock: str) -> None:
    """With the server, whose flock it is: however that ends, the kernel lets go of it."""
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os._exit(0)


async def _main(listener: int, host: str, port: int, lock: str) -> None:
    threading.Thread(target=_end_with, args=(lock,), daemon=True).start()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _serve(reader, writer, host, port)

    server = await asyncio.start_server(serve, sock=socket.socket(fileno=listener), limit=_HEAD_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
