"""The lease of a delivery's worktree: exactly one attempt may write there, the newest.

The worktree, not the git ref, is the fenced resource: two runs of one delivery (a reset with a turn in flight) each
win the compare-and-swap on their own ref while writing to the same files (holes.md H1).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.sandbox.status import end_sandboxes
from perdure.adapters.system.files import locked, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import Superseded

LEASE_PROOF_S = 5.0
"""A new attempt's wait for proof that the previous writer is gone, before it takes a new directory."""


_POLL_S = 0.02


@dataclass
class Lease:
    """A held lease. `proved` is False when the previous writer could not be shown to be gone: use another directory.

    sandbox_lock   what sandboxes hold for as long as one of their processes lives; agent_lock: likewise that of
                   an agent which waits there for its next turn
    """

    delivery: str
    generation: int
    sandbox_lock: Path
    agent_lock: Path
    proved: bool
    _file: Path
    _task: asyncio.Task[object] | None = None
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """Raise Superseded when a newer attempt has taken over. Called before every tool, snapshot and ref move."""
        if _generation(self._file) != self.generation:
            raise Superseded(f"a newer attempt works on {self.delivery}; this one wrote nothing")


class Leases:
    """The leases of one worker process. Takeover within the process goes through here, never by pid (holes.md H2)."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._held: dict[tuple[str, str], Lease] = {}

    @asynccontextmanager
    async def take(self, delivery: str, tree: str = "tree", *, spares: bool = False) -> AsyncIterator[Lease]:
        """Become the only writer of a delivery's workspace.

        Raises the generation first, so that the previous writer's next check fails; then ends the previous writer
        and waits for proof: in this process its task, awaited with its threads; in another one the lock that its
        worker held, and the lock that its sandboxes hold. `tree` names the directory the proof is about. `spares`: the
        agent that waits there is the caller's own, and writes nothing until it is answered; another one is ended.
        """
        directory = self._home.workspace(delivery)
        file, sandbox_lock = directory / "generation", directory / f"sandbox-{tree}"
        generation = await in_thread(_raise_generation, file)
        agent_lock = directory / f"agent-{tree}"
        lease = Lease(delivery, generation, sandbox_lock, agent_lock, False, file, asyncio.current_task())
        deadline = time.monotonic() + LEASE_PROOF_S
        fd = None
        try:
            if await self._end_previous((delivery, tree), deadline):
                fd = await _lock(directory / f"lease-{tree}", lease, deadline)
            if fd is not None:
                left = max(0.1, deadline - time.monotonic())
                lease.proved = await in_thread(end_sandboxes, sandbox_lock, left)
                if lease.proved and not spares:
                    lease.proved = await in_thread(end_sandboxes, agent_lock, left)
            lease.check()  # whoever was overtaken while it waited must not stand in the newer one's place
            self._held[delivery, tree] = lease
            yield lease
        finally:
            if self._held.get((delivery, tree)) is lease:
                del self._held[delivery, tree]
            if fd is not None:
                os.close(fd)
            lease._released.set()

    async def _end_previous(self, place: tuple[str, str], deadline: float) -> bool:
        previous = self._held.get(place)
        if previous is None or previous._task is asyncio.current_task():
            return True
        if previous._task is not None:
            previous._task.cancel(SUPERSEDED)
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await previous._released.wait()
        except TimeoutError:
            return False
        return True


SUPERSEDED = "superseded"
"""Message of the cancellation that a takeover sends: tells it from Temporal's own."""


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + (deadline - time.monotonic())


async def _lock(path: Path, lease: Lease, deadline: float) -> int | None:
    while True:
        fd = try_lock(path)
        if fd is not None or time.monotonic() > deadline:
            return fd
        lease.check()
        await asyncio.sleep(_POLL_S)


def _generation(file: Path) -> int:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _raise_generation(file: Path) -> int:
    with locked(file.with_suffix(".lock")):
        generation = _generation(file) + 1
        write_whole(file, str(generation).encode())
    return generation
