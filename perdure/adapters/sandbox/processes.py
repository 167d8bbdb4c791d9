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
    """Of one look. `memory` counts what cannot be taken back: anonymous pages and files in memory, no caches."""

    memory: int = 0
    processes: int = 0
    cpu_s: float = 0.0


def usage(root: int, most: int, layers: tuple[str, ...] = (), *, exact: bool = False) -> ResourceUsage:
    """Of `root` and its descendants, of which no more are looked at than `most` allows. `layers`: see Launch."""
    memory, threads, ticks = 0, 0, 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            memory += _exact(pid) if exact else _quick(pid)
        except (OSError, ValueError, IndexError):
            continue  # it has ended
        threads += int(fields[17])
        ticks += sum(int(field) for field in fields[11:15])  # its own and those of children it has waited for
        if threads > most:
            break
    return ResourceUsage(memory + _in_memory_files(root, layers), threads, ticks / TICKS)


def tree(root: int) -> Iterator[int]:
    """A process and its descendants."""
    waiting, seen = [root], {root}
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
                    fresh = [int(child) for child in children if int(child) not in seen]
                    seen.update(fresh)
                    waiting += fresh


def _quick(pid: int) -> int:
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * PAGE


def _exact(pid: int) -> int:
    """A page that n processes share counts as an n-th of a page for each."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return _quick(pid)  # before Linux 5.3


def _in_memory_files(root: int, layers: tuple[str, ...]) -> int:
    """The bytes in the sandbox's own /tmp, /dev/shm, home, /run, unpacked and layers; 0 where these are the host's."""
    total = 0
    for path in (TMP, "/dev/shm", HOME, RUN, UNPACKED, *layers):  # noqa: S108 the sandbox's own
        with contextlib.suppress(OSError):
            inside = f"/proc/{root}/root{path}"
            if os.stat(inside).st_dev != os.stat(path).st_dev if os.path.exists(path) else True:
                found = os.statvfs(inside)
                total += (found.f_blocks - found.f_bfree) * found.f_frsize
    return total
