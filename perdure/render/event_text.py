"""An event as a plain sentence: for the page's activity, and for whoever lists events to people. Everything in it that
others wrote is on one line and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.models.delivery.result_text import step_name
from perdure.models.events import Event, EventType
from perdure.models.phases import Step
from perdure.models.webui.captions import WAITS_FOR_YOU
from perdure.text import format_count, format_money, one_line, short_sha

_LINE_CHARS = 200

_TOLD_BY_THEIR_RESULT = frozenset({Step.COMMIT, Step.RUN_TESTS, Step.OPEN_PULL_REQUEST, Step.LAND, Step.REVIEW})
"""Steps whose end says nothing that the event of their result has not said."""


def is_repetition(event: Event) -> bool:
    """Return whether an event tells people nothing that another one beside it has not told."""
    if event.type == EventType.STEP_ENDED:
        return event.step in _TOLD_BY_THEIR_RESULT
    if event.type == EventType.STEP_STARTED:
        return event.step == Step.COMMIT
    if event.type == EventType.WAITING:
        return _text(event.data, "why").startswith(WAITS_FOR_YOU)  # the gate says it
    return event.type == EventType.CONTINUED and event.data.get("by") == "length"


def event_sentence(event: Event) -> str:
    """Return what happened in words, with step and turn where it is of one: `implement, turn 3: edit calc.py`."""
    sentence = _SENTENCES[event.type](event.data)
    if event.step and event.type not in (EventType.COMMIT, EventType.TEST_RESULT, EventType.REVIEW, EventType.RECEIPT):
        where = step_name(event.step, event.attempt or 1)
        if event.turn and not sentence.startswith(f"turn {event.turn}"):
            where += f", turn {event.turn}"
        sentence = f"{where}: {sentence}"
    return one_line(sentence, _LINE_CHARS)


Data = Mapping[str, Any]


def _text(data: Data, name: str) -> str:
    """Return a field as text; empty where it is none: signals and updates carry what their senders wrote."""
    value = data.get(name)
    return one_line(value, _LINE_CHARS) if isinstance(value, str) else ""


def _count(data: Data, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0


def _object(data: Data, name: str) -> Data:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _with(sentence: str, more: str, joint: str = ": ") -> str:
    """Return a sentence with more behind it, where there is more."""
    return f"{sentence}{joint}{more}" if more else sentence


def _started(data: Data) -> str:
    begins = _text(data, "begins")
    return _with(f"starts at {begins[:16].replace('T', ' ')} UTC" if begins else "started", _text(data, "request"))


def _continued(data: Data) -> str:
    by = {"retry": "retried from its last checkpoint", "rewind": "rewound to an earlier turn"}
    return by.get(_text(data, "by"), "its history goes on in another run")


def _turn(data: Data) -> str:
    cost = data.get("cost_usd")
    paid = format_money(cost) if isinstance(cost, int | float) else "cost unknown"
    return _with(_text(data, "summary") or "a turn", paid, " · ")


def _step_ended(data: Data) -> str:
    ending = _text(data, "ending").replace("_", " ")
    return _with("done" if ending in ("", "done") else f"ended, {ending}", _text(data, "summary"))


def _commit(data: Data) -> str:
    return _with(f"commit {short_sha(_text(data, 'commit'))}", _text(data, "summary"))


def _test_result(data: Data) -> str:
    return _with(f"tests {_text(data, 'status') or 'ended'}", _text(data, "summary"))


def _review(data: Data) -> str:
    counts = [
        f"{_count(data, name)} {word}"
        for name, word in (("blocker", "blockers"), ("tech_debt", "tech debt"), ("skippable", "skippable"))
    ]
    return f"review: {', '.join(counts)}"


def _gate(data: Data) -> str:
    return _with("waits for a decision", _text(data, "words")) if data.get("gate") else "no decision is needed any more"


def _waiting(data: Data) -> str:
    return _with("waits", _text(data, "why"))


_UPDATES = {
    "approve": "approved",
    "reject": "rejected",
    "answer": "question answered",
    "edit_plan": "plan edited",
    "add_budget": "budget raised",
}


def _decision(data: Data) -> str:
    payload = _object(data, "said")
    sentence = _UPDATES.get(_text(data, "name")) or f"{_text(data, 'name').replace('_', ' ')} decided"
    by, comment = _text(payload, "by"), _text(payload, "note") or _text(payload, "answer")
    return _with(_with(sentence, by, " by "), comment)


_SIGNALS = {
    "resume": "resumed",
    "rewind": "is to be rewound",
    "granted": "got its share of the budget",
    "landing_granted": "may land now",
    "landing_asked": "asks to land",
    "landing_over": "has ended its turn to land",
    "item_waits": "waits for a person",
    "item_planned": "planned",
    "item_foreseen": "says which files it will touch",
    "item_ended": "ended",
    "attempt_waits": "an attempt waits for a person",
    "begins": "begins",
}


def _signal_sentence(name: str, payload: Data) -> str:
    """Return a signal in words; of one that nobody here knows, its name."""
    by = _text(payload, "by")
    match name:
        case "say":
            return _with(f"{by} says" if by else "message", _text(payload, "text"))
        case "hold":
            return _with(_with("held", by, " by "), _text(payload, "reason"))
        case "decide":
            update = _text(payload, "update")
            return _decision({"name": update, "said": payload.get("said")})
        case _:
            outcome = _text(payload, "status") or _text(payload, "words")
            return _with(_SIGNALS.get(name, name.replace("_", " ")), outcome.replace("_", " "))


def _signal(data: Data) -> str:
    return _signal_sentence(_text(data, "name"), _object(data, "said"))


def _item(data: Data) -> str:
    return _signal_sentence(_text(data, "event"), data)


def _worker_death(data: Data) -> str:
    return f"its worker died; try {_count(data, 'tries')} goes on"


def _landing(data: Data) -> str:
    commit = _text(data, "commit")
    return _with(f"landed as {short_sha(commit)}" if commit else "could not land", _text(data, "summary"))


def _pull_request(data: Data) -> str:
    kind = "draft pull request" if data.get("draft") else "pull request"
    return _with(f"{kind} #{_count(data, 'number')}", _text(data, "url"))


def _receipt(data: Data) -> str:
    parts = [
        format_count(_count(data, "worker_deaths"), "worker death"),
        f"{format_count(_count(data, 'turns_redone'), 'turn')} redone",
        f"{format_count(_count(data, 'replies_paid_twice'), 'reply', 'replies')} paid twice",
    ]
    return f"receipt: {', '.join(parts)}"


def _ended(data: Data) -> str:
    return _with(_text(data, "outcome").replace("_", " ") or "ended", _text(data, "reason"))


_SENTENCES: Mapping[EventType, Callable[[Data], str]] = {
    EventType.STARTED: _started,
    EventType.CONTINUED: _continued,
    EventType.PHASE: lambda data: f"phase {_text(data, 'phase')}",
    EventType.STEP_STARTED: lambda data: "begins, to mend what was found" if data.get("correction") else "begins",
    EventType.ACTIVITY: _turn,
    EventType.STEP_ENDED: _step_ended,
    EventType.STEP_FAILED: lambda data: _with("failed", _text(data, "why")),
    EventType.COMMIT: _commit,
    EventType.TEST_RESULT: _test_result,
    EventType.REVIEW: _review,
    EventType.QUESTION: lambda data: _with("asks", _text(data, "text")),
    EventType.GATE: _gate,
    EventType.WAITING: _waiting,
    EventType.DECISION: _decision,
    EventType.SAID: _signal,
    EventType.WORKER_DEATH: _worker_death,
    EventType.LANDING: _landing,
    EventType.PULL_REQUEST: _pull_request,
    EventType.RECEIPT: _receipt,
    EventType.ITEM: _item,
    EventType.ENDED: _ended,
}
