"""Start and end of server and supervised worker together, for `perdure up` and `perdure down`, and the start of both by
commands that submit work."""

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
from perdure.adapters.system.files import is_locked, try_lock
from perdure.adapters.system.home import Home
from perdure.local import Say
from perdure.local.access import check_same_forge_access, check_same_model_access
from perdure.local.checks import check_home, start_failure
from perdure.local.connect import connect_to_temporal, external_server_config
from perdure.local.page import wait_for_page_status
from perdure.local.places import Places, SupervisorRecord, read_running_supervisor, worker_environment
from perdure.local.processes import last_lines, rotate_log, signal_lock_holder, start_detached, wait_until_released
from perdure.local.server import ensure_server, stop_server
from perdure.local.supervisor import Supervisor
from perdure.models import limits
from perdure.models.errors import PerdureError

WORKER_IDLE_EXIT = timedelta(minutes=15)
"""Time without work after which a worker ends that `deliver` started by itself."""


_POLL_S = 0.05

DOWN_NOTE_S = 5.0
"""Time between two lines that say what `down` waits for."""


async def bring_up(home: Home, detach: bool, say: Say, *, command: Sequence[str] | None = None) -> None:
    """Start server and supervised worker of a home: in the foreground until Ctrl-C ends both, or detached.

    Waits first for a `down` that is under way. A worker that runs already is kept and told to stay, and lines say what
    runs. With TEMPORAL_* configured the server is that one, and only the worker is ours. `command` is the worker's, by
    default this installation's worker.py. Raises PerdureError when server or worker cannot be started or the `down`
    does not end.
    """
    await _wait_for_shutdown(home, say)
    await _ensure_server(home, say)
    running = read_running_supervisor(home)
    if running is not None:
        signal_lock_holder(running.pid, Places(home).supervisor_lock, signal.SIGUSR1)
        say(f"the worker runs already{running.pid_suffix} and will stay; perdure down ends it")
        await _say_page_status(home, command, say)
    elif detach:
        started = await _start_supervisor(home, None, command)
        say(f"worker started{started.pid_suffix}; perdure down ends it and the server")
        await _say_page_status(home, command, say)
    else:
        say("Ctrl-C ends worker and server")
        say = _tolerate_closed_output(say)
        page_status = asyncio.create_task(_say_page_status(home, command, say))
        await Supervisor(home, command, idle_exit=None, say=say).supervise()
        page_status.cancel()
        with _block_starts(Places(home)):
            if await stop_server(home):
                say("Temporal ended")


async def _say_page_status(home: Home, command: Sequence[str] | None, say: Say) -> None:
    """Say where the page is, once it runs; nothing where `command` is another than this installation's worker."""
    if not command:
        say(await wait_for_page_status(home))


def _tolerate_closed_output(say: Say) -> Say:
    """Return a function that calls `say` and ignores its OSError: a closed terminal must not keep the server from being
    stopped.
    """

    def say_if_possible(line: str) -> None:
        with contextlib.suppress(OSError):
            say(line)

    return say_if_possible


async def bring_down(home: Home, say: Say) -> None:
    """Stop worker and server of a home and wait until they have ended; a worker may finish its turns first.

    Says what was stopped, or that nothing was running. Raises PerdureError when the worker does not end within
    WORKER_DRAIN_S + SERVER_STOP_S seconds, or the server does not end.
    """
    places = Places(home)
    with _block_starts(places):
        record = await _wait_for_supervisor_record(home) if is_locked(places.supervisor_lock) else None
        if record is not None and signal_lock_holder(record.pid, places.supervisor_lock, signal.SIGTERM):
            say(f"ending the worker{record.pid_suffix}: it finishes its turns first")
            await _wait_for_worker_end(record, places, say)
        stopped = await stop_server(home)
    if record is not None or stopped:
        say("worker and server are down; deliveries go on with the next perdure up")
    else:
        say("nothing was running")


async def _wait_for_worker_end(record: SupervisorRecord, places: Places, say: Say) -> None:
    """Wait until a supervisor has ended with its worker, and say every DOWN_NOTE_S seconds that it is waited for.

    Raises PerdureError when it has not after WORKER_DRAIN_S + SERVER_STOP_S seconds.
    """
    most_s, waited_s = limits.WORKER_DRAIN_S + limits.SERVER_STOP_S, 0.0
    while not await wait_until_released(places.supervisor_lock, min(DOWN_NOTE_S, most_s - waited_s)):
        waited_s += DOWN_NOTE_S
        if waited_s >= most_s:
            raise PerdureError("the worker does not end", where=str(places.worker_log), fix=f"kill -9 {record.pid}")
        say(f"a turn is still at work: {waited_s:.0f} s of at most {most_s:.0f}")


@contextlib.contextmanager
def _block_starts(places: Places) -> Iterator[None]:
    """Hold the down lock while the block runs, if anything is to be stopped, so that nothing is started meanwhile.

    Who wants to start something waits for it (`_wait_for_shutdown`). Of several processes that end the home, one has
    the lock.
    """
    is_running = is_locked(places.supervisor_lock) or is_locked(places.server_lock)
    lock = try_lock(places.down_lock) if is_running else None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


async def ensure_running(home: Home, say: Say, *, command: Sequence[str] | None = None, hosted: bool = False) -> None:
    """Start the server and worker that a delivery here needs, and say so; say nothing of what runs already.

    Waits first for a `down` that is under way. The worker started here ends by itself after WORKER_IDLE_EXIT without
    work. With TEMPORAL_* configured nothing is started: that server's workers hold the keys. Raises BadInput when the
    worker that runs has another model key or address than this process, or another forge token and the delivery is for
    a `hosted` forge; PerdureError when server or worker cannot be started, or the `down` does not end.
    """
    if external_server_config() is not None:
        return
    await _wait_for_shutdown(home, say)
    await ensure_server(home, say=say)
    if is_locked(Places(home).supervisor_lock):
        if running := read_running_supervisor(home):
            check_same_model_access(running.access, secrets.environment(), running.started_at.isoformat())
            if hosted:
                check_same_forge_access(running.forge_access, secrets.environment(), running.started_at.isoformat())
    else:
        idle = WORKER_IDLE_EXIT.total_seconds()
        started = await _start_supervisor(home, idle, command)
        say(f"worker started{started.pid_suffix}; it ends after {idle / 60:.0f} idle minutes")


async def _wait_for_shutdown(home: Home, say: Say) -> None:
    """Wait until `down` and an ending worker are through: that worker takes no new turns, and `down` stops the server.

    Says once that it waits. Raises PerdureError after WORKER_DRAIN_S + SERVER_STOP_S seconds.
    """
    places, announced = Places(home), False
    deadline = asyncio.get_running_loop().time() + limits.WORKER_DRAIN_S + limits.SERVER_STOP_S
    while is_locked(places.down_lock) or ((running := read_running_supervisor(home)) is not None and running.ending):
        if not announced:
            say("waiting for what is ending: the worker finishes its turns first")
            announced = True
        if asyncio.get_running_loop().time() > deadline:
            raise PerdureError("the worker does not end", where=str(places.worker_log), fix="perdure down, twice")
        await asyncio.sleep(_POLL_S)


async def _ensure_server(home: Home, say: Say) -> None:
    """Check the connection to the configured server, or start the embedded one if needed; say where it is.

    Raises TemporalUnreachable when the server does not answer, BadInput when the configuration, the home or a port
    cannot be used, and PerdureError when the embedded server does not start.
    """
    if external_server_config() is not None:
        client = await connect_to_temporal(home, start=False, say=say)
        check_home(home.root)
        say(f"Temporal at {client.service_client.config.target_host}")
        return
    server = await ensure_server(home, say=say)
    if not server.started:
        say(f"Temporal runs at {server.address}, Web UI {server.ui_url}")


async def _start_supervisor(home: Home, idle_exit: float | None, command: Sequence[str] | None) -> SupervisorRecord:
    """Start a detached supervisor, with the lock that it holds for life, and return its record once it has written it.

    When another process holds that lock, wait for that one's supervisor and return its record. We take the lock for it:
    if it took it itself, a second one that begins slowly would get it after the first was ended. Raises PerdureError
    when no supervisor writes its record.
    """
    places = Places(home)
    lock = try_lock(places.supervisor_lock)
    if lock is None:
        if (running := await _wait_for_supervisor_record(home)) is None:
            raise PerdureError("a worker begins, and does not say that it is there", where=str(places.worker_log))
        return running
    log_start = rotate_log(places.worker_log)
    arguments = ["--idle-exit", str(idle_exit)] if idle_exit is not None else []
    read_end, write_end = os.pipe()  # The pipe ends when the supervisor does, however that ends.
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
                inherit=[write_end, pipe, lock],
            )
    finally:
        os.close(write_end)
        os.close(lock)
    try:
        record = await _wait_for_supervisor_record(home, read_end)
    finally:
        os.close(read_end)
    if record is None:
        cause, fix = last_lines(places.worker_log, log_start, 1), "perdure worker runs one in the foreground"
        raise start_failure("the worker", cause, home.root, log=places.worker_log, fix=fix)
    return record


async def _wait_for_supervisor_record(home: Home, alive_pipe: int | None = None) -> SupervisorRecord | None:
    """Wait up to SERVER_START_S seconds for the record of a home's running supervisor; return it, or None.

    `alive_pipe` is the reading end of a pipe that ends with the supervisor we started: when that has ended and nobody
    holds its lock, return None at once.
    """
    deadline = asyncio.get_running_loop().time() + limits.SERVER_START_S
    while asyncio.get_running_loop().time() < deadline:
        ended = alive_pipe is not None and bool(select.select([alive_pipe], [], [], 0)[0])
        if record := read_running_supervisor(home):
            return record
        if ended and not is_locked(Places(home).supervisor_lock):
            return None
        await asyncio.sleep(_POLL_S)
    return None
