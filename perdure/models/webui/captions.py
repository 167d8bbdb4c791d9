"""Captions beside each activity in the Web UI's timeline: its summary, the most visible text of a delivery."""

from __future__ import annotations

from perdure.models.phases import Step
from perdure.models.state import DeliveryState

_LONGEST = 66
"""The timeline writes it beside the bar, in the half that is left: of more, a small screen cuts off the beginning."""


def step_caption(step: str, attempt: int, state: DeliveryState, subject: str = "") -> str:
    """Return the caption of a step that is one activity, whose name stands beside it already. `subject`: of its
    commit."""
    prepared = state.prepared
    match step:
        case Step.PREPARE:
            text = "workspace, setup, tests on the base"
        case Step.RUN_TESTS:
            text = f"on a clean checkout of {state.head[:7]}" if state.head else "on a clean checkout"
        case Step.OPEN_PULL_REQUEST:
            text = f"{prepared.branch} → {prepared.base}" if prepared else ""
        case "take_tasks":
            text = "what the plan's tasks have built"
        case "take_attempt":
            text = "the best of several attempts at the plan"
        case "capture_pages":
            text = "the application's pages, for the reviewer"
        case _:
            text = " ".join(subject.split())
    return _cut(_round_prefix(attempt) + text)


def turn_caption(attempt: int, turn: int, previous_summary: str, model: str) -> str:
    """Return a turn's caption: `turn 3, after edit src/x.py, pytest -q`.

    previous_summary  of the turn before, empty for the first, whose caption names the model instead
    """
    happened = previous_summary.partition(" · ")[2]
    return _cut(f"{_round_prefix(attempt)}turn {turn}" + (f", after {happened}" if happened else f" · {model}"))


def wait_caption(question: str) -> str:
    """Return the caption of the timer under which a delivery waits for a person to decide."""
    return _cut(f"waiting for you: {' '.join(question.split())}")


def _round_prefix(attempt: int) -> str:
    """Return `round 2 · ` from the second attempt on, else nothing."""
    return f"round {attempt} · " if attempt > 1 else ""


def _cut(text: str) -> str:
    """Return the text, cut at _LONGEST with "…"."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
