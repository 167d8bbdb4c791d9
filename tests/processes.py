"""Processes as tests start, look at and end them: alive or waiting to be reaped, with all that descends from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

from tests.waiting import patient


def alive(process: psutil.Process) -> bool:
    """Whether a process runs: one that only waits to be reaped does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def children_of(pid: int) -> list[psutil.Process]:
    """All that descend from a process; none when it has ended."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def name_of(process: psutil.Process) -> str:
    """Its name; empty when it has ended since it was listed."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it; nobody when it has ended."""
    try:
        parent = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return []
    return [parent, *children_of(pid)]


def send(pid: int, number: signal.Signals) -> None:
    """A signal, to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


_WATCH = """\
import os, select, signal
if os.fork():
    os._exit(0)
ended = select.select([0, 1], [], [])[0]
if 1 not in ended:
    signal.pidfd_send_signal(1, signal.SIGKILL)
"""


def end_with_this_process(pid: int) -> None:
    """Have a process killed when this one ends, by SIGKILL too: by another one that reads from us."""
    process = os.pidfd_open(pid)
    command = [sys.executable, "-IS", "-c", _WATCH]
    subprocess.run(command, stdin=_read_from_us(), stdout=process, start_new_session=True, check=True)
    os.close(process)


@cache
def _read_from_us() -> int:
    """A pipe that ends when this process does: nobody else has its other end."""
    reading, _ = os.pipe()
    return reading


def as_from_a_terminal() -> None:
    """Let processes that are started from now on hear Ctrl-C, Ctrl-\\ and the end of their terminal.

    A shell that runs a suite in its background, and `nohup`, ignore these for it and all that descends from it. This
    process itself goes on ignoring them: a handler, unlike that, is not passed on to another program.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


ROOT = Path(__file__).parents[1]


@contextmanager
def python(code: str, *args: object, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python process running `code`, killed on the way out if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=patient(20))


@contextmanager
def program(path: Path, *args: object) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of the tests, killed on the way out if it still runs."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(path), *map(str, args)], cwd=ROOT, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait(patient(20))


def line(process: subprocess.Popen[str]) -> str:
    """The next line it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
