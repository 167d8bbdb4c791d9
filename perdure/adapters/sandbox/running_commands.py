"""The commands that run in a sandbox at one moment, as text: for whoever wonders why it did not end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from perdure.adapters.sandbox.process_tree import process_tree
from perdure.text import one_line

RUNNING_SHOWN, RUNNING_CHARS = 8, 100
"""The most commands that are named, and the most characters of each."""

RUNNING_READ_S = 1.0
"""Seconds for reading them: a process can make the kernel wait when its command line is read, and is about to be
killed."""

_HEAD_BYTES = 4096


async def list_running_commands(holder: int) -> tuple[str, ...]:
    """List the newest commands below a sandbox's first process that wait for no child of theirs, at most RUNNING_SHOWN
    and how many more there are; empty where nobody can tell in RUNNING_READ_S.

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
