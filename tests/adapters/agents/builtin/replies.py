"""Replies of a model as plain data."""

from __future__ import annotations

import json
from typing import Any

from perdure.adapters.agents.builtin.conversation import StepFinished, decide_next
from perdure.adapters.agents.builtin.model import Reply
from perdure.models.budget.ledger import Usage
from perdure.models.phases import Step

OPENING = {"role": "user", "content": [{"type": "text", "text": "go"}]}

PLAN = {
    "title": "Accept compound durations.",
    "problem": "p",
    "solution": "s",
    "relevant_files": ["a.py", "b.py"],
    "tasks": [{"title": "t", "details": "d", "files": ["a.py"]}],
    "validation": ["run it"],
}


def issue(severity: str, title: str = "t", **more: Any) -> dict[str, Any]:
    facts = {"title": title, "description": "d", "severity": severity, "file": "a.py", "line": None, "suggestion": "s"}
    return facts | more


def review(*issues: dict[str, Any]) -> str:
    return json.dumps({"summary": "fine", "issues": list(issues)})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(name: str = "bash", number: int = 1, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def reply(*blocks: dict[str, Any], stop: str = "end_turn", detail: str = "") -> Reply:
    message = {"role": "assistant", "content": list(blocks)}
    return Reply(message, stop, "claude-sonnet-5-5", Usage(), detail=detail)


def finished(step: Step, said: Reply) -> StepFinished:
    found = decide_next(step, said, [OPENING])
    assert isinstance(found, StepFinished)
    return found
