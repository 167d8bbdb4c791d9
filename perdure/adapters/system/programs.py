"""Short programs of the host: run to their end within a limit of time, and ended with all that they have started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OUTPUT_BYTES = 64 * 1024
"""Of what a program without input prints, on each output: a version or a reason has a few lines."""


@dataclass(frozen=True)
class ProgramResult:
    """The end of a program, and what it printed on standard output and standard error.

    code    its exit code; None: it could not be started, or did not end in time
    reason  why it did not succeed: `nothing within 10 s`, `exit code 3`, or what the system said; empty: it did
    """

    code: int | None
    output: str = ""
    errors: str = ""
    reason: str = ""


def run_program(
    command: Sequence[str | Path], env: Mapping[str, str], timeout_s: float, cwd: Path | None = None
) -> ProgramResult:
    """Run a program without input and return how it ended; nothing is raised when it cannot be started, fails, or does
    not end within `timeout_s` seconds and is killed: the result's `reason` says so. Blocks; afterwards nothing of its
    process group lives on.

    Of each output at most OUTPUT_BYTES are returned, nothing after a time-out.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return ProgramResult(None, reason=str(error)[:120])
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return ProgramResult(None, reason=f"nothing within {timeout_s:g} s")
        finally:
            _kill_group(process.pid)
            process.wait()
        return ProgramResult(
            code, _read_beginning(output), _read_beginning(errors), f"exit code {code}" if code else ""
        )


async def run_with_input(
    command: Sequence[str], data: bytes, env: Mapping[str, str], timeout_s: float, cwd: str | None = None
) -> ProgramResult:
    """Run a program with `data` on its standard input and return how it ended, with all that it printed. When it does
    not end within `timeout_s` seconds its process group is killed, and the result has a `reason` and no output.

    On cancellation it is killed too. Raises OSError where it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate(data)
    except TimeoutError:
        return ProgramResult(None, reason=f"nothing within {timeout_s:g} s")
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
            await asyncio.shield(process.wait())
    code = process.returncode
    reason = f"exit code {code}" if code else ""
    return ProgramResult(code, output.decode(errors="replace"), errors.decode(errors="replace"), reason)


def _kill_group(pid: int) -> None:
    """Kill a process and its group; one that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _read_beginning(file: IO[bytes]) -> str:
    """Read the first OUTPUT_BYTES of a file as text."""
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode(errors="replace")
