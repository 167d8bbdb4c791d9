"""Limits of a sandbox that the kernel enforces: a control group (cgroup v2) for each, where one was delegated to us.
Used by `supervision`; `perdure doctor` shows whether there is one.

systemd marks a group that it leaves to the processes inside (`Delegate=`, of the system or of a user) with the
attribute `user.delegate`. Only such a group is divided: every other belongs to its manager, whoever may write to it.
Processor time is only read here, and the worker ends a sandbox that has used too much: the kernel limits the rate, not
the sum. The cpu controller stays off, because `nice` between sandbox and worker counts only while they share a group of
it.
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

from perdure.adapters.sandbox.usage import ResourceCaps, over_cpu, over_memory, over_processes
from perdure.models.limits import SANDBOX_END_S

SANDBOX_GROUP_ROUNDS = 10
"""Rounds in which the processes of a delegated control group are moved out of it: some start others meanwhile."""


log = logging.getLogger(__name__)

MARK = "user.delegate"
OWN_GROUP = "perdure.processes"
"""Name of the group for all processes that were in the delegated one: a group that gives controllers to its children
may hold no process itself."""

GROUP_PREFIX = "perdure.sandbox."
BWRAP_PROCESSES = 1
"""bwrap's outer process, which is not part of the sandbox but is in its group."""

JOIN_SCRIPT = 'echo 0 >"$0" && exec /usr/bin/env -i "$@"'
"""A shell script that moves itself into a group before it becomes the command: whatever the command starts is in the
group from the beginning."""


def find_delegated_group(process: Path = Path("/proc/self")) -> Path | None:
    """Find the control group that the workers of a process may divide, and return its directory; None where systemd has
    delegated none, it has no memory controller, or it cannot be written to. `process` is a directory in /proc. Blocks.
    """
    try:
        own_group = next(line[3:] for line in (process / "cgroup").read_text().splitlines() if line.startswith("0::"))
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        mount = next(entry[4] for entry in mounts if entry[entry.index("-") + 1] == "cgroup2" and entry[3] == "/")
        path = Path(mount + own_group)
        if ".." in path.parts:  # the process is in a group that its namespace does not show
            return None
        path = path.parent if path.name == OWN_GROUP else path
        if os.getxattr(path, MARK) != b"1" or "memory" not in _read_names(path / "cgroup.controllers"):
            return None
    except (OSError, StopIteration):
        return None
    writable = (path, path / "cgroup.procs", path / "cgroup.subtree_control")
    return path if all(os.access(entry, os.W_OK) for entry in writable) else None


def make_control_group(name: str, caps: ResourceCaps) -> ControlGroup | None:
    """Make a control group with these limits for one sandbox and return it; None where none was delegated, and, with a
    warning in the log, where it failed: then the UsageWatcher alone enforces the limits. Blocks."""
    root = find_delegated_group()
    if root is None:
        return None
    try:
        return ControlGroup(root, name, caps)
    except OSError as error:
        log.warning("no control group in %s: %s; the limits of a command are watched alone", root, error)
        return None


class ControlGroup:
    """A control group that limits the memory and processes of one sandbox. It is locked while its worker lives; one of
    a dead worker is removed.

    peak  bytes of memory, when its limit was reached; 0: it was not
    """

    def __init__(self, root: Path, name: str, caps: ResourceCaps) -> None:
        """Make the group below the delegated one `root` and write its limits; remove groups of dead workers. Raises
        OSError."""
        self.caps, self.peak = caps, 0
        self._path = root / f"{GROUP_PREFIX}{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:100]}.{secrets.token_hex(4)}"
        with _hold_lock(root):
            _enable_controllers(root)
            _remove_dead_groups(root)
            self._path.mkdir()
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            self._write_limits()
        except OSError:
            self.remove()
            raise

    def _write_limits(self) -> None:
        """Write the limits of memory, swap (none) and processes into the group's files. At its limit of memory all of
        the group is killed at once, as the watcher would do. Raises OSError."""
        (self._path / "memory.max").write_text(str(self.caps.memory))
        (self._path / "memory.oom.group").write_text("1")  # all of it ends, as the watcher would have it
        for file, value in (("memory.swap.max", 0), ("pids.max", self.caps.processes + BWRAP_PROCESSES)):
            if (self._path / file).exists():
                (self._path / file).write_text(str(value))

    def joining_command(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the arguments that start the same command inside the group, with an empty environment. It does not
        start if it cannot join the group."""
        return ("/bin/sh", "-c", JOIN_SCRIPT, str(self._path / "cgroup.procs"), *argv)

    def exceeded_limit(self) -> str:
        """Return the limit of memory, processes or processor time that was reached, in the watcher's words ("over its
        …"); '' for none. Sets `peak` when it was memory."""
        memory = self._read_counts("memory.events")
        if memory.get("oom") and memory.get("oom_kill"):  # without the first the host was out of memory, not this group
            self.peak = self.caps.memory
            return over_memory(self.caps, self.peak)
        most = self.caps.processes + BWRAP_PROCESSES
        if (
            self._read_counts("pids.events").get("max") and self._read_number("pids.peak", most) >= most
        ):  # else an outer group's
            return over_processes(self.caps)
        used = self._read_counts("cpu.stat").get("usage_usec", 0) / 1e6
        return over_cpu(self.caps) if self.caps.cpu_s is not None and used > self.caps.cpu_s else ""

    def remove(self) -> None:
        """Kill the processes left in the group, wait at most SANDBOX_END_S until they are gone, and remove the group;
        unlock it. One that cannot be removed is left to the next worker. Blocks."""
        with contextlib.suppress(OSError):  # before Linux 5.14 what is left is ending already
            if (self._path / "cgroup.kill").exists():
                (self._path / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + SANDBOX_END_S
        while self._read_counts("cgroup.events").get("populated") and time.monotonic() < deadline:
            time.sleep(0.005)
        with contextlib.suppress(OSError):  # else the next worker removes it
            self._path.rmdir()
        os.close(self._fd)

    def _read_counts(self, file: str) -> dict[str, int]:
        """Read a file of the group that has a name and a number in each line; empty when it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            lines = (self._path / file).read_text().splitlines()
            return {key: int(value) for key, value in (line.split() for line in lines)}
        return {}

    def _read_number(self, file: str, otherwise: int) -> int:
        """Read a file of the group that holds one number; `otherwise` when there is none: older kernels do not have
        every file."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._path / file).read_text())
        return otherwise


@contextlib.contextmanager
def _hold_lock(root: Path) -> Iterator[None]:
    """Wait for the lock of the delegated group and hold it while the block runs, so that a new group is not taken for a
    dead worker's before its own worker has locked it."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _enable_controllers(root: Path) -> None:
    """Enable the memory and process limits for groups below the delegated group `root`, unless they are. Its processes
    are moved into a group of their own for this.

    Raises OSError when they cannot be enabled: EBUSY when after SANDBOX_GROUP_ROUNDS some processes are still in it.
    """
    controllers = {"memory", "pids"} & _read_names(root / "cgroup.controllers")
    for rounds_left in reversed(range(SANDBOX_GROUP_ROUNDS)):
        if controllers <= _read_names(root / "cgroup.subtree_control"):
            return
        (root / OWN_GROUP).mkdir(exist_ok=True)
        for pid in (root / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (root / OWN_GROUP / "cgroup.procs").write_text(pid)
        try:
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))
        except OSError as error:
            if error.errno != errno.EBUSY or not rounds_left:
                raise


def _remove_dead_groups(root: Path) -> None:
    """Remove the groups of dead workers, which nobody has locked; one that cannot be removed is left. Their sandboxes
    died with them, or are ended by whoever takes over the work."""
    for group in root.glob(f"{GROUP_PREFIX}*"):
        with contextlib.suppress(OSError):
            fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                group.rmdir()
            finally:
                os.close(fd)


def _read_names(file: Path) -> set[str]:
    """Read the names in a file, which are separated by white space."""
    return set(file.read_text().split())
