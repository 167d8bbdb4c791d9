"""The most that a remote can make git take of this host: room in the vault, memory, words, silence.

git has no such limit of its own for what it fetches. So it is looked at while it runs, and ended with all its helpers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import TimeoutExpired

from perdure.adapters.sandbox.processes import tree, usage
from perdure.adapters.system.files import size_on_disk
from perdure.models.limits import SANDBOX_PROCESSES

GIT_SILENCE_S = 60
"""Without a byte from a remote: servers that prepare a large answer say every 5 s that they live."""

GIT_FETCH_BYTES = 16 * 1024**3
"""Of one fetch: more does not come in GIT_TIMEOUT_S on any line that it is fetched over."""

GIT_MEMORY_BYTES = 4 * 1024**3
"""Of git and its helpers together: putting together the Linux kernel's pack takes 1.5."""

GIT_SAID_BYTES = 64 * 1024**2
"""Of what a remote has git print, and we hold: the names of half a million branches."""


MB = 1024**2


class Bounds:
    """Of one command that speaks to a remote; `git_dir` None: it writes to no repository of ours.

    What is there already is measured at the first look: most commands have ended by then.
    """

    def __init__(self, git_dir: Path | None) -> None:
        self._objects = None if git_dir is None else git_dir / "objects"
        self._before: int | None = None

    def over(self, pid: int, so_far: TimeoutExpired) -> str:
        """The limit that the command is over, in words; '' for none."""
        size = size_on_disk(self._objects) if self._objects else 0
        self._before = size if self._before is None else self._before
        if size - self._before > GIT_FETCH_BYTES:
            return f"it sends more than {GIT_FETCH_BYTES // MB} MB at once"
        if sum(len(said or b"") for said in (so_far.output, so_far.stderr)) > GIT_SAID_BYTES:
            return f"it says more than {GIT_SAID_BYTES // MB} MB of words"
        if usage(pid, SANDBOX_PROCESSES).memory > GIT_MEMORY_BYTES:
            return f"git needs more than {GIT_MEMORY_BYTES // MB} MB of memory for what it sends"
        return ""

    def unfinished(self, pid: int) -> list[Path]:
        """The files that the command is writing and nobody needs without it. Others may be packing the vault."""
        return [path for path in _open_files(pid) if self._objects in path.parents and path.name.startswith("tmp_")]


def patience() -> tuple[str, ...]:
    """Settings with which git leaves a web server that sends nothing: not a byte a second, keep-alives counted."""
    return ("http.lowSpeedLimit=1", f"http.lowSpeedTime={GIT_SILENCE_S}")


def _open_files(root: int) -> Iterator[Path]:
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    yield Path(os.readlink(f"/proc/{pid}/fd/{number}"))
