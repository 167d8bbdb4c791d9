"""Every event as a sentence: nothing of a program's is in it, whatever was sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.events import Event, EventType
from perdure.models.webui.captions import wait_caption
from perdure.render.event_text import event_sentence, is_repetition
from perdure.render.formatting import action_text


def event(type: str, data: dict[str, Any], **fields: Any) -> Event:
    return Event(offset=0, time="2026-11-23T08:00:00.123Z", delivery="d", type=EventType(type), data=data, **fields)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (event("said", {"name": "say", "said": {"text": "mind the sign", "by": "ada"}}), "ada says: mind the sign"),
        (event("said", {"name": "landing_granted", "said": {"seq": 3, "head": "abc"}}), "may land now"),
        (event("said", {"name": "hold", "said": {"reason": "lunch", "by": "ada"}}), "held by ada: lunch"),
        (event("said", {"name": "somebody_s_own", "said": {"x": [1]}}), "somebody s own"),
        (event("said", {"name": "say", "said": "no object"}), "message"),
        (
            event("decision", {"name": "reject", "said": {"of": "1a", "note": "too large", "by": "ada"}}),
            "rejected by ada: too large",
        ),
        (
            event("activity", {"summary": "turn 3 · edit calc.py", "cost_usd": 0.02}, step="implement", turn=3),
            "implement: turn 3 · edit calc.py · $0.02",
        ),
        (event("activity", {"cost_usd": None}, step="implement", turn=4), "implement, turn 4: a turn · cost unknown"),
        (event("gate", {"gate": "", "of": "", "words": ""}), "no decision is needed any more"),
        (event("gate", {"gate": "plan", "words": "approve the plan"}), "waits for a decision: approve the plan"),
        (
            event("worker_death", {"activity": "implement", "tries": 2}, step="implement", turn=4),
            "implement, turn 4: its worker died; try 2 goes on",
        ),
        (event("worker_death", {"tries": 2, "worker": "7@box/0a"}), "its worker died; try 2 goes on at 7@box"),
        (event("worker_death", {"tries": 2, "silent": True}), "no sign of its worker; try 2 goes on"),
        (event("landing", {"commit": "0fdf8d0123", "summary": ""}), "landed as 0fdf8d0"),
        (event("item", {"event": "item_ended", "status": "no_changes", "run_id": "01a2"}), "ended: no changes"),
        (event("continued", {"by": "rewind"}), "rewound to an earlier turn"),
        (event("ended", {"outcome": "not_delivered", "reason": "tests red"}), "not delivered: tests red"),
    ],
)  # fmt: skip
def test_an_event_is_a_sentence(told: Event, sentence: str) -> None:
    assert event_sentence(told) == sentence


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
FIELDS = (
    *("name", "said", "summary", "commit", "status", "cost_usd", "gate", "words", "why", "text", "event"),
    *("number", "url", "outcome", "by", "tries", "begins"),
)


@given(st.sampled_from(EventType), st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=6))
def test_whatever_was_sent_there_is_one_line_about_it(type: EventType, data: dict[str, Any]) -> None:
    line = event_sentence(event(type, data))
    assert "\n" not in line
    assert len(line) <= 200


def test_what_is_told_by_its_result_is_not_told_twice() -> None:
    assert is_repetition(event("step_ended", {"ending": "done"}, step="commit"))
    assert not is_repetition(event("step_ended", {"ending": "done"}, step="implement"))
    assert is_repetition(event("waiting", {"why": wait_caption("approve the plan")})), "the gate says it"
    assert not is_repetition(event("waiting", {"why": "its share of the budget"}))


def test_a_piece_of_json_that_streams_in_is_named() -> None:
    pieces = ('"sub(3, 2) is 1"] }', '{"title": "Add', '"files": ["calc.py"]')
    assert [action_text(piece) for piece in pieces] == ["writing its answer"] * 3
    commands = ("pytest -q", 'printf "x" >> calc.py', "edit src/x.py, pytest -q", "waiting for the model")
    assert [action_text(command) for command in commands] == list(commands)
