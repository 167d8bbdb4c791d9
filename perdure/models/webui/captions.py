"""Captions beside each activity in the Web UI's timeline: its summary, the most visible text of a delivery."""

from __future__ import annotations

from perdure.models.phases import Step
from perdure.models.state import DeliveryState

_LONGEST = 66
"""The timeline writes it beside the bar, in the half that is left: of more, a small screen cuts off the beginning."""


def of_step(step: str, attempt: int, state: DeliveryState, subject: str = "") -> str:
    """For a step that is one activity; its name stands beside it already. `subject`: of the commit."""
    prepared = state.prepared
    match step:
        case Step.PREPARE:
            words = "workspace, setup, tests on the base"
        case Step.RUN_TESTS:
            words = f"on a clean checkout of {state.head[:7]}" if state.head else "on a clean checkout"
        case Step.OPEN_PULL_REQUEST:
            words = f"{prepared.branch} → {prepared.base}" if prepared else ""
        case "take_tasks":
            words = "what the plan's tasks have built"
        case "take_attempt":
            words = "the best of several attempts at the plan"
        case "capture_pages":
            words = "the application's pages, for the reviewer"
        case _:
            words = " ".join(subject.split())
    return _cut(_round(attempt) + words)


def of_turn(attempt: int, turn: int, before: str, model: str) -> str:
    """`turn 3, after edit src/x.py, pytest -q`. `before`: the summary of the turn before, empty for the first."""
    happened = before.partition(" · ")[2]
    return _cut(f"{_round(attempt)}turn {turn}" + (f", after {happened}" if happened else f" · {model}"))


def of_wait(words: str) -> str:
    """For the timer under which it waits for a person to decide."""
    return _cut(f"waiting for you: {' '.join(words.split())}")


def _round(attempt: int) -> str:
    return f"round {attempt} · " if attempt > 1 else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
