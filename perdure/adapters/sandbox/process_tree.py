"""The memory, threads and processor time of a tree of processes, read from outside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.environment import HOME, RUN, TMP, UNPACKED

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
    parent counts for both."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * PAGE


def _proportional_bytes(pid: int) -> int:
    """Return the bytes of a process's anonymous memory; a page that n processes share counts as an n-th of a page for
    each. Before Linux 5.3 as `_anonymous_bytes`."""
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
