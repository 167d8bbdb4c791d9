"""Turns of the built-in agent with real parts: its requests over HTTP, its tools in a worktree."""

from __future__ import annotations

import json
from typing import Any

from perdure.adapters.agents.builtin.conversation import (
    Continue,
    StepFinished,
    decide_next,
    known_file_versions,
    model_request_for,
    opening_message,
    results_message,
)
from perdure.adapters.agents.builtin.model import Model, Reply
from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract, Note
from perdure.models.phases import Step

CONTRACT = Contract(
    delivery="d-1",
    repository="r",
    request="Make parse accept '1h30m'",
    base="main",
    base_sha="4be1c02",
    branch="perdure/d-1",
    config=RepositoryConfig(version=1),
    notes=(Note(path="AGENTS.md", text="Use four spaces. " * 40),),
)


async def turns(model: Model, box: Toolbox, step: Step, most: int = 60, **materials: str) -> tuple[StepFinished, int]:
    """Take turns as the engine does, with everything stored and read again between them."""
    transcript: list[dict[str, Any]] = [opening_message(step, CONTRACT, materials)]
    for turn in range(1, most + 1):
        transcript = json.loads(json.dumps(transcript, sort_keys=True))
        question = model_request_for(step, CONTRACT, transcript)
        reply = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
        reply = Reply.from_json(reply.to_json())
        found = decide_next(step, reply, transcript, schema=question.schema)
        if isinstance(found, StepFinished):
            return found, turn
        transcript.append(reply.message)
        if isinstance(found, Continue):
            transcript.append(found.user_message)
            continue
        box.read_files = known_file_versions(transcript)
        transcript.append(results_message(await run_calls(reply.message, box, step), transcript))
    raise AssertionError("the step did not end")
