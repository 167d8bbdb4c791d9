"""A short program of the host is run to its end, or ended in time, and nothing that it has started lives on."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest

from perdure.adapters.system.programs import OUTPUT_BYTES, ProgramResult, run_program, run_with_input
from tests.waiting import patient

STAYS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def test_its_exit_code_and_both_outputs_are_returned_and_of_a_flood_the_beginning() -> None:
    said = run_program(["/bin/sh", "-c", "echo $WHO; echo no >&2; exit 3"], {"WHO": "ada"}, patient(30))
    assert said == ProgramResult(3, "ada\n", "no\n", "exit code 3")
    flood = run_program([sys.executable, "-c", f"print('x' * {2 * OUTPUT_BYTES})"], {}, patient(30))
    assert (flood.code, flood.reason, len(flood.output)) == (0, "", OUTPUT_BYTES)


def test_one_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    missing = run_program([tmp_path / "missing"], {}, 1)
    assert (missing.code, "No such file" in missing.reason) == (None, True)
    assert "null byte" in run_program(["/bin/echo", "\0"], {}, 1).reason


@pytest.mark.parametrize("ends", ["late", "cancelled"])
async def test_one_with_input_is_killed_when_it_is_late_or_nobody_waits_any_more(tmp_path: Path, ends: str) -> None:
    file = tmp_path / "pid"
    limit = patient(5) if ends == "late" else 600
    running = asyncio.create_task(run_with_input([sys.executable, "-c", STAYS, str(file)], b"{}", {}, limit))
    until = time.monotonic() + patient(30)
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    if ends == "late":
        assert (await running).reason == f"nothing within {limit:g} s"
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not psutil.pid_exists(int(file.read_text()))


async def test_all_that_it_prints_about_its_input_is_returned() -> None:
    code = "import sys; print(len(sys.stdin.read()) * 'y'); print('bad', file=sys.stderr); sys.exit(2)"
    result = await run_with_input([sys.executable, "-c", code], b"x" * 200_000, {}, patient(30))
    assert (result.code, len(result.output), result.errors, result.reason) == (2, 200_001, "bad\n", "exit code 2")
