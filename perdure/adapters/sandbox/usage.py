"""Measures from outside what a running sandbox uses of the host: memory, processes, processor time, the worktree's disk
space.

The kernel holds no limit of this kind for a tree of processes without a control group (control_groups.py, where the
host gives us one; this looks all the same), and what it holds for single processes does not fit: RLIMIT_AS ends java
and WebAssembly, RLIMIT_DATA ends sanitizers, because both reserve far more than they use; RLIMIT_NPROC does not bind
the host's root. So the tree is measured, and ended as a whole.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.disk_usage import disk_usage_of
from perdure.adapters.sandbox.process_tree import PAGE, measure_usage
from perdure.models.amounts import parse_size
from perdure.models.host_config import CommandLimits
from perdure.models.limits import SANDBOX_DISK_SLACK_BYTES, SANDBOX_MEMORY_BYTES, SANDBOX_MEMORY_SHARE


@dataclass(frozen=True)
class ResourceCaps:
    """The most that one sandbox may use.

    memory     bytes, of all its processes together
    processes  with their threads
    disk       bytes that commands may write into one worktree
    cpu_s      processor time, of all processors together; None: what the time-out allows
    """

    memory: int
    processes: int
    disk: int
    cpu_s: float | None = None

    @classmethod
    def from_limits(cls, limits: CommandLimits) -> ResourceCaps:
        """Return the caps of the owner's limits. Where no memory is configured it is SANDBOX_MEMORY_BYTES, on a smaller
        host SANDBOX_MEMORY_SHARE of its memory."""
        share = int(os.sysconf("SC_PHYS_PAGES") * PAGE * SANDBOX_MEMORY_SHARE)
        memory = parse_size(limits.memory) if limits.memory else min(SANDBOX_MEMORY_BYTES, share)
        cpu = None if limits.cpu is None else limits.cpu_s()
        return cls(memory, limits.processes, parse_size(limits.disk), cpu)


def gigabytes(count: float) -> str:
    """Return a number of bytes such as "4.1 GB"; whole gigabytes without the point."""
    return f"{count / 1024**3:.1f}".removesuffix(".0") + " GB"


def over_memory(caps: ResourceCaps, peak: int) -> str:
    """Return the text that says that the limit of memory was exceeded, and how much was used at most (bytes)."""
    return f"over its memory limit of {gigabytes(caps.memory)}, peak {gigabytes(peak)}"


def over_processes(caps: ResourceCaps) -> str:
    """Return the text that says that the limit of processes and threads was exceeded."""
    return f"over its limit of {caps.processes} processes and threads"


def over_cpu(caps: ResourceCaps) -> str:
    """Return the text that says that the limit of processor time was exceeded."""
    return f"over its limit of {caps.cpu_s:g} s of processor time"


def describe_kill(signal_number: int, peak: int) -> str:
    """Return the text for a process that was killed by a signal, such as "killed, perhaps for memory: peak 1.9 GB":
    SIGKILL does not say why, and the kernel sends it for that.

    peak  the most memory that was seen, in bytes; 0: it was not measured, and nothing is said about it
    """
    if signal_number != signal.SIGKILL:
        return f"killed by signal {signal_number}"
    amount = gigabytes(peak) if peak >= 1024**3 else f"{max(1, peak // 1024**2)} MB"
    return "killed, perhaps for memory" + (f": peak {amount}" if peak else "")


class LimitCheck:
    """One of a watcher's checks of the processes below a pid. It takes a tenth of one processor at the most, and
    blocks.

    due  not before this time.monotonic()
    """

    def __init__(self, find_exceeded: Callable[[int], str], needed: Callable[[], bool] | None = None) -> None:
        self._find_exceeded, self._needed, self.due = find_exceeded, needed, 0.0

    def is_needed(self) -> bool:
        """Return False where it is known at once that there is nothing to measure."""
        return self._needed is None or self._needed()

    def __call__(self, root: int) -> str:
        """Check the processes below the pid `root`, and return the limit that they are over, in words; '' for none.
        Sets `due` for the next check to nine times as long as this one took."""
        started_at = time.monotonic()
        exceeded = self._find_exceeded(root)
        ended_at = time.monotonic()
        self.due = ended_at + 9 * (ended_at - started_at)
        return exceeded


class UsageWatcher:
    """The watcher of one sandbox's usage.

    peak    the most memory that was seen, in bytes
    checks  to be repeated, each in a thread of its own: whoever fills a worktree with small files must not make the
            check of memory wait for its walk

    `worktree` None: its size is not measured.
    """

    def __init__(self, caps: ResourceCaps, worktree: Path | None, layers: tuple[str, ...] = ()) -> None:
        """Make the checks, and start to count the worktree's size for this command. Of `layers` only the first is
        measured, because all are on one file system."""
        self.caps, self.peak, self._layers = caps, 0, layers[:1]
        self._disk_usage = None if worktree is None else disk_usage_of(worktree)
        self._initial_bytes: int | None = None
        if self._disk_usage is not None:
            self._disk_usage.begin_command()
        self.checks = (LimitCheck(self._check_processes), LimitCheck(self._check_disk, self._needs_disk_check))

    def _check_processes(self, root: int) -> str:
        """Measure memory, processes and processor time of the tree below `root`, keep the peak of memory, and return
        the limit that is exceeded, in words; '' for none."""
        caps, used = self.caps, measure_usage(root, self.caps.processes, self._layers)
        if used.processes > caps.processes:
            return over_processes(caps)
        if used.memory > caps.memory:  # pages that children share with their parent were counted twice
            used = measure_usage(root, caps.processes, self._layers, exact=True)
        self.peak = max(self.peak, used.memory)
        if used.memory > caps.memory:
            return over_memory(caps, self.peak)
        if caps.cpu_s is not None and used.cpu_s > caps.cpu_s:
            return over_cpu(caps)
        return ""

    def _needs_disk_check(self) -> bool:
        """Return whether the worktree's size has to be measured: it may be over the limit, or what the command began
        with is not known yet."""
        disk_usage = self._disk_usage
        return disk_usage is not None and (
            not disk_usage.is_within(self.caps.disk) or (disk_usage.is_known and self._initial_bytes is None)
        )

    def _check_disk(self, root: int) -> str:
        """Measure the worktree and return the limit that is exceeded, in words; '' for none. A command that began near
        or over the limit may write SANDBOX_DISK_SLACK_BYTES, so that it can clean up."""
        if self._disk_usage is None:
            return ""
        size = self._disk_usage.measure(self.caps.disk, root)
        if size is None:
            return ""
        if self._initial_bytes is None:
            self._initial_bytes = size - self._disk_usage.grown
        if size <= self.caps.disk or size <= self._initial_bytes + SANDBOX_DISK_SLACK_BYTES:
            return ""
        return f"over the worktree's limit of {gigabytes(self.caps.disk)} on disk: {gigabytes(size)} are there"
