"""The commands that run in a sandbox at one moment, in words: for whoever wonders why it did not end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from perdure.adapters.sandbox.processes import tree
from perdure.text import one_line

RUNNING_SHOWN, RUNNING_CHARS = 8, 100
"""Commands that are named, and characters of each."""

RUNNING_LOOK_S = 1.0
"""For the look: a process can make the kernel wait when its command line is read, and is about to be killed."""

_HEAD_BYTES = 4096


async def running(holder: int) -> tuple[str, ...]:
    """The newest ones below a sandbox's first process that wait for no child of theirs; empty where nobody can tell.

    Their command lines are the agent's own words, or the repository's: the sandbox holds nothing secret.
    """
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(asyncio.to_thread(_running, holder), RUNNING_LOOK_S)
    return ()


def _running(holder: int) -> tuple[str, ...]:
    below = [pid for pid in tree(holder) if pid != holder]
    parents = {_parent(pid) for pid in below}
    said = [words for pid in sorted(below) if pid not in parents and (words := _words(pid))]
    more = len(said) - RUNNING_SHOWN
    return (*said[-RUNNING_SHOWN:], *([f"{more} more"] if more > 0 else []))


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _words(pid: int) -> str:
    """Empty for what has ended and waits to be noticed."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return one_line(file.read(_HEAD_BYTES).replace(b"\0", b" ").decode(errors="replace"), RUNNING_CHARS)
    except OSError:
        return ""
