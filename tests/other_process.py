"""Other processes on the same host: real ones, that end as real ones do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import patient

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
