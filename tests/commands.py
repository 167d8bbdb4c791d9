"""The `perdure` command as a person types it, in a laboratory's home."""

from __future__ import annotations

import asyncio
import sys

from tests.fork_server import ran
from tests.lab import Lab
from tests.waiting import patient


def elsewhere(lab: Lab) -> dict[str, str]:
    """For a command that starts no worker: the laboratory's server as one that somebody else has workers at."""
    there = lab.client.service_client.config.target_host
    return {"TEMPORAL_ADDRESS": there, "TEMPORAL_NAMESPACE": lab.client.namespace}


def _environment(lab: Lab) -> dict[str, str]:
    """It takes the laboratory's worker for somebody's elsewhere, and starts none."""
    return lab.environment(elsewhere(lab))


async def carried_out(lab: Lab, *command: str) -> tuple[int, str]:
    """The exit code of a Python process begun anew, and all it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        env=_environment(lab),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), patient(60))
    return process.returncode or 0, (out + err).decode()


async def perdure(lab: Lab, *words: str, code: int = 0) -> str:
    """Its output, errors behind it. Forked: it says what a process begun anew would, in a third of the time."""
    ended, out, err = await asyncio.to_thread(ran, "perdure.cli", *words, env=_environment(lab), cwd=lab.root)
    assert ended == code, out + err
    return out + err
