"""Run a command whose scratch files are in memory, where there is room: python -m tests.scratch COMMAND ARGUMENT…

The suite makes and deletes tens of thousands of small directories. A disk is slower at that than memory, and some grow
slower still the more was deleted before. A TMPDIR that is set is left as it is, with all that is in it afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.system.files import try_lock
from tests.processes import as_from_a_terminal

MEMORY = Path("/dev/shm")
ROOM_GB = 8
"""A run of everything was seen to fill three and a half."""

_PREFIX = "perdure-tests-"


def roomy(place: Path, room_gb: float = ROOM_GB, mounts: Path = Path("/proc/mounts")) -> bool:
    """True where a directory is in memory, with that much room left, and programs there may be executed."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
        found = os.statvfs(place)
    except OSError:
        return False
    mounted = {at: (kind, {*options.split(",")}) for _, at, kind, options, *_ in lines}
    kind, options = mounted.get(str(place), ("", set[str]()))
    may = not options & {"ro", "noexec"} and os.access(place, os.W_OK | os.X_OK)
    return kind == "tmpfs" and may and found.f_bavail * found.f_frsize >= room_gb * 1e9


def run(command: list[str], env: Mapping[str, str], memory: Path, room_gb: float = ROOM_GB) -> int:
    """The command's exit code, as a shell would show it. Nothing of its scratch files stays."""
    if env.get("TMPDIR") or not roomy(memory, room_gb):
        return _ended(command, env)
    _forget_the_dead(memory)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
    lock = try_lock(scratch.with_suffix(".lock"))
    assert lock is not None, "somebody else's directory"
    print(f"scratch files: in memory, {scratch} (TMPDIR=… puts them elsewhere)", flush=True)
    try:
        return _ended(command, {**env, "TMPDIR": str(scratch)}, lock)
    finally:
        _remove(scratch, lock)


def _ended(command: list[str], env: Mapping[str, str], *fds: int) -> int:
    """A Ctrl-C is heard by the command itself; SIGTERM is passed on to it: it tidies up, and so does who waits.

    It holds the lock as well: were this process killed, what the command still uses stays.
    """
    process = subprocess.Popen(command, env=env, pass_fds=fds)
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _forget_the_dead(memory: Path) -> None:
    """Remove what a run left that was killed: nobody holds its lock."""
    for lock in memory.glob(f"{_PREFIX}*.lock"):
        if (held := try_lock(lock)) is not None:
            _remove(lock.with_suffix(""), held)


def _remove(scratch: Path, lock: int) -> None:
    """Also what a test left that nobody may write to."""
    for place, below, _ in os.walk(scratch):
        for name in below:
            if not (path := Path(place, name)).is_symlink():
                path.chmod(stat.S_IRWXU)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.with_suffix(".lock").unlink(missing_ok=True)
    os.close(lock)


if __name__ == "__main__":
    as_from_a_terminal()
    sys.exit(run(sys.argv[1:], os.environ, MEMORY))
