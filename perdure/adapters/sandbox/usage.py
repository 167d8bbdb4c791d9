"""Reads from outside what a running sandbox uses of the host: memory, processes, processor time, the worktree's room.

The kernel holds no limit of this kind for a tree of processes without a control group (groups.py, where the host gives
us one; this looks all the same), and what it holds for single processes does not fit: RLIMIT_AS ends java and
WebAssembly, RLIMIT_DATA ends sanitizers, for both reserve far more than they use; RLIMIT_NPROC does not bind the host's
root. So the tree is looked at, and ended as a whole.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.environment import HOME, RUN, TMP, UNPACKED
from perdure.models.amounts import size
from perdure.models.host_config import CommandLimits
from perdure.models.limits import (
    SANDBOX_DISK_LOOK_S,
    SANDBOX_DISK_SLACK_BYTES,
    SANDBOX_MEMORY_BYTES,
    SANDBOX_MEMORY_SHARE,
)

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
BLOCK = 512
LEAST = 4096
"""The bytes that a file takes at least: millions of empty ones fill a disk's table of files."""

NOT_OURS = frozenset({".git", ".venv", "node_modules"})
"""At the top of a worktree: read-only to commands, so nothing of it is theirs."""


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
        memory = size(limits.memory) if limits.memory else min(SANDBOX_MEMORY_BYTES, share)
        cpu = None if limits.cpu is None else limits.cpu_s()
        return cls(memory, limits.processes, size(limits.disk), cpu)


@dataclass(frozen=True)
class ResourceUsage:
    """Of one look. `memory` counts what cannot be taken back: anonymous pages and files in memory, no caches."""

    memory: int = 0
    processes: int = 0
    cpu_s: float = 0.0


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
        self._room = None if worktree is None else _room_of(worktree)
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


class _Room:
    """The size of one worktree, walked only when the disk's free space leaves open that it is over its limit.

    grown  what the disk had lost since it was walked through, or a command began, when it was walked through last
    """

    def __init__(self, worktree: Path) -> None:
        self._worktree, self.grown = worktree, 0
        self._total, self._free, self._at, self._whole = -1, 0, 0.0, True

    def begin(self) -> None:
        """For another command: what the disk lost before is not this one's, where it cannot be looked for."""
        self.grown = 0
        if not self._whole:
            self._total = -1
        if not self.known:
            self._free, self._at = _free(self._worktree), time.monotonic()

    @property
    def known(self) -> bool:
        return self._total >= 0

    def fits(self, limit: int) -> bool:
        """True where nobody can have written more than there is room for, and it was looked at not long ago."""
        grown = max(0, self._free - _free(self._worktree))
        fits = self._total + grown <= limit if self.known else grown <= SANDBOX_DISK_SLACK_BYTES
        return fits and time.monotonic() - self._at <= SANDBOX_DISK_LOOK_S

    def total(self, limit: int, root: int) -> int | None:
        """Bytes; None while it was never walked through, and nobody has written more than a command is left anyway."""
        if self.fits(limit):
            return self._total if self.known else None
        free, now = _free(self._worktree), time.monotonic()
        grown = max(0, self._free - free)
        self.grown = 0 if self.known else grown
        found, self._whole = written(self._worktree)
        found += _unnamed(root, self._worktree)
        if not self._whole and self.known:
            return max(found, self._total + grown)  # whatever was written meanwhile may be where nobody can look
        self._total, self._free, self._at = found, free, now
        return found


_rooms: dict[Path, _Room] = {}


def _room_of(worktree: Path) -> _Room:
    """Kept from command to command, so that a worktree is not walked for each."""
    if len(_rooms) > 1000:
        _rooms.clear()
    return _rooms.setdefault(worktree, _Room(worktree))


def _free(path: Path) -> int:
    """Bytes, and LEAST for each file that can still be made: both become fewer by what is written."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bfree * found.f_frsize + found.f_ffree * LEAST


def written(worktree: Path) -> tuple[int, bool]:
    """Bytes on disk below a worktree without what commands cannot write, and whether all of it could be looked at.

    A file with two names counts twice.
    """
    total, whole = 0, True
    waiting = [str(worktree)]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if here == str(worktree) and entry.name in NOT_OURS:
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += max(LEAST, entry.stat(follow_symlinks=False).st_blocks * BLOCK)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile
        except OSError:
            whole = False
    return total, whole


def _unnamed(root: int, worktree: Path) -> int:
    """Bytes of files on the worktree's disk that processes below `root` hold open after their last name was removed."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        device = os.stat(worktree).st_dev
        for pid in tree(root):
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        file = os.stat(f"/proc/{pid}/fd/{number}")
                        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
                            found[file.st_ino] = file.st_blocks * BLOCK
    return sum(found.values())


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
