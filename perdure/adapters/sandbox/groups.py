"""Limits of a sandbox that the kernel holds: a control group (cgroup v2) of its own, where one was delegated to us.

systemd marks a group that it leaves to those inside (`Delegate=`, of the system or of a user) with the attribute
`user.delegate`. Only such a one is divided: every other belongs to its manager, whoever may write to it. Processor time
is counted here and held by the worker, who looks: what the kernel limits is a rate. The cpu controller stays off, for
`nice` between sandbox and worker counts only while they share a group of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.adapters.sandbox.usage import Caps, over_cpu, over_memory, over_processes
from perdure.models.limits import SANDBOX_END_S

SANDBOX_GROUP_ROUNDS = 10
"""Rounds in which the processes of a delegated control group are moved out of it: some start others meanwhile."""


log = logging.getLogger(__name__)

MARK = "user.delegate"
OURS = "perdure.processes"
"""The group of all that was in the delegated one: one that hands on controllers may hold no process itself."""

SANDBOX = "perdure.sandbox."
OUTSIDE = 1
"""bwrap's outer process, which is no part of the sandbox and in its group all the same."""

JOIN = 'echo 0 >"$0" && exec /usr/bin/env -i "$@"'
"""Before anything else runs: what a process starts later is in its group from the beginning."""


def delegated(process: Path = Path("/proc/self")) -> Path | None:
    """The control group that the workers of a process may divide, None where there is none. Blocks."""
    try:
        own = next(line[3:] for line in (process / "cgroup").read_text().splitlines() if line.startswith("0::"))
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        mount = next(one[4] for one in mounts if one[one.index("-") + 1] == "cgroup2" and one[3] == "/")
        path = Path(mount + own)
        if ".." in path.parts:  # it is in a group that its namespace does not show
            return None
        path = path.parent if path.name == OURS else path
        if os.getxattr(path, MARK) != b"1" or "memory" not in _words(path / "cgroup.controllers"):
            return None
    except (OSError, StopIteration):
        return None
    writable = (path, path / "cgroup.procs", path / "cgroup.subtree_control")
    return path if all(os.access(one, os.W_OK) for one in writable) else None


def group_for(name: str, caps: Caps) -> ControlGroup | None:
    """A group for one sandbox; None: the watcher alone holds its limits. Blocks."""
    root = delegated()
    if root is None:
        return None
    try:
        return ControlGroup(root, name, caps)
    except OSError as error:
        log.warning("no control group in %s: %s; the limits of a command are watched alone", root, error)
        return None


class ControlGroup:
    """Holds what one sandbox uses of memory and processes. Locked while its worker lives: a dead one's is removed.

    peak  in bytes, where it came to its limit of memory; 0: it did not
    """

    def __init__(self, root: Path, name: str, caps: Caps) -> None:
        self.caps, self.peak = caps, 0
        self._path = root / f"{SANDBOX}{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:100]}.{secrets.token_hex(4)}"
        with _locked(root):
            _hand_on(root)
            _sweep(root)
            self._path.mkdir()
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            self._limit()
        except OSError:
            self.close()
            raise

    def _limit(self) -> None:
        (self._path / "memory.max").write_text(str(self.caps.memory))
        (self._path / "memory.oom.group").write_text("1")  # all of it ends, as the watcher would have it
        for file, value in (("memory.swap.max", 0), ("pids.max", self.caps.processes + OUTSIDE)):
            if (self._path / file).exists():
                (self._path / file).write_text(str(value))

    def joining(self, argv: Sequence[str]) -> Sequence[str]:
        """The same command, started inside, with nothing in its environment. It does not start if that fails."""
        return ("/bin/sh", "-c", JOIN, str(self._path / "cgroup.procs"), *argv)

    def over(self) -> str:
        """The limit that was reached, in the watcher's words; '' for none."""
        memory = self._counts("memory.events")
        if memory.get("oom") and memory.get("oom_kill"):  # without the first the host was out of memory, not this group
            self.peak = self.caps.memory
            return over_memory(self.caps, self.peak)
        most = self.caps.processes + OUTSIDE
        if self._counts("pids.events").get("max") and self._number("pids.peak", most) >= most:  # else an outer group's
            return over_processes(self.caps)
        used = self._counts("cpu.stat").get("usage_usec", 0) / 1e6
        return over_cpu(self.caps) if self.caps.cpu_s is not None and used > self.caps.cpu_s else ""

    def close(self) -> None:
        """End what is left in it and remove it. Blocks for as long as that takes, within limits."""
        with contextlib.suppress(OSError):  # before Linux 5.14 nothing can be left but what is ending already
            if (self._path / "cgroup.kill").exists():
                (self._path / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + SANDBOX_END_S
        while self._counts("cgroup.events").get("populated") and time.monotonic() < deadline:
            time.sleep(0.005)
        with contextlib.suppress(OSError):  # else it is the next one's to remove
            self._path.rmdir()
        os.close(self._fd)

    def _counts(self, file: str) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError):
            lines = (self._path / file).read_text().splitlines()
            return {key: int(value) for key, value in (line.split() for line in lines)}
        return {}

    def _number(self, file: str, otherwise: int) -> int:
        """Older kernels do not have every file."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._path / file).read_text())
        return otherwise


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One at a time, or a group would be taken for a dead worker's before its own has locked it."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _hand_on(root: Path) -> None:
    """Let groups below have limits. OSError EBUSY: processes that cannot be moved are in it."""
    wanted = {"memory", "pids"} & _words(root / "cgroup.controllers")
    for again in reversed(range(SANDBOX_GROUP_ROUNDS)):
        if wanted <= _words(root / "cgroup.subtree_control"):
            return
        (root / OURS).mkdir(exist_ok=True)
        for pid in (root / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (root / OURS / "cgroup.procs").write_text(pid)
        try:
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(wanted)))
        except OSError as error:
            if error.errno != errno.EBUSY or not again:
                raise


def _sweep(root: Path) -> None:
    """Remove the groups of dead workers; their sandboxes died with them, or whoever takes the work over ends them."""
    for old in root.glob(f"{SANDBOX}*"):
        with contextlib.suppress(OSError):
            fd = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.rmdir()
            finally:
                os.close(fd)


def _words(file: Path) -> set[str]:
    return set(file.read_text().split())
