"""Keeps one worker of a home alive, and its embedded server: `python -m perdure.local.supervisor [--idle-exit S]`."""

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
from collections.abc import Sequence
from datetime import UTC, datetime

from perdure import secrets
from perdure.adapters.system.files import held, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.local import Say, forkserver
from perdure.local.access import fingerprint, forge_names, notify_names
from perdure.local.forkserver import Forked, ForkServer, Gone
from perdure.local.page import keep_page
from perdure.local.pauses import Pauses, running_deliveries
from perdure.local.places import Places, SupervisorRecord, last_supervisor, worker_command, worker_environment
from perdure.local.processes import dying_with_us, released, signal_holder
from perdure.models import limits
from perdure.models.errors import BadInput, PerdureError


class Supervisor:
    """One worker, started again whenever it dies, until `stop`. To be run on the main thread's event loop.

    `command` is the worker's; without one this installation's worker.py, forked where that is possible.
    """

    def __init__(
        self, home: Home, command: Sequence[str] | None, *, idle_exit: float | None, say: Say, lock: int | None = None
    ) -> None:
        """`lock`: the descriptor of the home's supervisor lock, where who starts this has it already."""
        self._home, self._places = home, Places(home)
        self._command = list(command or worker_command())
        self._forks = forkserver.POSSIBLE and not command
        self._page = not command  # another command is no worker of ours, and has no page
        self._server: ForkServer | None = None
        self._lock = lock
        self._idle_exit, self._say = idle_exit, say
        self._stopping, self._hurry, self._stays = asyncio.Event(), asyncio.Event(), asyncio.Event()
        if idle_exit is None:
            self._stays.set()
        self._started_at = datetime.now(UTC)
        self._restarts = 0
        self._worker_pid: int | None = None

    async def run(self) -> None:
        """Until a signal, `stop`, or the end of idleness. Raises BadInput when this home has a supervisor already."""
        lock = self._lock if self._lock is not None else try_lock(self._places.supervisor_lock)
        if lock is None:
            raise BadInput(
                "this home's worker is supervised already", where=str(self._home.root), fix="perdure down ends it"
            )
        previous = last_supervisor(self._places)
        self._places.supervisor_record.unlink(missing_ok=True)
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGUSR1: self.stay}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: a closed terminal does not end it
            handlers[signal.SIGHUP] = self.stop
        loop = asyncio.get_running_loop()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        looks = [
            asyncio.create_task(look)
            for look in (self._look_after_server(), self._look_after_page(), self._end_when_idle())
        ]
        try:
            worker_lock = await self._previous_worker_gone(previous.worker_pid if previous else None)
            if worker_lock is not None:
                await self._keep_alive(worker_lock)
                os.close(worker_lock)
        finally:
            for task in looks:
                task.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            for number in handlers:
                loop.remove_signal_handler(number)
            self._places.supervisor_record.unlink(missing_ok=True)
            os.close(lock)

    def stop(self) -> None:
        """Let the worker finish its turns and end; asked again, end it at once."""
        (self._hurry if self._stopping.is_set() else self._stopping).set()
        self._record()

    def stay(self) -> None:
        """No longer end when idle: somebody asked for a worker that stays."""
        self._idle_exit = None
        self._stays.set()
        self._record()

    async def _keep_alive(self, worker_lock: int) -> None:
        pauses = Pauses()
        while not self._stopping.is_set():
            worker = await self._next_worker(worker_lock)
            if worker is None:
                break
            self._worker_pid, born = worker.pid, time.monotonic()
            self._record()
            self._say(f"worker {worker.pid} runs")
            exited, stopping = asyncio.create_task(worker.wait()), asyncio.create_task(self._stopping.wait())
            await asyncio.wait({exited, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._stopping.is_set():
                await self._end(worker, exited)
                break
            now = time.monotonic()
            pause = pauses.after_death(now, now - born, killed=exited.result() == -signal.SIGKILL)
            self._restarts += 1
            again = f"again in {pause:.0f} s" if pause else "again at once"
            self._say(f"worker {worker.pid} died ({_how(exited.result())}): {again}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        if self._server is not None:
            await self._server.end()

    async def _next_worker(self, worker_lock: int) -> Process | Forked | None:
        """None when asked to stop before it was there."""
        if not self._forks:
            return await self._start(worker_lock)
        for _ in range(2):  # the server that is there may have ended
            if self._server is None:
                self._server = await self._start_fork_server(worker_lock)
            forking, stopping = asyncio.create_task(self._server.fork()), asyncio.create_task(self._stopping.wait())
            await asyncio.wait({forking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not forking.done():
                forking.cancel()
                return None
            try:
                return forking.result()
            except Gone:
                await self._server.end()
                self._server = None
        return await self._start(worker_lock)  # it says itself what is wrong with it

    async def _start_fork_server(self, worker_lock: int) -> ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = await self._start(worker_lock, forks=theirs.fileno())
        self._worker_pid = None  # until it has forked one
        self._record()
        return ForkServer(process, ours)

    async def _start(self, worker_lock: int, *, forks: int | None = None) -> Process:
        """In a session of its own: Ctrl-C at the terminal is for us, who pass it on. `forks`: where it reads requests
        for workers."""
        asked = {} if forks is None else {forkserver.DESCRIPTOR: str(forks)}
        with secrets.handed_over(secrets.environment()) as (env, pipe):
            return await asyncio.create_subprocess_exec(
                *dying_with_us(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                env=worker_environment(self._home, env) | asked,
                pass_fds=[worker_lock, pipe, *([] if forks is None else [forks])],
                start_new_session=True,
            )

    async def _end(self, worker: Process | Forked, exited: asyncio.Task[int]) -> None:
        self._say(f"worker {worker.pid} finishes its turns")
        with contextlib.suppress(ProcessLookupError):
            worker.terminate()
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({exited, hurry}, timeout=limits.WORKER_DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not exited.done():
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
        self._say(f"worker {worker.pid} ended ({_how(await exited)})")

    async def _previous_worker_gone(self, pid: int | None) -> int | None:
        """The workers' lock, once the worker of a killed supervisor has ended. None when asked to stop meanwhile.

        It was sent SIGTERM when its supervisor died (Linux), and is given the usual time for its turns.
        """
        said, deadline = False, time.monotonic() + limits.WORKER_DRAIN_S
        while (lock := try_lock(self._places.worker_lock)) is None and not self._stopping.is_set():
            if not said:
                said = True
                self._worker_pid = pid
                self._record()
                self._say("waiting for the previous worker to finish its turns")
                if pid is not None and sys.platform != "linux":
                    signal_holder(pid, self._places.worker_lock, signal.SIGTERM)
            if pid is not None and time.monotonic() > deadline:
                signal_holder(pid, self._places.worker_lock, signal.SIGKILL)
            await released(self._places.worker_lock, within=1)
        return lock

    async def _look_after_server(self) -> None:
        """Start the embedded server or its front again when it was killed. One that was stopped left no record; nor has
        one that is killed as it begins: what was to be started is tried until it is there."""
        gone = False
        while True:
            await asyncio.sleep(limits.SERVER_LOOK_S)
            server, front = self._places.server_lock, self._places.ui_lock  # the second only where one is needed
            recorded = self._places.server_record.exists()
            gone = gone or (recorded and not all(held(one) for one in (server, front) if one.exists()))
            if gone and not self._stopping.is_set():
                from perdure.local.server import ensure_server  # loads the Temporal SDK: 40 MB, seldom needed

                try:
                    await ensure_server(self._home, say=self._say)
                    gone = False
                except (PerdureError, OSError) as error:
                    self._say(str(error))

    async def _look_after_page(self) -> None:
        """Beside workers that stay; those that `deliver` started have none."""
        await self._stays.wait()
        if self._page:
            await keep_page(self._home)

    async def _end_when_idle(self) -> None:
        if self._idle_exit is None:
            return

        idle_since = time.monotonic()
        while self._idle_exit is not None:
            await asyncio.sleep(min(limits.IDLE_LOOK_S, self._idle_exit / 4))
            if await running_deliveries(self._home):
                idle_since = time.monotonic()
            elif self._idle_exit is not None and time.monotonic() - idle_since >= self._idle_exit:
                self._say(f"no delivery for {self._idle_exit:.0f} s")
                self.stop()
                return

    def _record(self) -> None:
        known = secrets.environment()
        record = SupervisorRecord(
            pid=os.getpid(),
            worker_pid=self._worker_pid,
            restarts=self._restarts,
            started_at=self._started_at,
            idle_exit=self._idle_exit,
            ending=self._stopping.is_set(),
            access=fingerprint(known, self._started_at.isoformat()),
            forge_access=fingerprint(known, self._started_at.isoformat(), forge_names()),
            notify_access=fingerprint(known, self._started_at.isoformat(), notify_names()),
        )
        write_whole(self._places.supervisor_record, record.model_dump_json().encode(), sync=False)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def main(arguments: Sequence[str]) -> int:
    """Supervise in the foreground, one dated line an event. Exit codes as everywhere: 0, or those of PerdureError."""
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
        asyncio.run(supervisor.run())
    except PerdureError as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the SDK was seen to crash at interpreter exit (reference: temporal.md §0)
