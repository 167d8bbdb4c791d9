"""Replaying histories on the workflow code of this installation, in a process of its own.

`perdure` never imports the application: worker.py does, and is run as a script, as it is for a worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure.adapters.system.home import Home
from perdure.local.places import worker_command, worker_environment
from perdure.models.errors import PerdureError
from perdure.plugin import perdure_plugin
from perdure.secrets import without_secrets

VERIFY_REPLAY_S = 120.0
"""To replay a delivery's histories: a second for a thousand events, and the start of a Python process before it."""


ARGUMENT = "--replay"
"""Of worker.py: no worker, no connection; histories are read from standard input."""


async def replay(histories: Sequence[WorkflowHistory]) -> list[str]:
    """For each history why it does not replay on today's code, in one line; empty where it does.

    Raises PerdureError when the attempt itself did not end well: nothing is known then.
    """
    asked = json.dumps([{"id": one.workflow_id, "history": json.loads(one.to_json())} for one in histories])
    process = await asyncio.create_subprocess_exec(
        *worker_command(),
        ARGUMENT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=worker_environment(Home.find(), without_secrets(os.environ)),
    )
    try:
        async with asyncio.timeout(VERIFY_REPLAY_S):
            out, err = await process.communicate(asked.encode())
        answer = json.loads((out.splitlines() or [b""])[-1])  # before it the SDK's own log may stand
    except TimeoutError:
        raise PerdureError(f"the replay did not end within {VERIFY_REPLAY_S:.0f} s") from None
    except ValueError:
        said = err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise PerdureError(f"the replay could not be carried out: {said[-1][:200]}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not isinstance(answer, list) or len(answer) != len(histories):
        raise PerdureError("the replay could not be carried out: it answered something else")
    return [str(line) for line in answer]


def _words(failure: Exception) -> str:
    """Return what a person can use of the SDK's words, in which a Rust structure is written out."""
    said = " ".join(str(failure).split())
    inner = re.search(r'message: "([^"]+)"', said)
    return f"{type(failure).__name__}: {inner[1] if inner else said}"[:300]


def replay_if_asked(workflows: Sequence[type[Any]]) -> None:
    """Replay what this process is given and end it, where it was started for that; else nothing."""
    if sys.argv[1:] == [ARGUMENT]:
        asyncio.run(_replay_given(workflows))
        os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)


async def _replay_given(workflows: Sequence[type[Any]]) -> None:
    """Read histories from standard input, write a JSON list of lines to standard output."""
    given = json.loads(await asyncio.to_thread(sys.stdin.buffer.read))
    replayer = Replayer(workflows=workflows, plugins=[perdure_plugin()])
    answer = []
    for one in given:
        history = WorkflowHistory.from_json(one["id"], one["history"])
        failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
        answer.append(_words(failure) if failure else "")
    print(json.dumps(answer), flush=True)
