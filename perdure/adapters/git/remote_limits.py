"""Limits on what a remote may make git use on this host: space in the vault, memory, output, and silence.

git has no such limits for what it fetches. So a running command is measured at intervals, and killed with all its
helpers when it is over a limit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import TimeoutExpired

from perdure.adapters.sandbox.process_tree import measure_usage, process_tree
from perdure.adapters.system.files import size_on_disk
from perdure.models.limits import SANDBOX_PROCESSES

GIT_SILENCE_S = 60
"""The longest time without a byte from a remote. Servers that prepare a large answer send a sign of life every 5 s."""

GIT_FETCH_BYTES = 16 * 1024**3
"""The most bytes that one fetch may add to the vault. No connection that a fetch uses brings more within
GIT_TIMEOUT_S."""

GIT_MEMORY_BYTES = 4 * 1024**3
"""The most memory of git and its helpers together. Putting together the pack of the Linux kernel takes 1.5 GB."""

GIT_OUTPUT_BYTES = 64 * 1024**2
"""The most output that a remote may make git print, which we hold in memory: the names of half a million branches."""


MB = 1024**2


class RemoteLimits:
    """The limits of one running git command that speaks to a remote.

    `git_dir` is the repository that the command writes to, None when it writes to no repository of ours. The size of
    the objects there is first measured at the first check, not at the start: most commands have ended by then.
    """

    def __init__(self, git_dir: Path | None) -> None:
        self._objects_dir = None if git_dir is None else git_dir / "objects"
        self._initial_size: int | None = None

    def exceeded_limit(self, pid: int, partial: TimeoutExpired) -> str:
        """Return the limit that the command is over, as a clause for a message ("it sends more than …"), or an empty
        string.

        `pid` is the command's process, `partial` what `communicate` raised with the output until now. Measured are the
        bytes added to the vault, the output, and the memory of the command and its descendants.
        """
        size = size_on_disk(self._objects_dir) if self._objects_dir else 0
        self._initial_size = size if self._initial_size is None else self._initial_size
        if size - self._initial_size > GIT_FETCH_BYTES:
            return f"it sends more than {GIT_FETCH_BYTES // MB} MB at once"
        if sum(len(stream or b"") for stream in (partial.output, partial.stderr)) > GIT_OUTPUT_BYTES:
            return f"it says more than {GIT_OUTPUT_BYTES // MB} MB of words"
        if measure_usage(pid, SANDBOX_PROCESSES).memory > GIT_MEMORY_BYTES:
            return f"git needs more than {GIT_MEMORY_BYTES // MB} MB of memory for what it sends"
        return ""

    def unfinished_files(self, pid: int) -> list[Path]:
        """List the temporary files of the repository that the command's processes have open, to be deleted once it is
        killed. Other temporary files may belong to somebody who is packing the vault."""
        return [
            path for path in _list_open_files(pid) if self._objects_dir in path.parents and path.name.startswith("tmp_")
        ]


def low_speed_settings() -> tuple[str, ...]:
    """Return the git settings by which git leaves a web server that sends less than a byte a second for GIT_SILENCE_S;
    keep-alive messages count as bytes."""
    return ("http.lowSpeedLimit=1", f"http.lowSpeedTime={GIT_SILENCE_S}")


def _list_open_files(root: int) -> Iterator[Path]:
    """Yield the path of every file that a process and its descendants have open (from /proc). What cannot be read is
    skipped."""
    for pid in process_tree(root):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    yield Path(os.readlink(f"/proc/{pid}/fd/{number}"))
