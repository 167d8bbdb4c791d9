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
        return _text_field(event.data, "why").startswith(WAITS_FOR_YOU)  # the gate says it
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


def _text_field(data: Data, name: str) -> str:
    """Return a field as text; empty where it is none: signals and updates carry what their senders wrote."""
    value = data.get(name)
    return one_line(value, _LINE_CHARS) if isinstance(value, str) else ""


def _count_field(data: Data, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0


def _object_field(data: Data, name: str) -> Data:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _add_detail(sentence: str, more: str, joint: str = ": ") -> str:
    """Return a sentence with more behind it, where there is more."""
    return f"{sentence}{joint}{more}" if more else sentence


def _started_sentence(data: Data) -> str:
    begins = _text_field(data, "begins")
    return _add_detail(
        f"starts at {begins[:16].replace('T', ' ')} UTC" if begins else "started", _text_field(data, "request")
    )


def _continued_sentence(data: Data) -> str:
    by = {"retry": "retried from its last checkpoint", "rewind": "rewound to an earlier turn"}
    return by.get(_text_field(data, "by"), "its history goes on in another run")


def _turn_sentence(data: Data) -> str:
    cost = data.get("cost_usd")
    paid = format_money(cost) if isinstance(cost, int | float) else "cost unknown"
    return _add_detail(_text_field(data, "summary") or "a turn", paid, " · ")


def _step_ended_sentence(data: Data) -> str:
    ending = _text_field(data, "ending").replace("_", " ")
    return _add_detail("done" if ending in ("", "done") else f"ended, {ending}", _text_field(data, "summary"))


def _commit_sentence(data: Data) -> str:
    return _add_detail(f"commit {short_sha(_text_field(data, 'commit'))}", _text_field(data, "summary"))


def _test_result_sentence(data: Data) -> str:
    return _add_detail(f"tests {_text_field(data, 'status') or 'ended'}", _text_field(data, "summary"))


def _review_sentence(data: Data) -> str:
    counts = [
        f"{_count_field(data, name)} {word}"
        for name, word in (("blocker", "blockers"), ("tech_debt", "tech debt"), ("skippable", "skippable"))
    ]
    return f"review: {', '.join(counts)}"


def _gate_sentence(data: Data) -> str:
    return (
        _add_detail("waits for a decision", _text_field(data, "words"))
        if data.get("gate")
        else "no decision is needed any more"
    )


def _waiting_sentence(data: Data) -> str:
    return _add_detail("waits", _text_field(data, "why"))


_UPDATES = {
    "approve": "approved",
    "reject": "rejected",
    "answer": "question answered",
    "edit_plan": "plan edited",
    "add_budget": "budget raised",
}


def _decision_sentence(data: Data) -> str:
    payload = _object_field(data, "said")
    sentence = _UPDATES.get(_text_field(data, "name")) or f"{_text_field(data, 'name').replace('_', ' ')} decided"
    by, comment = _text_field(payload, "by"), _text_field(payload, "note") or _text_field(payload, "answer")
    return _add_detail(_add_detail(sentence, by, " by "), comment)


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


def _message_sentence(name: str, payload: Data) -> str:
    """Return a signal in words; of one that nobody here knows, its name."""
    by = _text_field(payload, "by")
    match name:
        case "say":
            return _add_detail(f"{by} says" if by else "message", _text_field(payload, "text"))
        case "hold":
            return _add_detail(_add_detail("held", by, " by "), _text_field(payload, "reason"))
        case "decide":
            update = _text_field(payload, "update")
            return _decision_sentence({"name": update, "said": payload.get("said")})
        case _:
            outcome = _text_field(payload, "status") or _text_field(payload, "words")
            return _add_detail(_SIGNALS.get(name, name.replace("_", " ")), outcome.replace("_", " "))


def _signal_sentence(data: Data) -> str:
    return _message_sentence(_text_field(data, "name"), _object_field(data, "said"))


def _item_sentence(data: Data) -> str:
    return _message_sentence(_text_field(data, "event"), data)


def worker_death_sentence(data: Data) -> str:
    """Return what is said of a worker's death: of the data of its event, or of a try that is under way."""
    cause = "no sign of its worker" if data.get("silent") is True else "its worker died"
    successor = _text_field(data, "worker").rpartition("/")[0]  # pid@host of pid@host/worker
    return f"{cause}; try {_count_field(data, 'tries')} goes on{f' at {successor}' if successor else ''}"


def _landing_sentence(data: Data) -> str:
    commit = _text_field(data, "commit")
    return _add_detail(f"landed as {short_sha(commit)}" if commit else "could not land", _text_field(data, "summary"))


def _pull_request_sentence(data: Data) -> str:
    kind = "draft pull request" if data.get("draft") else "pull request"
    return _add_detail(f"{kind} #{_count_field(data, 'number')}", _text_field(data, "url"))


def _receipt_sentence(data: Data) -> str:
    parts = [
        format_count(_count_field(data, "worker_deaths"), "worker death"),
        f"{format_count(_count_field(data, 'turns_redone'), 'turn')} redone",
        f"{format_count(_count_field(data, 'replies_paid_twice'), 'reply', 'replies')} paid twice",
    ]
    return f"receipt: {', '.join(parts)}"


def _ended_sentence(data: Data) -> str:
    return _add_detail(_text_field(data, "outcome").replace("_", " ") or "ended", _text_field(data, "reason"))


_SENTENCES: Mapping[EventType, Callable[[Data], str]] = {
    EventType.STARTED: _started_sentence,
    EventType.CONTINUED: _continued_sentence,
    EventType.PHASE: lambda data: f"phase {_text_field(data, 'phase')}",
    EventType.STEP_STARTED: lambda data: "begins, to mend what was found" if data.get("correction") else "begins",
    EventType.ACTIVITY: _turn_sentence,
    EventType.STEP_ENDED: _step_ended_sentence,
    EventType.STEP_FAILED: lambda data: _add_detail("failed", _text_field(data, "why")),
    EventType.COMMIT: _commit_sentence,
    EventType.TEST_RESULT: _test_result_sentence,
    EventType.REVIEW: _review_sentence,
    EventType.QUESTION: lambda data: _add_detail("asks", _text_field(data, "text")),
    EventType.GATE: _gate_sentence,
    EventType.WAITING: _waiting_sentence,
    EventType.DECISION: _decision_sentence,
    EventType.SAID: _signal_sentence,
    EventType.WORKER_DEATH: worker_death_sentence,
    EventType.LANDING: _landing_sentence,
    EventType.PULL_REQUEST: _pull_request_sentence,
    EventType.RECEIPT: _receipt_sentence,
    EventType.ITEM: _item_sentence,
    EventType.ENDED: _ended_sentence,
}
