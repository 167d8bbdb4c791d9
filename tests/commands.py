"""The `perdure` command as a person types it, in an engine's home."""

from __future__ import annotations

import asyncio
import sys

from tests.engine import Engine
from tests.fork_server import ran
from tests.waiting import patient


def elsewhere(engine: Engine) -> dict[str, str]:
    """For a command that starts no worker: the engine's server as one that somebody else has workers at."""
    there = engine.client.service_client.config.target_host
    return {"TEMPORAL_ADDRESS": there, "TEMPORAL_NAMESPACE": engine.client.namespace}


def _environment(engine: Engine) -> dict[str, str]:
    """It takes the engine's worker for somebody's elsewhere, and starts none."""
    return engine.environment(elsewhere(engine))


async def carried_out(engine: Engine, *command: str) -> tuple[int, str]:
    """The exit code of a Python process begun anew, and all it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        env=_environment(engine),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), patient(60))
    return process.returncode or 0, (out + err).decode()


async def perdure(engine: Engine, *words: str, code: int = 0) -> str:
    """Its output, errors behind it. Forked: it says what a process begun anew would, in a third of the time."""
    ended, out, err = await asyncio.to_thread(ran, "perdure.cli", *words, env=_environment(engine), cwd=engine.root)
    assert ended == code, out + err
    return out + err
