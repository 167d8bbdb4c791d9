"""Reads from outside what a running sandbox uses of the host: memory, processes, processor time, the worktree's room.

The kernel holds no limit of this kind for a tree of processes without a control group (groups.py, where the host gives
us one; this looks all the same), and what it holds for single processes does not fit: RLIMIT_AS ends java and
WebAssembly, RLIMIT_DATA ends sanitizers, for both reserve far more than they use; RLIMIT_NPROC does not bind the host's
root. So the tree is looked at, and ended as a whole.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.disk import room_of
from perdure.adapters.sandbox.processes import PAGE, usage
from perdure.models.amounts import parse_size
from perdure.models.host_config import CommandLimits
from perdure.models.limits import SANDBOX_DISK_SLACK_BYTES, SANDBOX_MEMORY_BYTES, SANDBOX_MEMORY_SHARE


@dataclass(frozen=True)
class Caps:
    """The most one sandbox may use. `cpu_s`, of all processors together: None for what its time-out allows."""

    memory: int
    processes: int
    disk: int
    cpu_s: float | None = None

    @classmethod
    def of(cls, limits: CommandLimits) -> Caps:
        share = int(os.sysconf("SC_PHYS_PAGES") * PAGE * SANDBOX_MEMORY_SHARE)
        memory = parse_size(limits.memory) if limits.memory else min(SANDBOX_MEMORY_BYTES, share)
        cpu = None if limits.cpu is None else limits.cpu_s()
        return cls(memory, limits.processes, parse_size(limits.disk), cpu)


def gigabytes(count: float) -> str:
    """Such as "4.1 GB"; whole ones without the point."""
    return f"{count / 1024**3:.1f}".removesuffix(".0") + " GB"


def over_memory(caps: Caps, peak: int) -> str:
    return f"over its memory limit of {gigabytes(caps.memory)}, peak {gigabytes(peak)}"


def over_processes(caps: Caps) -> str:
    return f"over its limit of {caps.processes} processes and threads"


def over_cpu(caps: Caps) -> str:
    return f"over its limit of {caps.cpu_s:g} s of processor time"


def killed(number: int, peak: int) -> str:
    """`killed, perhaps for memory: peak 1.9 GB`: SIGKILL does not say why, and the kernel sends it for that.

    number, peak   the signal, and the most memory that was seen in bytes; 0: nobody saw it, and it is not made up
    """
    if number != signal.SIGKILL:
        return f"killed by signal {number}"
    said = gigabytes(peak) if peak >= 1024**3 else f"{max(1, peak // 1024**2)} MB"
    return "killed, perhaps for memory" + (f": peak {said}" if peak else "")


class Look:
    """One of a watcher's looks at the processes below a root, for a tenth of one processor at the most. It blocks.

    due  not before this time.monotonic()
    """

    def __init__(self, look: Callable[[int], str], wanted: Callable[[], bool] | None = None) -> None:
        self._look, self._wanted, self.due = look, wanted, 0.0

    def wanted(self) -> bool:
        """False where it is known at once that there is nothing to look for."""
        return self._wanted is None or self._wanted()

    def __call__(self, root: int) -> str:
        """The limit that they are over, in words; '' for none."""
        started = time.monotonic()
        said = self._look(root)
        ended = time.monotonic()
        self.due = ended + 9 * (ended - started)
        return said


class UsageWatcher:
    """Looks at one sandbox again and again. `peak`: the most memory that was seen; `worktree` None: it is not.

    looks  for threads of their own: whoever fills a worktree with small files must not make memory wait for its walk
    """

    def __init__(self, caps: Caps, worktree: Path | None, layers: tuple[str, ...] = ()) -> None:
        self.caps, self.peak, self._layers = caps, 0, layers[:1]
        self._room = None if worktree is None else room_of(worktree)
        self._began: int | None = None
        if self._room is not None:
            self._room.begin()
        self.looks = (Look(self._processes), Look(self._disk, self._grows))

    def _processes(self, root: int) -> str:
        caps, used = self.caps, usage(root, self.caps.processes, self._layers)
        if used.processes > caps.processes:
            return over_processes(caps)
        if used.memory > caps.memory:  # children share pages with their parent, which the quick look counts twice
            used = usage(root, caps.processes, self._layers, exact=True)
        self.peak = max(self.peak, used.memory)
        if used.memory > caps.memory:
            return over_memory(caps, self.peak)
        if caps.cpu_s is not None and used.cpu_s > caps.cpu_s:
            return over_cpu(caps)
        return ""

    def _grows(self) -> bool:
        room = self._room
        return room is not None and (not room.fits(self.caps.disk) or (room.known and self._began is None))

    def _disk(self, root: int) -> str:
        if self._room is None:
            return ""
        total = self._room.total(self.caps.disk, root)
        if total is None:
            return ""
        if self._began is None:
            self._began = total - self._room.grown
        if total <= self.caps.disk or total <= self._began + SANDBOX_DISK_SLACK_BYTES:
            return ""
        return f"over the worktree's limit of {gigabytes(self.caps.disk)} on disk: {gigabytes(total)} are there"
