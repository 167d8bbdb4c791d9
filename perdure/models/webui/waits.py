"""The last part of a waiting delivery's details: what a person is asked, and what to send, to be copied."""

from __future__ import annotations

import json

from perdure.models.decisions import Asked, Gate, Question, QuestionKind
from perdure.models.state import DeliveryState
from perdure.models.webui.markdown import cell, code, compact, copied

_UPDATE = "Copy the JSON, then More Actions, Send an Update, choose the name, paste:"
_HOW = {
    Gate.PLAN: "To read the plan",
    Gate.TESTS: "To read what the tests said",
    Gate.PULL_REQUEST: "To read the change",
}


def headline(state: DeliveryState) -> str:
    """Return what a person sees first of one that waits for somebody; empty when it waits for nobody."""
    if (asked := state.asked) is not None:
        words = "an agent asks" if asked.question is not None else asked.words
        return f"Waiting for you: {cell(words, 200)}"
    return cell(state.held[:1].upper() + state.held[1:], 200) if state.held else ""


def waiting_for_you(state: DeliveryState, delivery: str = "") -> list[str]:
    """The last section, in Markdown lines; none when nothing is asked and nothing is held, or it has ended."""
    if state.status is not None:
        return []
    if (asked := state.asked) is not None:
        return ["### Waiting for you", *_asked(asked), *_material(asked, state, delivery), "", *_decisions(asked)]
    if state.held:
        return ["### Waiting for you", "More Actions, Send a Signal, `resume` lets it go on:", *copied("{}")]
    return []


def _asked(asked: Asked) -> list[str]:
    lines = _question(asked.question) if asked.question is not None else [f"**Decide:** {cell(asked.words, 300)}"]
    lines.append(f"**Since:** {asked.since:%Y-%m-%d %H\\:%M} UTC")
    if asked.expires is not None:
        lines.append(f"**Ends by itself:** {asked.expires:%Y-%m-%d %H\\:%M} UTC, undecided")
    return lines


def _question(question: Question) -> list[str]:
    why = [f"**It matters:** {cell(question.why, 500)}"] if question.why else []
    return [f"**Question:** {cell(question.text, 1000)}", *why]


def _material(asked: Asked, state: DeliveryState, delivery: str) -> list[str]:
    """Say how to read in the Web UI what is decided: it is in the vault, and no history holds it."""
    if not delivery or state.prepared is None or asked.gate not in _HOW:
        return []
    how = f"**{_HOW[asked.gate]}:** Standalone Activities, Start, type `read`, queue {code(state.prepared.queue)}, data"
    what: dict[str, object] = {"delivery": delivery, "what": "diff"}
    if asked.gate is Gate.TESTS:
        report = state.tests.report if state.tests else ""
        what = {"delivery": delivery, "what": "artifact", "checkpoint": report}
    elif asked.gate is Gate.PLAN:
        what = {"delivery": delivery, "what": "artifact", "checkpoint": state.plan}
    return ["", how, *copied(compact(what))]


def _decisions(asked: Asked) -> list[str]:
    lines = [_UPDATE]
    for name, said in asked.examples():
        if name == "edit_plan":
            lines.append("`edit_plan` needs a terminal: `perdure approve --edit`")
            continue
        lines.append(f"`{name}`")
        for choice in _choices(asked, said) if name == "answer" else [said]:
            lines += copied(choice)
    return lines


def _choices(asked: Asked, example: str) -> list[str]:
    """A line for each answer there is; for a free one the example."""
    question = asked.question
    if question is None or question.kind is QuestionKind.TEXT:
        return [example]
    answers = ("yes", "no") if question.kind is QuestionKind.YES_NO else question.choices
    return [compact({**json.loads(example), "answer": answer}) for answer in answers]
