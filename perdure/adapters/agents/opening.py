"""How a step begins: the system prompt, which never varies, and the first message, which holds all that does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import perdure
from perdure.adapters.agents.issue import framed_issue
from perdure.adapters.agents.text import framed, middle_out
from perdure.models.contract import Contract
from perdure.models.phases import Step
from perdure.models.policy import MATERIAL_CHARS

PROMPTS = Path(perdure.__file__).parent / "prompts"

NOTED = (Step.PLAN, Step.IMPLEMENT, Step.REVIEW)
"""Steps that get the repository's own notes; fixes begin from a report and stay close to it."""

TESTING = (Step.PLAN, Step.IMPLEMENT, Step.FIX_TESTS, Step.REVIEW, Step.FIX_REVIEW)

_ORDER = ("kind", "plan", "diff", "report", "review")
"""Materials that are given in this order; others follow by name."""


def system_prompt(step: Step, override: str | None = None) -> str:
    """The step's prompt and the rules of every step; the same bytes for every delivery.

    `override` is the repository's own prompt for this step; the rules hold all the same. The first line is always
    `Step: <step>`.
    """
    title = f"Step: {step}"
    prompt = _text(step) if override is None else override.strip()
    if prompt.partition("\n")[0].strip() != title:
        prompt = f"{title}\n\n{prompt}"
    return f"{prompt.strip()}\n\n{_text('rules')}"


def opening(step: Step, contract: Contract, materials: dict[str, str]) -> dict[str, Any]:
    """The first user message: request, issue, notes, materials (texts by name, such as plan or diff) and facts.

    Everything others wrote is framed as data; what is too long loses its middle.
    """
    words = contract.request
    parts = [framed("request", words)] if words.strip() or contract.issue is None else []
    if contract.issue is not None:
        parts += framed_issue(contract.issue, alone=not parts)
    if step in NOTED:
        parts += [framed(f"note {note.path}", _bounded(note.text)) for note in contract.notes]
    known = [name for name in _ORDER if name in materials]
    for name in [*known, *sorted(materials.keys() - set(known))]:
        parts.append(framed(name, _bounded(materials[name])))
    parts.append(_facts(step, contract))
    return user_message(*parts)


def user_message(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def _facts(step: Step, contract: Contract) -> str:
    """What the engine itself has to say, outside any frame."""
    lines = [f"Carry out step {step} for the request above."]
    if step in TESTING:
        commands = [f"- {test.name}: {test.command}" for test in contract.config.test or ()]
        lines += ["Test commands of this repository:", *commands] if commands else ["No test command is known."]
    if contract.allow_test_changes and step is not Step.CLASSIFY:
        lines.append("The request is about tests: existing tests may be changed as it asks.")
    return "\n".join(lines)


def _bounded(text: str) -> str:
    return middle_out(text, MATERIAL_CHARS)


@cache
def _text(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()
