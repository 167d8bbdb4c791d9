"""Up, down, and what `deliver` needs running: server and supervised worker together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta

from perdure import secrets
from perdure.adapters.system.files import held, try_lock
from perdure.adapters.system.home import Home
from perdure.local import Say
from perdure.local.access import check_same, check_same_forge
from perdure.local.checks import check_home
from perdure.local.connect import configured, connect
from perdure.local.page import page_told
from perdure.local.places import Places, SupervisorRecord, read_supervisor, worker_environment
from perdure.local.processes import last_lines, released, rotate, signal_holder, start_detached
from perdure.local.server import ensure_server, stop_server
from perdure.local.supervisor import Supervisor
from perdure.models import limits
from perdure.models.errors import PerdureError

WORKER_IDLE_EXIT = timedelta(minutes=15)
"""A worker that `deliver` started by itself ends after this long without work."""


_POLL_S = 0.05


async def up(home: Home, detach: bool, say: Say, *, command: Sequence[str] | None = None) -> None:
    """Server and supervised worker of a home, in the foreground until Ctrl-C ends both, or detached.

    What runs already is left alone and said. With TEMPORAL_* configured the server is that one, and only the worker
    is ours. `command` is the worker's, by default this installation's worker.py.
    """
    await _all_ended(home, say)
    await _server_told(home, say)
    running = read_supervisor(home)
    if running is not None:
        signal_holder(running.pid, Places(home).supervisor_lock, signal.SIGUSR1)
        say(f"the worker runs already{running.pid_told} and will stay; perdure down ends it")
        await _page_told(home, command, say)
    elif detach:
        started = await _start_supervisor(home, None, command)
        say(f"worker started{started.pid_told}; perdure down ends it and the server")
        await _page_told(home, command, say)
    else:
        say("Ctrl-C ends worker and server")
        say = _while_read(say)
        telling = asyncio.create_task(_page_told(home, command, say))
        await Supervisor(home, command, idle_exit=None, say=say).run()
        telling.cancel()
        with _nothing_starts(Places(home)):
            if await stop_server(home):
                say("Temporal ended")


async def _page_told(home: Home, command: Sequence[str] | None, say: Say) -> None:
    if not command:
        say(await page_told(home))


def _while_read(say: Say) -> Say:
    """As `say`, but whoever reads it may go: a terminal that was closed must not keep the server from being ended."""

    def heard(line: str) -> None:
        with contextlib.suppress(OSError):
            say(line)

    return heard


async def down(home: Home, say: Say) -> None:
    """End worker and server of a home and wait until they are gone. A worker may finish its turns first."""
    places = Places(home)
    with _nothing_starts(places):
        record = await _supervisor_record(home) if held(places.supervisor_lock) else None
        if record is not None and signal_holder(record.pid, places.supervisor_lock, signal.SIGTERM):
            say(f"ending the worker{record.pid_told}: it finishes its turns first")
            if not await released(places.supervisor_lock, limits.WORKER_DRAIN_S + limits.SERVER_STOP_S):
                raise PerdureError("the worker does not end", where=str(places.worker_log), fix=f"kill -9 {record.pid}")
        stopped = await stop_server(home)
    if record is not None or stopped:
        say("worker and server are down; deliveries go on with the next perdure up")
    else:
        say("nothing was running")


@contextlib.contextmanager
def _nothing_starts(places: Places) -> Iterator[None]:
    """Others wait (`_all_ended`) with what they want to start; of several who end all of it, one is waited for."""
    there = held(places.supervisor_lock) or held(places.server_lock)
    lock = try_lock(places.down_lock) if there else None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


async def ensure_running(home: Home, say: Say, *, command: Sequence[str] | None = None, hosted: bool = False) -> None:
    """Start what is missing for a delivery here, and say so; nothing is said of what runs already.

    The worker ends by itself after WORKER_IDLE_EXIT. With TEMPORAL_* configured nothing is started: that server's
    workers hold the keys. Raises BadInput when the worker that runs has another key than this process; or another
    token for the forge, where the delivery is for a `hosted` one.
    """
    if configured() is not None:
        return
    await _all_ended(home, say)
    await ensure_server(home, say=say)
    if held(Places(home).supervisor_lock):
        if running := read_supervisor(home):
            check_same(running.access, secrets.environment(), running.started_at.isoformat())
            if hosted:
                check_same_forge(running.forge_access, secrets.environment(), running.started_at.isoformat())
    else:
        idle = WORKER_IDLE_EXIT.total_seconds()
        started = await _start_supervisor(home, idle, command)
        say(f"worker started{started.pid_told}; it ends after {idle / 60:.0f} idle minutes")


async def _all_ended(home: Home, say: Say) -> None:
    """Wait for what is ending: a worker that finishes its turns takes no other, and `down` ends the server after it."""
    places, told = Places(home), False
    deadline = asyncio.get_running_loop().time() + limits.WORKER_DRAIN_S + limits.SERVER_STOP_S
    while held(places.down_lock) or ((running := read_supervisor(home)) is not None and running.ending):
        if not told:
            say("waiting for what is ending: the worker finishes its turns first")
            told = True
        if asyncio.get_running_loop().time() > deadline:
            raise PerdureError("the worker does not end", where=str(places.worker_log), fix="perdure down, twice")
        await asyncio.sleep(_POLL_S)


async def _server_told(home: Home, say: Say) -> None:
    if configured() is not None:
        client = await connect(home, start=False, say=say)
        check_home(home.root)
        say(f"Temporal at {client.service_client.config.target_host}")
        return
    server = await ensure_server(home, say=say)
    if not server.started:
        say(f"Temporal runs at {server.address}, Web UI {server.ui_url}")


async def _start_supervisor(home: Home, idle_exit: float | None, command: Sequence[str] | None) -> SupervisorRecord:
    """Start one detached, with the lock that it shall hold for life. Who finds it taken waits for that one.

    Were the lock its own to take, a second one that begins slowly would get it when the first was ended already.
    """
    places = Places(home)
    lock = try_lock(places.supervisor_lock)
    if lock is None:
        if (other := await _supervisor_record(home)) is None:
            raise PerdureError("a worker begins, and does not say that it is there", where=str(places.worker_log))
        return other
    log_start = rotate(places.worker_log)
    arguments = ["--idle-exit", str(idle_exit)] if idle_exit is not None else []
    alive, kept_open = os.pipe()  # ends when the supervisor does, however it ends
    try:
        with secrets.handed_over(secrets.environment()) as (env, pipe):
            await asyncio.to_thread(
                start_detached,
                # -P: `-m` would look for modules in the current directory first, and that is anybody's repository
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "perdure.local.supervisor",
                    *arguments,
                    f"--lock={lock}",
                    "--",
                    *(command or ()),
                ],
                log=places.worker_log,
                env=worker_environment(home, env),
                cwd=home.root,
                inherit=[kept_open, pipe, lock],
            )
    finally:
        os.close(kept_open)
        os.close(lock)
    try:
        record = await _supervisor_record(home, alive)
    finally:
        os.close(alive)
    if record is None:
        raise PerdureError(
            f"the worker did not start: {last_lines(places.worker_log, log_start, 1) or 'it ended without a word'}",
            where=str(places.worker_log),
            fix="perdure worker runs one in the foreground",
        )
    return record


async def _supervisor_record(home: Home, alive: int | None = None) -> SupervisorRecord | None:
    """The supervisor of a home once it says who it is; None when it does not in SERVER_START_S seconds.

    `alive` is the reading end of a pipe that ends with the supervisor we started.
    """
    deadline = asyncio.get_running_loop().time() + limits.SERVER_START_S
    while asyncio.get_running_loop().time() < deadline:
        ended = alive is not None and bool(select.select([alive], [], [], 0)[0])
        if record := read_supervisor(home):
            return record
        if ended and not held(Places(home).supervisor_lock):
            return None
        await asyncio.sleep(_POLL_S)
    return None
