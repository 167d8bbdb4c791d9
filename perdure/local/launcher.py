"""Started as a script: becomes another program, detached from its starter or dying with it.

Standard library only and a few milliseconds long: it runs isolated (`-I -S`) between a supervisor and each worker.
A fresh process may fork and set signals, which the caller, with its threads, may not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def detached(record: str, text: str, command: list[str]) -> None:
    """Fork, so that the program is nobody's child, and become it; first write `text` with its pid into `record`.

    The program writes its own record, because a starter killed between the two would leave a server unknown.
    `text` is a JSON object; `record` may be empty.
    """
    if os.fork():
        os._exit(0)
    if record:
        os.umask(0o077)  # the server's database is its owner's alone, whatever becomes of the directory
        fresh = f"{record}.new"
        with open(fresh, "w") as file:
            file.write(f'{{"pid": {os.getpid()}, {text.lstrip("{")}\n')
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, record)
    _become(command)


def with_parent(parent: int, command: list[str]) -> None:
    """Become a program that gets SIGTERM when its parent dies, where the kernel can do that (Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    _become(command)


def _become(command: list[str]) -> None:
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "detached":
        detached(arguments[0], arguments[1], arguments[2:])
    else:
        with_parent(int(arguments[0]), arguments[1:])
