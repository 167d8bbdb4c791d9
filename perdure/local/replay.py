"""Replay of histories on the workflow code of this installation, in a process of its own.

`perdure` never imports the application: worker.py does, and is run as a script, as it is for a worker. `perdure verify`
calls `replay_histories`, worker.py `replay_if_requested`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from perdure.adapters.system.home import Home
from perdure.adapters.system.programs import run_with_input
from perdure.local.connect import innermost_message
from perdure.local.places import worker_command, worker_environment
from perdure.models.errors import PerdureError
from perdure.plugin import perdure_plugin
from perdure.secrets import without_secrets
from perdure.text import shorten

VERIFY_REPLAY_S = 120.0
"""Limit for the replay of a delivery's histories: a second for a thousand events, after the start of Python."""


REPLAY_ARGUMENT = "--replay"
"""Option with which worker.py replays histories from its standard input; it then makes no worker and no connection."""


async def replay_histories(histories: Sequence[WorkflowHistory]) -> list[str]:
    """Run histories on today's code in a process of worker.py; return for each, in one line, why it does not replay.

    The line is empty where it does replay. Raises PerdureError when the process fails or takes longer than
    VERIFY_REPLAY_S: nothing is known then.
    """
    request = json.dumps(
        [{"id": history.workflow_id, "history": json.loads(history.to_json())} for history in histories]
    )
    env = worker_environment(Home.find(), without_secrets(os.environ))
    result = await run_with_input([*worker_command(), REPLAY_ARGUMENT], request.encode(), env, VERIFY_REPLAY_S)
    if result.code is None:
        raise PerdureError(f"the replay did not end within {VERIFY_REPLAY_S:.0f} s")
    try:
        answer = json.loads((result.output.splitlines() or [""])[-1])  # before it the SDK's own log may stand
    except ValueError:
        error_lines = result.errors.strip().splitlines() or [f"exit code {result.code}"]
        raise PerdureError(f"the replay could not be carried out: {shorten(error_lines[-1], 200)}") from None
    if not isinstance(answer, list) or len(answer) != len(histories):
        raise PerdureError("the replay could not be carried out: it answered something else")
    return [str(line) for line in answer]


def replay_if_requested(workflows: Sequence[type[Any]]) -> None:
    """Replay the histories on standard input and exit, if this process was started for that; else do nothing."""
    if sys.argv[1:] == [REPLAY_ARGUMENT]:
        asyncio.run(_replay_from_input(workflows))
        os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)


async def _replay_from_input(workflows: Sequence[type[Any]]) -> None:
    """Read histories from standard input, replay them, and print a JSON list: why each does not, or an empty string."""
    entries = json.loads(await asyncio.to_thread(sys.stdin.buffer.read))
    replayer = Replayer(workflows=workflows, plugins=[perdure_plugin()])
    answer = []
    for entry in entries:
        history = WorkflowHistory.from_json(entry["id"], entry["history"])
        failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
        answer.append(shorten(f"{type(failure).__name__}: {innermost_message(failure)}", 300) if failure else "")
    print(json.dumps(answer), flush=True)
