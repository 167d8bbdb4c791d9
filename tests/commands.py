"""The `perdure` command as a person types it: a process of its own, in a laboratory's home."""

from __future__ import annotations

import asyncio
import sys

from tests.lab import Lab
from tests.waiting import patient


async def carried_out(lab: Lab, *command: str) -> tuple[int, str]:
    """The exit code of a Python process, and all it said. It takes the laboratory's worker for somebody's elsewhere,
    and starts none."""
    there = {
        "TEMPORAL_ADDRESS": lab.client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": lab.client.namespace,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        env=lab.environment(there),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), patient(60))
    return process.returncode or 0, (out + err).decode()


async def perdure(lab: Lab, *words: str, code: int = 0) -> str:
    """Its output, errors behind it."""
    ended, said = await carried_out(lab, "-m", "perdure.cli", *words)
    assert ended == code, said
    return said
