"""The lease of a delivery's worktree: exactly one attempt may write there, the newest. `host` takes it for the
activities; sessions, setup and landing check it before they write.

The worktree, not the git ref, is the fenced resource: two runs of one delivery (a reset with a turn in flight) each
win the compare-and-swap on their own ref while writing to the same files.
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
from perdure.adapters.system.files import hold_lock, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import Superseded

LEASE_PROOF_S = 5.0
"""The time a new attempt waits for proof that the previous writer is gone, before it takes a new directory."""


_POLL_S = 0.02


@dataclass
class Lease:
    """A held lease. `proved` is False when the previous writer could not be shown to be gone: use another directory.

    sandbox_lock   what sandboxes hold for as long as one of their processes lives; agent_lock: likewise that of
                   an agent which waits there for its next turn
    left_at        the checkpoint at which the lease before this one, of this process too, left the worktree, with
                   no process in it; empty where that is not known
    """

    delivery: str
    generation: int
    sandbox_lock: Path
    agent_lock: Path
    proved: bool
    _file: Path
    left_at: str = ""
    _leaves_at: str = ""
    _task: asyncio.Task[object] | None = None
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """Raise Superseded when a newer attempt has taken over. It is called before every tool, snapshot and ref
        move."""
        if _read_generation(self._file) != self.generation:
            raise Superseded(f"a newer attempt works on {self.delivery}; this one wrote nothing")

    def leave_at(self, checkpoint: str) -> None:
        """Record that the worktree is at this checkpoint and nothing is written to it any more until this lease ends,
        for the next one's `left_at`."""
        self._leaves_at = checkpoint


class Leases:
    """The leases of one worker process. Takeover within the process goes through here, never by pid."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._held: dict[tuple[str, str], Lease] = {}
        self._left: dict[tuple[str, str], tuple[int, str]] = {}

    @asynccontextmanager
    async def acquire(self, delivery: str, tree: str = "tree", *, spares: bool = False) -> AsyncIterator[Lease]:
        """Hold the lease of a delivery's workspace while the block runs, as its only writer.

        Raises the generation number first, so that the previous writer's next check fails; then ends the previous
        writer and waits at most LEASE_PROOF_S for proof: in this process its task, awaited with its threads; in another
        one the lock that its worker held, and the lock that its sandboxes hold. Without proof the lease has `proved`
        False. Raises Superseded when a newer attempt comes while this one waits.

        tree    names the directory the proof is about
        spares  leave an agent process running that waits in the workspace for the caller's turn, and writes nothing
                until its request is answered; else it is killed, too
        """
        directory = self._home.workspace(delivery)
        file, sandbox_lock = directory / "generation", directory / f"sandbox-{tree}"
        generation = await in_thread(_raise_generation, file)
        agent_lock = directory / f"agent-{tree}"
        lease = Lease(delivery, generation, sandbox_lock, agent_lock, False, file, _task=asyncio.current_task())
        deadline = time.monotonic() + LEASE_PROOF_S
        descriptor = None
        try:
            if await self._end_previous((delivery, tree), deadline):
                descriptor = await _wait_for_lock(directory / f"lease-{tree}", lease, deadline)
            if descriptor is not None:
                remaining_s = max(0.1, deadline - time.monotonic())
                lease.proved = await in_thread(end_sandboxes, sandbox_lock, remaining_s)
                if lease.proved and not spares:
                    lease.proved = await in_thread(end_sandboxes, agent_lock, remaining_s)
            lease.check()  # whoever was overtaken while it waited must not stand in the newer one's place
            self._held[delivery, tree] = lease
            left_generation, checkpoint = self._left.pop((delivery, tree), (0, ""))
            if lease.proved and left_generation == generation - 1:
                lease.left_at = checkpoint
            yield lease
            if lease._leaves_at:
                self._left[delivery, tree] = generation, lease._leaves_at
        finally:
            if self._held.get((delivery, tree)) is lease:
                del self._held[delivery, tree]
            if descriptor is not None:
                os.close(descriptor)
            lease._released.set()

    async def _end_previous(self, workspace: tuple[str, str], deadline: float) -> bool:
        """Cancel the task of this process that holds the lease and wait until it has released it. Returns True when it
        has, or no other task holds it; False when it has not by the deadline."""
        previous = self._held.get(workspace)
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
    """Convert a deadline of time.monotonic() to the running event loop's clock."""
    return asyncio.get_running_loop().time() + (deadline - time.monotonic())


async def _wait_for_lock(path: Path, lease: Lease, deadline: float) -> int | None:
    """Wait for an exclusive lock and return its descriptor; None at the deadline. Raises Superseded when a newer
    attempt comes meanwhile."""
    while True:
        descriptor = try_lock(path)
        if descriptor is not None or time.monotonic() > deadline:
            return descriptor
        lease.check()
        await asyncio.sleep(_POLL_S)


def _read_generation(file: Path) -> int:
    """Return the workspace's generation number; 0 where there is none."""
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _raise_generation(file: Path) -> int:
    """Add one to the workspace's generation number on disk, under a lock, and return the new one."""
    with hold_lock(file.with_suffix(".lock")):
        generation = _read_generation(file) + 1
        # a power cut may set it back: then no older attempt lives either
        write_whole(file, str(generation).encode(), sync=False)
    return generation
