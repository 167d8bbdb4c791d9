"""`git http-backend` as a CGI program that ends with its client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from aiohttp import web

_CHUNK = 64 * 1024
_LOOK_S = 0.1
_SETTINGS = (
    "http.receivepack=true",
    "safe.directory=*",
    "gc.auto=0",  # it would go on in the background after the push
    "receive.autogc=false",
    "maintenance.auto=false",
    "core.fsync=none",
    "uploadpack.allowFilter=true",
    "uploadpack.allowAnySHA1InWant=true",
)


@contextlib.asynccontextmanager
async def backend(request: web.Request, repository: Path, rest: str, user: str) -> AsyncIterator[Process]:
    """A running `git http-backend` that is being fed the request; it and its children have ended afterwards."""
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    process = await asyncio.create_subprocess_exec(
        *("git", *settings, "http-backend"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=_environment(request, repository, rest, user),
        start_new_session=True,  # to be killed with its upload-pack and its hooks
    )
    tasks = [asyncio.create_task(_feed(request, process)), asyncio.create_task(_end_with_client(request, process))]
    try:
        yield process
        await process.wait()
    finally:
        for task in tasks:
            task.cancel()
        _kill(process)
        await asyncio.gather(*tasks, return_exceptions=True)
        await process.wait()


def _environment(request: web.Request, repository: Path, rest: str, user: str) -> dict[str, str]:
    """CGI's variables. Without CONTENT_LENGTH git reads to the end: the header counts what was still packed."""
    protocol = request.headers.get("Git-Protocol")
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROJECT_ROOT": str(repository.parent),
        "PATH_INFO": f"/{repository.name}/{rest}",
        "QUERY_STRING": request.query_string,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "REMOTE_ADDR": request.remote or "",
        **({"REMOTE_USER": user} if user else {}),
        **({"GIT_PROTOCOL": protocol} if protocol else {}),
    }


async def _feed(request: web.Request, process: Process) -> None:
    """The request's body to git's stdin; what git no longer reads is read all the same, for the client sends it."""
    stdin = process.stdin
    assert stdin is not None
    try:
        async for chunk in request.content.iter_chunked(_CHUNK):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(chunk)
                await stdin.drain()
    except (OSError, web.HTTPException):
        # The client went away in the middle: a push without its end must not look like one with it.
        _kill(process)
    finally:
        stdin.close()


async def _end_with_client(request: web.Request, process: Process) -> None:
    """End git when nobody waits for its answer any more: a hook may think for ever."""
    while request.transport is not None:
        await asyncio.sleep(_LOOK_S)
    _kill(process)


def _kill(process: Process) -> None:
    """End git, with what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def head(process: Process) -> tuple[int, Mapping[str, str]]:
    """CGI's header: the status and the headers to pass on. 500 when git ended without one."""
    status, headers = 200, {}
    try:
        written = await out(process).readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return 500, {}
    for line in written.decode().splitlines():
        name, _, value = line.partition(": ")
        if name == "Status":
            status = int(value.split()[0])
        elif name:
            headers[name] = value
    return status, headers


def out(process: Process) -> asyncio.StreamReader:
    """What git answers, after the header."""
    assert process.stdout is not None
    return process.stdout
