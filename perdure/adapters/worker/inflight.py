"""Dead turns are reported by the living.

A worker holds a flock for its life and notes every activity it begins, with its task token. Whoever can take the lock
of another worker knows that it is dead and reports what it had in flight as failed, so that the server hands it out
again after a millisecond instead of after the heartbeat timeout. By task token only: a report by activity id was seen
to kill the living next attempt (holes.md H4); by token the server answers NotFound and nothing happens.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import AsyncActivityHandle, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.adapters.system.files import held, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.worker.unnoted import give_back, handed_to
from perdure.models.ids import digest

log = logging.getLogger(__name__)

SCAN_EVERY_S = 1.0
"""The pause between two looks for the dead: recovery is measured in seconds, a scan of an empty directory in µs."""

REPORT_PAUSE = timedelta(milliseconds=1)
"""A death is nobody's failure: the next attempt starts at once."""

RPC_TIMEOUT = timedelta(seconds=5)
"""For one report; a server that is down is tried again at the next scan."""

UNSEEN_S = 60.0
"""A worker makes its lock visible microseconds after it has made it."""

_SETTLED = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.INVALID_ARGUMENT)
"""Answers that will not change: it is over, it is not running, or this server never gave out such a token."""


BURIAL = "burial"
"""Lock of whoever reports a dead worker's notes; it tells nothing about who lives."""


class InFlight:
    """The work of this worker, on disk, for others to find. `identity`: what servers call it, ending in its name."""

    def __init__(self, home: Home) -> None:
        self.worker = uuid.uuid4().hex
        self.identity = f"{os.getpid()}@{socket.gethostname()}/{self.worker}"
        self._root = home.inflight
        self._notes = home.inflight / self.worker
        unseen = home.inflight / f".{self.worker}"
        self._lock = try_lock(unseen)
        assert self._lock is not None, "a fresh name cannot be locked"
        os.rename(unseen, home.inflight / f"{self.worker}.lock")  # whoever finds it finds it held
        self._notes.mkdir()  # after its lock: notes without one would be nobody's to clear, if it died in between

    def alive(self, worker: str) -> bool:
        """True where that worker of this host lives: its lock is held."""
        if worker == self.worker:
            return True
        return is_alive(self._root, worker)

    @contextlib.contextmanager
    def noted(self, *, token: bytes, workflow_id: str, run_id: str, activity: str) -> Iterator[None]:
        """While an activity runs here it is written down, beside whatever else the run has in flight.

        Its note stays when it has ended, in place of the run's previous one: its report would be answered NotFound,
        and it names a run whose sticky queue must be reset when this worker dies.
        """
        note = {
            "token": base64.b64encode(token).decode(),
            "workflow_id": workflow_id,
            "run_id": run_id,
            "activity": activity,
        }
        path = self._notes / f"{run_id}.{digest(token.hex())[:16]}.json"
        write_whole(path, json.dumps(note).encode(), sync=False)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                path.rename(self._notes / f"{run_id}.json")

    def forget(self, run_id: str) -> None:
        """The run ends with what has just ended: only what of it is still in flight has to be known."""
        (self._notes / f"{run_id}.json").unlink(missing_ok=True)

    def close(self) -> None:
        """An orderly end: everything in flight was drained or handed over."""
        shutil.rmtree(self._notes, ignore_errors=True)
        if self._lock is not None:
            (self._root / f"{self.worker}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    async def report_the_dead(self, client: Client) -> None:
        """For ever: find workers whose lock is free and report what they had in flight."""
        await asyncio.to_thread(_clear_unseen, self._root)
        while True:
            try:
                for lock in await asyncio.to_thread(lambda: sorted(self._root.glob("*.lock"))):
                    if lock.stem not in (self.worker, BURIAL):
                        await self._bury(client, lock)
            except OSError as error:  # no descriptors, no disk: passes, and nobody else would look again
                log.warning("could not look for dead workers: %s", error)
            await asyncio.sleep(SCAN_EVERY_S)

    async def _bury(self, client: Client, lock: Path) -> None:
        if is_alive(self._root, lock.stem):
            return
        fd = try_lock(self._root / f"{BURIAL}.lock")  # one at a time, or another worker reports the same deaths
        if fd is None:
            return
        try:
            for path, note in await asyncio.to_thread(_notes_of, lock):
                if await _report(client, note):
                    path.unlink(missing_ok=True)
            # It may also have kept workflows in memory whose activities run in others: those are noted there (H30).
            for path in await asyncio.to_thread(lambda: sorted(self._root.glob("*/*.json"))):
                for _, note in await asyncio.to_thread(_read_notes, [path]):
                    await _unstick(client, note)
            if await _report_unnoted(client, lock.stem):
                await asyncio.to_thread(_clear, lock)
        finally:
            os.close(fd)


def is_alive(root: Path, worker: str) -> bool:
    """True where that worker's lock is held."""
    return held(root / f"{worker}.lock")


def _notes_of(lock: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return a worker's notes, newest first: what it worked on last is what somebody waits for."""
    return _read_notes(sorted(lock.with_suffix("").glob("*.json"), key=lambda path: -path.stat().st_mtime))


def _read_notes(paths: list[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Notes that can be read; one that a power cut has emptied names nothing that the server still waits for here."""
    found = []
    for path in paths:
        try:
            found.append((path, json.loads(path.read_bytes())))
        except FileNotFoundError:
            continue
        except ValueError:
            path.unlink(missing_ok=True)
    return found


def _clear(lock: Path) -> None:
    notes = lock.with_suffix("")
    if not any(notes.glob("*.json")):
        shutil.rmtree(notes, ignore_errors=True)
        lock.unlink(missing_ok=True)


def _clear_unseen(root: Path) -> None:
    """Remove the locks of workers that died before anybody could see them."""
    with contextlib.suppress(
        OSError
    ):  # one was seen meanwhile, or there are no descriptors: the next worker looks again
        for path in root.glob(".*"):
            if time.time() - path.stat().st_mtime > UNSEEN_S and not held(path):
                path.unlink()


async def _unstick(client: Client, note: dict[str, Any]) -> bool:
    """Let any worker have the run's next workflow task. Whether the server knows now, or has nothing to know."""
    sticky = ResetStickyTaskQueueRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=note["workflow_id"], run_id=note["run_id"]),
    )
    try:
        await client.workflow_service.reset_sticky_task_queue(sticky, timeout=RPC_TIMEOUT)
    except RPCError as error:
        return error.status in _SETTLED
    return True


async def _report_unnoted(client: Client, worker: str) -> bool:
    """True when nothing is left with that worker that it had been handed and did not note."""
    try:
        return all([await _report(client, note) async for note in handed_to(client, worker)])
    except RPCError as error:
        log.warning("could not ask what else a dead worker had in hand: %s", error)
        return error.status == RPCStatusCode.PERMISSION_DENIED  # who may not look will not be let in a second later


async def _report(client: Client, note: dict[str, Any]) -> bool:
    """Settle the note; True where it is reported, or there is nothing to report."""
    # The dead worker's sticky queue first: otherwise the workflow task that follows waits 10 s for it (H30).
    if not await _unstick(client, note):
        return False
    token = base64.b64decode(note["token"])
    handle: AsyncActivityHandle = client.get_async_activity_handle(task_token=token)
    death = ApplicationError(
        f"the worker died during {note['activity']}; it is done again from its checkpoint",
        type="WorkerDied",
        next_retry_delay=REPORT_PAUSE,
    )
    try:
        if note["activity"]:
            await handle.fail(death, rpc_timeout=RPC_TIMEOUT)
        else:
            await give_back(client, token)
    except RPCError as error:
        if error.status not in _SETTLED:
            return False
    else:
        what = note["activity"] or "a decision"
        log.warning("reported %s of %s: its worker had died", what, note["workflow_id"])
    return True
