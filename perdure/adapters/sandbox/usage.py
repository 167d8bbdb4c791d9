"""Measures from outside of a running sandbox's use of the host (memory, processes, processor time, the worktree's disk
space), the limits and the text that says which was exceeded, and which commands run in it. `supervision` watches by it;
who makes a sandbox takes its limits from here.

The kernel holds no limit of this kind for a tree of processes without a control group (control_groups.py makes one
where the host allows it; the tree is measured then, too), and what it holds for single processes does not fit:
RLIMIT_AS ends java and WebAssembly, RLIMIT_DATA ends sanitizers, because both reserve far more than they use;
RLIMIT_NPROC does not bind the host's root. So the tree is measured, and ended as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.environment import HOME, RUN, TMP, UNPACKED
from perdure.models.config.host import CommandLimits
from perdure.models.config.repository import parse_size
from perdure.models.limits import (
    SANDBOX_DISK_LOOK_S,
    SANDBOX_DISK_SLACK_BYTES,
    SANDBOX_MEMORY_BYTES,
    SANDBOX_MEMORY_SHARE,
)
from perdure.text import one_line

BLOCK = 512
LEAST_FILE_BYTES = 4096
"""The bytes that a file takes at least: millions of empty ones fill a disk's table of files."""

NOT_COUNTED = frozenset({".git", ".venv", "node_modules"})
"""Entries at the top of a worktree that are read-only to commands, so that no byte in them is theirs."""


class DiskUsage:
    """The bytes that one worktree takes on disk, walked through only when the disk's free space leaves open that they
    are over the limit.

    grown  bytes of free space that the disk had lost since the command began, when the worktree was then walked through
           for the first time; 0: its size was known before
    """

    def __init__(self, worktree: Path) -> None:
        self._worktree, self.grown = worktree, 0
        self._total_bytes, self._free_before, self._measured_at, self._complete = -1, 0, 0.0, True

    def begin_command(self) -> None:
        """Start to count for another command: set `grown` to 0, and forget the measured size if parts of the worktree
        could not be looked at. Where no size is known then, note the disk's free space as the start."""
        self.grown = 0
        if not self._complete:
            self._total_bytes = -1
        if not self.is_known:
            self._free_before, self._measured_at = _free_bytes(self._worktree), time.monotonic()

    @property
    def is_known(self) -> bool:
        """Return whether the worktree's size was measured."""
        return self._total_bytes >= 0

    def is_within(self, limit: int) -> bool:
        """Return whether the worktree is within `limit` bytes for certain, so that no walk is needed: its last measured
        size with all that the disk has lost since is within the limit, and no older than SANDBOX_DISK_LOOK_S.

        While no size is known: whether the command began at most SANDBOX_DISK_LOOK_S ago, and the disk has lost at most
        SANDBOX_DISK_SLACK_BYTES since.
        """
        grown = max(0, self._free_before - _free_bytes(self._worktree))
        has_room = self._total_bytes + grown <= limit if self.is_known else grown <= SANDBOX_DISK_SLACK_BYTES
        return has_room and time.monotonic() - self._measured_at <= SANDBOX_DISK_LOOK_S

    def measure(self, limit: int, root: int) -> int | None:
        """Return the bytes that the worktree takes, with deleted files that processes below the pid `root` hold open;
        walk through it unless `is_within` says that this is not needed. None: it was never walked through, and the
        command has written no more than it may in any case.

        Where parts of it cannot be looked at, the result is at least the last known size plus what the disk has lost
        since.
        """
        if self.is_within(limit):
            return self._total_bytes if self.is_known else None
        free_bytes, now = _free_bytes(self._worktree), time.monotonic()
        grown = max(0, self._free_before - free_bytes)
        self.grown = 0 if self.is_known else grown
        size, self._complete = measure_worktree(self._worktree)
        size += _deleted_file_bytes(root, self._worktree)
        if not self._complete and self.is_known:
            return max(size, self._total_bytes + grown)  # whatever was written meanwhile may be where nobody can look
        self._total_bytes, self._free_before, self._measured_at = size, free_bytes, now
        return size


_usages: dict[Path, DiskUsage] = {}


def disk_usage_of(worktree: Path) -> DiskUsage:
    """Return the DiskUsage of a worktree, kept from command to command so that it is not walked through for each. Of
    more than 1000 worktrees all are forgotten."""
    if len(_usages) > 1000:
        _usages.clear()
    return _usages.setdefault(worktree, DiskUsage(worktree))


def _free_bytes(path: Path) -> int:
    """Return the free bytes of a path's disk, plus LEAST_FILE_BYTES for each file that it can still hold: both become
    fewer by what is written. 0 when the disk cannot be asked."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_bfree * stats.f_frsize + stats.f_ffree * LEAST_FILE_BYTES


def measure_worktree(worktree: Path) -> tuple[int, bool]:
    """Count the bytes on disk below a worktree, without what commands cannot write, and return them with whether all of
    it could be looked at.

    Each file counts LEAST_FILE_BYTES at least; one with two names counts twice.
    """
    total, complete = 0, True
    pending = [str(worktree)]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if directory == str(worktree) and entry.name in NOT_COUNTED:
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += max(LEAST_FILE_BYTES, entry.stat(follow_symlinks=False).st_blocks * BLOCK)
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile
        except OSError:
            complete = False
    return total, complete


def _deleted_file_bytes(root: int, worktree: Path) -> int:
    """Count the bytes of files on the worktree's disk that the process `root` or a descendant holds open after their
    last name was removed."""
    sizes: dict[int, int] = {}
    with contextlib.suppress(OSError):
        device = os.stat(worktree).st_dev
        for pid in process_tree(root):
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        file = os.stat(f"/proc/{pid}/fd/{number}")
                        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
                            sizes[file.st_ino] = file.st_blocks * BLOCK
    return sum(sizes.values())


PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ResourceUsage:
    """Resources in use at one moment.

    memory     bytes that cannot be taken back: anonymous pages and files in memory, no caches
    processes  with their threads
    cpu_s      processor time, of all processors together
    """

    memory: int = 0
    processes: int = 0
    cpu_s: float = 0.0


def measure_usage(root: int, most_threads: int, layers: tuple[str, ...] = (), *, exact: bool = False) -> ResourceUsage:
    """Measure what the process `root` and its descendants use, from /proc, and return it.

    most_threads  processes are counted until their threads are more than this; the rest is not looked at
    layers        as in SupervisorLaunch
    exact         count a page that processes share once, not for each of them
    """
    memory, threads, ticks = 0, 0, 0
    for pid in process_tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            memory += _proportional_bytes(pid) if exact else _anonymous_bytes(pid)
        except (OSError, ValueError, IndexError):
            continue  # it has ended
        threads += int(fields[17])
        ticks += sum(int(field) for field in fields[11:15])  # its own and those of children it has waited for
        if threads > most_threads:
            break
    return ResourceUsage(memory + _in_memory_file_bytes(root, layers), threads, ticks / TICKS)


def process_tree(root: int) -> Iterator[int]:
    """Yield the pid of a process and those of all its descendants, from /proc."""
    pending, seen = [root], {root}
    while pending:
        pid = pending.pop()
        yield pid
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
                    fresh = [int(child) for child in children if int(child) not in seen]
                    seen.update(fresh)
                    pending += fresh


def _anonymous_bytes(pid: int) -> int:
    """Return the bytes of a process's resident memory that belong to no file; a page that a child still shares with its
    parent counts for both. Raises OSError or ValueError when the process has ended."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * PAGE


def _proportional_bytes(pid: int) -> int:
    """Return the bytes of a process's anonymous memory; a page that n processes share counts as an n-th of a page for
    each. Before Linux 5.3 as `_anonymous_bytes`. Raises OSError or ValueError when the process has ended."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return _anonymous_bytes(pid)  # before Linux 5.3


def _in_memory_file_bytes(root: int, layers: tuple[str, ...]) -> int:
    """Count the bytes used in the sandbox's own /tmp, /dev/shm, home, /run, unpacked files and layers, as the process
    `root` sees them; 0 for those that are the host's."""
    total = 0
    for path in (TMP, "/dev/shm", HOME, RUN, UNPACKED, *layers):  # noqa: S108 the sandbox's own
        with contextlib.suppress(OSError):
            path_inside = f"/proc/{root}/root{path}"
            if os.stat(path_inside).st_dev != os.stat(path).st_dev if os.path.exists(path) else True:
                stats = os.statvfs(path_inside)
                total += (stats.f_blocks - stats.f_bfree) * stats.f_frsize
    return total


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
        Sets `due`: the pause before the next check is nine times as long as this one took."""
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
        """Measure the worktree and return the limit that is exceeded, in words; '' for none, or where no worktree is
        measured. The first size is kept: a command that began near or over the limit may write SANDBOX_DISK_SLACK_BYTES
        beyond it, so that it can clean up."""
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


RUNNING_SHOWN, RUNNING_CHARS = 8, 100
"""The most commands that are named, and the most characters of each."""

RUNNING_READ_S = 1.0
"""Seconds for reading them: a process can make the kernel wait when its command line is read, and is about to be
killed."""

_HEAD_BYTES = 4096


async def list_running_commands(holder: int) -> tuple[str, ...]:
    """List the newest commands below a sandbox's first process that wait for no child of theirs, at most RUNNING_SHOWN
    and how many more there are; empty when they could not be read within RUNNING_READ_S.

    Their command lines are the agent's own words, or the repository's: the sandbox holds nothing secret.
    """
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(asyncio.to_thread(_list_leaf_commands, holder), RUNNING_READ_S)
    return ()


def _list_leaf_commands(holder: int) -> tuple[str, ...]:
    """List the command lines of the processes below `holder` that have no child, newest last; only the last
    RUNNING_SHOWN, then "N more". Blocks."""
    below = [pid for pid in process_tree(holder) if pid != holder]
    parents = {_parent_pid(pid) for pid in below}
    command_lines = [
        command_line for pid in sorted(below) if pid not in parents and (command_line := _command_line(pid))
    ]
    more = len(command_lines) - RUNNING_SHOWN
    return (*command_lines[-RUNNING_SHOWN:], *([f"{more} more"] if more > 0 else []))


def _parent_pid(pid: int) -> int:
    """Return the pid of a process's parent; 0 when the process has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command_line(pid: int) -> str:
    """Read the command line of a process, cut to RUNNING_CHARS; '' when it has ended, also while nobody has waited for
    it yet."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return one_line(file.read(_HEAD_BYTES).replace(b"\0", b" ").decode(errors="replace"), RUNNING_CHARS)
    except OSError:
        return ""
