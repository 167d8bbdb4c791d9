"""The whole loop with real parts: questions over HTTP to the strict twin, tools in a worktree, typed ends."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

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
from perdure.models.delivery.turn import Contract, Ending, Note
from perdure.models.phases import Step

PlayedModel = Callable[..., Awaitable[tuple[Any, Model]]]

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
        found = decide_next(step, reply, transcript)
        if isinstance(found, StepFinished):
            return found, turn
        transcript.append(reply.message)
        if isinstance(found, Continue):
            transcript.append(found.user_message)
            continue
        box.read_files = known_file_versions(transcript)
        transcript.append(results_message(await run_calls(reply.message, box, step), transcript))
    raise AssertionError("the step did not end")


IMPLEMENT = """
[[line]]
turn = 1
think = "Look first."
use = [{ tool = "grep", input = { pattern = "def parse" } }, { tool = "read", input = { path = "src/durations.py" } }]
[[line]]
turn = 2
say = "Now the change."
use = [
    { tool = "edit", input = { path = "src/durations.py", old = "int(text)", new = "float(text)" } },
    { tool = "bash", input = { command = "grep -c float src/durations.py" } },
]
[[line]]
last = "exit code 0"
say = "Accept fractions\\n\\nBecause."
"""


async def test_a_step_reads_edits_runs_and_ends(played: PlayedModel, walled: Toolbox, worktree: Path) -> None:
    twin, model = await played(IMPLEMENT)
    done, count = await turns(model, walled, Step.IMPLEMENT)
    assert (count, done.outcome.ending, done.outcome.summary) == (3, Ending.DONE, "Accept fractions")
    assert "float(text)" in (worktree / "src/durations.py").read_text()
    assert twin.prefix_breaks == 0


PLAN = {
    "title": "Accept fractions", "problem": "p", "solution": "s", "relevant_files": ["src/durations.py"],
    "tasks": [{"title": "t", "details": "d", "files": []}], "validation": ["v"],
}  # fmt: skip
REVIEW = {
    "summary": "s",
    "issues": [
        {"title": "t", "description": "d", "severity": "blocker", "file": "", "line": 3, "suggestion": "s"},
    ],
}


@pytest.mark.parametrize(
    ("step", "answer", "summary"),
    [
        (Step.CLASSIFY, {"kind": "feature", "reason": "r"}, "feature"),
        (Step.PLAN, PLAN, "1 task, 1 file"),
        (Step.REVIEW, REVIEW, "1 blocker"),
    ],
)
async def test_structured_steps_answer_by_the_schema_they_were_given(
    played: PlayedModel, toolbox: Toolbox, step: Step, answer: dict[str, Any], summary: str
) -> None:
    script = f"[[line]]\nanswer = {_toml(answer)}\n"
    _, model = await played(script)
    done, _ = await turns(model, toolbox, step, diff="+ x", plan="p")
    assert done.outcome.summary == summary


async def test_an_answer_in_prose_is_asked_for_again_and_mended(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played("""
[[line]]
last = "not accepted"
answer = { kind = "bug", reason = "r" }
[[line]]
say = "It is a bug, I think."
""")
    done, count = await turns(model, toolbox, Step.CLASSIFY)
    assert (count, done.outcome.data) == (2, {"kind": "bug"})


async def test_a_call_cut_off_by_the_length_limit_is_answered_and_made_again(
    played: PlayedModel, toolbox: Toolbox, worktree: Path
) -> None:
    _, model = await played("""
[[line]]
turn = 1
use = [{ tool = "write", input = { path = "a.txt", content = "a very long text that is cut somewhere" } }]
fault = "max_tokens"
[[line]]
last = "cut off"
use = [{ tool = "write", input = { path = "a.txt", content = "short" } }]
[[line]]
last = "written"
say = "Write a file"
""")
    _, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert count == 3
    assert (worktree / "a.txt").read_text() == "short"


async def test_a_model_that_calls_a_tool_it_does_not_have_goes_on(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played("""
[[line]]
turn = 1
use = [{ tool = "browse", input = { url = "x" }, unknown = true }]
[[line]]
last = "there is no tool"
say = "Never mind"
""")
    assert (await turns(model, toolbox, Step.IMPLEMENT))[1] == 2


async def test_a_loop_without_end_is_nudged_and_then_ended(played: PlayedModel, toolbox: Toolbox) -> None:
    twin, model = await played('[[line]]\nuse = [{ tool = "glob", input = { pattern = "*.py" } }]\n')
    done, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert (count, done.outcome.ending) == (5, Ending.LOOPING)
    assert "3 times in a row" in json.dumps(twin.calls[3].body)


async def test_a_refusal_ends_the_step_as_one(played: PlayedModel, toolbox: Toolbox) -> None:
    _, model = await played('[[line]]\nfault = "refusal"\n')
    assert (await turns(model, toolbox, Step.PLAN))[0].outcome.ending is Ending.REFUSED


@pytest.mark.parametrize("calls", [1, 8, 12])
async def test_nine_tenths_of_thirty_turns_are_read_from_the_cache(
    played: PlayedModel, toolbox: Toolbox, worktree: Path, calls: int
) -> None:
    for number in range(calls):
        (worktree / f"file{number}.txt").write_text(f"line of file {number}\n" * 30)
    lines = []
    for turn in range(1, 31):
        uses = ", ".join(
            f'{{ tool = "read", input = {{ path = "file{n}.txt", offset = {turn % 29 + 1} }} }}' for n in range(calls)
        )
        lines.append(f"[[line]]\nturn = {turn}\nuse = [{uses}]\n")
    twin, model = await played("".join(lines) + '[[line]]\nturn = 31\nsay = "Done"\n')
    _, count = await turns(model, toolbox, Step.IMPLEMENT)
    assert count == 31
    usage = [call.usage for call in twin.calls]
    read = sum(u["cache_read_input_tokens"] for u in usage)
    sent = read + sum(u["input_tokens"] + u["cache_creation_input_tokens"] for u in usage)
    assert read / sent >= 0.9, f"{read / sent:.1%}"
    assert twin.prefix_breaks == 0


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
