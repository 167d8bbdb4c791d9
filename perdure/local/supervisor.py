"""Keeps one worker of a home alive, and its embedded server: `python -m perdure.local.supervisor [--idle-exit S]`.

`perdure.local.up` and the demo start it; `perdure up` in the foreground runs it in its own process. It keeps the page
running, too, once the worker is to stay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.service import RPCError

from perdure import secrets
from perdure.adapters.system.files import is_locked, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.client.schedules import Schedules
from perdure.local import Say, forkserver
from perdure.local.access import fingerprint, forge_variables, notify_variables
from perdure.local.connect import connect_to_temporal, external_server_config
from perdure.local.forkserver import ForkedWorker, ForkServer, ForkServerEnded
from perdure.local.page import keep_page_running
from perdure.local.places import Places, SupervisorRecord, read_last_supervisor, worker_command, worker_environment
from perdure.local.processes import command_tied_to_us, signal_lock_holder, wait_until_released
from perdure.models import limits
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
from perdure.models.ids import DELIVERY_WORKFLOW
from perdure.models.limits import WORKER_PAUSE_S, WORKER_QUICK_DEATHS, WORKER_QUICK_DEATHS_S

WORKER_STARTS_S = 1.5
"""Time after which a forked worker has begun its work; it takes one second on a quiet machine."""


class RestartPauses:
    """Pauses before the starts of one worker, by how it died. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=WORKER_QUICK_DEATHS)
        self._pause = 0.0

    def after_death(self, now: float, lived: float, *, killed: bool = False) -> float:
        """Return the seconds to wait before the next start after a worker died at `now`, having lived for `lived`.

        A worker that was `killed` (SIGKILL) is not to blame: there is no pause if it lived for WORKER_STARTS_S, and
        otherwise at most the shortest one. For other deaths there is no pause until WORKER_QUICK_DEATHS deaths came
        within WORKER_QUICK_DEATHS_S; from then on it doubles from the shortest to the longest of WORKER_PAUSE_S, until
        a worker has lived for WORKER_QUICK_DEATHS_S.
        """
        shortest, longest = WORKER_PAUSE_S
        if killed and lived >= WORKER_STARTS_S:
            return 0.0
        self._deaths.append(now)
        if lived >= WORKER_QUICK_DEATHS_S:
            self._pause = 0.0
        if self._pause:
            self._pause = shortest if killed else min(2 * self._pause, longest)
        elif len(self._deaths) == WORKER_QUICK_DEATHS and now - self._deaths[0] <= WORKER_QUICK_DEATHS_S:
            self._pause = shortest
        return self._pause


_BUSY_QUERY = (
    f"WorkflowType IN ('{DELIVERY_WORKFLOW}', 'Backlog', 'Notification', 'Following') AND ExecutionStatus = 'Running'"
)
"""Running workflows that need a worker; notifications about a delivery may outlive it."""


async def has_running_deliveries(home: Home) -> bool:
    """Return whether this home's worker is needed: a delivery, backlog, following of a stack or notification runs, or a
    schedule that is not paused will begin something.

    A server that cannot be asked counts as busy (True), an embedded one that is down as idle (False).
    """
    try:
        client = await connect_to_temporal(home, start=False, say=lambda _: None)
        running = (await client.count_workflows(_BUSY_QUERY)).count > 0
        return running or await Schedules(client, None).will_start_something()
    except TemporalUnreachable:
        return external_server_config() is not None
    except (RPCError, PerdureError):
        return True


class Supervisor:
    """Keeps one worker running: starts it again whenever it dies, until `stop`. Runs on the main thread's event loop.

    `command` is the worker's; without one it is this installation's worker.py, forked where that is possible.
    """

    def __init__(
        self, home: Home, command: Sequence[str] | None, *, idle_exit: float | None, say: Say, lock: int | None = None
    ) -> None:
        """Make a supervisor of `home` that ends after `idle_exit` seconds without a running delivery, None: never.

        `lock` is the descriptor of the home's supervisor lock, where the starter has it already.
        """
        self._home, self._places = home, Places(home)
        self._command = list(command or worker_command())
        self._can_fork = forkserver.FORKING_POSSIBLE and not command
        self._has_page = not command  # another command is no worker of ours, and has no page
        self._fork_server: ForkServer | None = None
        self._lock = lock
        self._idle_exit, self._say = idle_exit, say
        self._stopping, self._hurry, self._stay_requested = asyncio.Event(), asyncio.Event(), asyncio.Event()
        if idle_exit is None:
            self._stay_requested.set()
        self._started_at = datetime.now(UTC)
        self._restarts = 0
        self._worker_pid: int | None = None

    async def supervise(self) -> None:
        """Keep worker, server and page running until a signal, `stop`, or too long without work; then end the worker.

        Waits first for a worker that a killed supervisor left. SIGTERM, SIGINT and SIGHUP stop it (SIGHUP not under
        nohup), SIGUSR1 makes it stay. Raises BadInput when this home has a supervisor already.
        """
        lock = self._lock if self._lock is not None else try_lock(self._places.supervisor_lock)
        if lock is None:
            raise BadInput(
                "this home's worker is supervised already", where=str(self._home.root), fix="perdure down ends it"
            )
        previous = read_last_supervisor(self._places)
        self._places.supervisor_record.unlink(missing_ok=True)
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGUSR1: self.stay}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: a closed terminal does not end it
            handlers[signal.SIGHUP] = self.stop
        loop = asyncio.get_running_loop()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        watchers = [
            asyncio.create_task(watcher)
            for watcher in (self._keep_server_running(), self._keep_page_running(), self._stop_when_idle())
        ]
        try:
            worker_lock = await self._wait_for_previous_worker(previous.worker_pid if previous else None)
            if worker_lock is not None:
                await self._keep_worker_running(worker_lock)
                os.close(worker_lock)
        finally:
            for task in watchers:
                task.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            for number in handlers:
                loop.remove_signal_handler(number)
            self._places.supervisor_record.unlink(missing_ok=True)
            os.close(lock)

    def stop(self) -> None:
        """Have the worker finish its turns and end, and write that into the record; called again, have it killed."""
        (self._hurry if self._stopping.is_set() else self._stopping).set()
        self._write_record()

    def stay(self) -> None:
        """Keep this supervisor from ending when idle, start the page and keep it running; the record says so from now
        on.

        Called when somebody asked for a worker that stays, and on SIGUSR1.
        """
        self._idle_exit = None
        self._stay_requested.set()
        self._write_record()

    async def _keep_worker_running(self, worker_lock: int) -> None:
        """Start the worker, and start it again after the due pause whenever it dies, until asked to stop; then end it.

        Records and says each start and death. Kills the fork server at the end.
        """
        pauses = RestartPauses()
        while not self._stopping.is_set():
            worker = await self._start_worker(worker_lock)
            if worker is None:
                break
            self._worker_pid, started = worker.pid, time.monotonic()
            self._write_record()
            self._say(f"worker {worker.pid} runs")
            exited, stopping = asyncio.create_task(worker.wait()), asyncio.create_task(self._stopping.wait())
            await asyncio.wait({exited, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._stopping.is_set():
                await self._stop_worker(worker, exited)
                break
            now = time.monotonic()
            pause = pauses.after_death(now, now - started, killed=exited.result() == -signal.SIGKILL)
            self._restarts += 1
            restart_text = f"again in {pause:.0f} s" if pause else "again at once"
            self._say(f"worker {worker.pid} died ({_exit_text(exited.result())}): {restart_text}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        if self._fork_server is not None:
            await self._fork_server.kill_and_wait()

    async def _start_worker(self, worker_lock: int) -> Process | ForkedWorker | None:
        """Return a new worker, forked where possible; None when asked to stop before it was there.

        A fork server that has ended is replaced once; if the next one ends too, the worker is started without forking
        and reports itself what is wrong.
        """
        if not self._can_fork:
            return await self._start_process(worker_lock)
        for _ in range(2):  # The fork server may have ended since it was last used.
            if self._fork_server is None:
                self._fork_server = await self._start_fork_server(worker_lock)
            forking, stopping = (
                asyncio.create_task(self._fork_server.fork_worker()),
                asyncio.create_task(self._stopping.wait()),
            )
            await asyncio.wait({forking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not forking.done():
                forking.cancel()
                return None
            try:
                return forking.result()
            except ForkServerEnded:
                await self._fork_server.kill_and_wait()
                self._fork_server = None
        return await self._start_process(worker_lock)  # The worker reports itself what is wrong with it.

    async def _start_fork_server(self, worker_lock: int) -> ForkServer:
        """Start the worker's program as a fork server, connected by a socket, and return our side of it. Records that
        there is no worker until it has forked one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = await self._start_process(worker_lock, forks=theirs.fileno())
        self._worker_pid = None  # until it has forked one
        self._write_record()
        return ForkServer(process, ours)

    async def _start_process(self, worker_lock: int, *, forks: int | None = None) -> Process:
        """Start the worker's program, holding the workers' lock, in a session of its own, and return its process.

        Ctrl-C at the terminal reaches this process only, which passes it on. `forks` is the descriptor from which it
        reads requests for workers; None: it is a worker itself.
        """
        extra = {} if forks is None else {forkserver.SOCKET_VARIABLE: str(forks)}
        with secrets.handed_over(secrets.environment()) as (env, pipe):
            return await asyncio.create_subprocess_exec(
                *command_tied_to_us(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                env=worker_environment(self._home, env) | extra,
                pass_fds=[worker_lock, pipe, *([] if forks is None else [forks])],
                start_new_session=True,
            )

    async def _stop_worker(self, worker: Process | ForkedWorker, exited: asyncio.Task[int]) -> None:
        """Send SIGTERM to the worker and wait until it has ended.

        Kills it after WORKER_DRAIN_S seconds, or when asked to stop once more. `exited` is the task that waits for its
        exit code.
        """
        self._say(f"worker {worker.pid} finishes its turns")
        with contextlib.suppress(ProcessLookupError):
            worker.terminate()
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({exited, hurry}, timeout=limits.WORKER_DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not exited.done():
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
        self._say(f"worker {worker.pid} ended ({_exit_text(await exited)})")

    async def _wait_for_previous_worker(self, pid: int | None) -> int | None:
        """Wait until a killed supervisor's worker has ended; return the workers' lock, or None when asked to stop.

        That worker got SIGTERM when its supervisor died (Linux; elsewhere it is sent here), and is killed when it has
        had the usual WORKER_DRAIN_S seconds for its turns. `pid` is None where it is unknown.
        """
        announced, deadline = False, time.monotonic() + limits.WORKER_DRAIN_S
        while (lock := try_lock(self._places.worker_lock)) is None and not self._stopping.is_set():
            if not announced:
                announced = True
                self._worker_pid = pid
                self._write_record()
                self._say("waiting for the previous worker to finish its turns")
                if pid is not None and sys.platform != "linux":
                    signal_lock_holder(pid, self._places.worker_lock, signal.SIGTERM)
            if pid is not None and time.monotonic() > deadline:
                signal_lock_holder(pid, self._places.worker_lock, signal.SIGKILL)
            await wait_until_released(self._places.worker_lock, within=1)
        return lock

    async def _keep_server_running(self) -> None:
        """Start the embedded server and its proxy again whenever one of them was killed, until cancelled.

        A server that was stopped on purpose left no record and is not started. Once a start is due it is tried until it
        succeeds, as a server killed while starting leaves no record either; an error is only said. Nothing is started
        once the supervisor is stopping.
        """
        must_start = False
        while True:
            await asyncio.sleep(limits.SERVER_LOOK_S)
            server, proxy = self._places.server_lock, self._places.ui_lock  # ui_lock only with a proxy
            recorded = self._places.server_record.exists()
            must_start = must_start or (
                recorded and not all(is_locked(lock) for lock in (server, proxy) if lock.exists())
            )
            if must_start and not self._stopping.is_set():
                from perdure.local.server import ensure_server  # loads the Temporal SDK: 40 MB, seldom needed

                try:
                    await ensure_server(self._home, say=self._say)
                    must_start = False
                except (PerdureError, OSError) as error:
                    self._say(str(error))

    async def _keep_page_running(self) -> None:
        """Keep the page running once the worker is to stay; workers that `deliver` started have none."""
        await self._stay_requested.wait()
        if self._has_page:
            await keep_page_running(self._home)

    async def _stop_when_idle(self) -> None:
        """Stop this supervisor once no delivery has run for `idle_exit` seconds; return at once when that is None."""
        if self._idle_exit is None:
            return

        idle_since = time.monotonic()
        while self._idle_exit is not None:
            await asyncio.sleep(min(limits.IDLE_LOOK_S, self._idle_exit / 4))
            if await has_running_deliveries(self._home):
                idle_since = time.monotonic()
            elif self._idle_exit is not None and time.monotonic() - idle_since >= self._idle_exit:
                self._say(f"no delivery for {self._idle_exit:.0f} s")
                self.stop()
                return

    def _write_record(self) -> None:
        """Write supervisor.json: pids, restarts, whether it is ending, fingerprints of the worker's credentials."""
        variables = secrets.environment()
        record = SupervisorRecord(
            pid=os.getpid(),
            worker_pid=self._worker_pid,
            restarts=self._restarts,
            started_at=self._started_at,
            idle_exit=self._idle_exit,
            ending=self._stopping.is_set(),
            access=fingerprint(variables, self._started_at.isoformat()),
            forge_access=fingerprint(variables, self._started_at.isoformat(), forge_variables()),
            notify_access=fingerprint(variables, self._started_at.isoformat(), notify_variables()),
        )
        write_whole(self._places.supervisor_record, record.model_dump_json().encode(), sync=False)


def _exit_text(code: int) -> str:
    """Return an exit code, or the signal of a negative one, as text."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def main(arguments: Sequence[str]) -> int:
    """Run a supervisor in the foreground until it ends; return 0, or a PerdureError's exit code.

    Prints one dated line for each event, a PerdureError too. Takes the secrets out of this process's environment.
    """
    secrets.take()
    parser = argparse.ArgumentParser(prog="python -m perdure.local.supervisor", description=__doc__)
    parser.add_argument("--idle-exit", type=float, metavar="S", help="end after S seconds without a running delivery")
    parser.add_argument("--lock", type=int, metavar="N", help="the descriptor of the home's lock, held already")
    parser.add_argument("command", nargs="*", help="the worker's command line, default: this installation's worker.py")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} supervisor {os.getpid()}: {line}", flush=True)

    try:
        supervisor = Supervisor(Home.find(), chosen.command, idle_exit=chosen.idle_exit, say=say, lock=chosen.lock)
        asyncio.run(supervisor.supervise())
    except PerdureError as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the SDK was seen to crash at interpreter exit (reference: temporal.md §0)
