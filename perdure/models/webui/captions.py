"""Short texts about a delivery: the captions beside each activity in the Web UI's timeline; and the texts of three
search attributes: the title, the size of the change and what is waited for, made here when they are set and parsed
again when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.result_text import change_line
from perdure.models.issue import IssueName
from perdure.models.limits import KEYWORD_BYTES
from perdure.models.phases import Step
from perdure.text import cut_bytes, format_count, one_line, shorten, visible

if TYPE_CHECKING:
    from perdure.models.delivery.state import DeliveryState

_LONGEST = 66
"""The timeline writes it beside the bar, in the half that is left: of more, a small screen cuts off the beginning."""


def step_caption(step: str, attempt: int, state: DeliveryState, subject: str = "") -> str:
    """Return the caption of a step that is one activity, beside which its name stands already, at most _LONGEST
    characters; from the second attempt on with its number.

    subject  of the commit that the step makes; the caption of steps that have no text of their own
    """
    prepared = state.prepared
    match step:
        case Step.PREPARE:
            text = "workspace, setup, tests on the base"
        case Step.RUN_TESTS:
            text = f"on a clean checkout of {state.building.head[:7]}" if state.building.head else "on a clean checkout"
        case Step.OPEN_PULL_REQUEST:
            text = f"{prepared.branch} → {prepared.base_commit.branch}" if prepared else ""
        case "take_tasks":
            text = "what the plan's tasks have built"
        case "take_attempt":
            text = "the best of several attempts at the plan"
        case "capture_pages":
            text = "the application's pages, for the reviewer"
        case _:
            text = " ".join(subject.split())
    return shorten(_round_prefix(attempt) + text, _LONGEST)


def turn_caption(attempt: int, turn: int, previous_summary: str, model: str) -> str:
    """Return a turn's caption, at most _LONGEST characters: `turn 3, after edit src/x.py, pytest -q`.

    previous_summary  of the turn before; empty for the first, whose caption names the model instead
    """
    happened = previous_summary.partition(" · ")[2]
    after = f", after {happened}" if happened else f" · {model}"
    return shorten(f"{_round_prefix(attempt)}turn {turn}{after}", _LONGEST)


WAITS_FOR_YOU = "waiting for you: "
"""Beginning of such a caption."""


def wait_caption(question: str) -> str:
    """Return the caption of the timer under which a delivery waits for a person to decide."""
    return shorten(f"{WAITS_FOR_YOU}{' '.join(question.split())}", _LONGEST)


def _round_prefix(attempt: int) -> str:
    """Return `round 2 · ` from the second attempt on, else nothing."""
    return f"round {attempt} · " if attempt > 1 else ""


TITLE_CHARS = 120
"""Of a delivery's title: two lines of a narrow screen."""


def fit_title(text: str) -> str:
    """Return the first line of a text that is not blank as a title: what a person sees of it, at most TITLE_CHARS
    characters and KEYWORD_BYTES bytes, with `…` at the end where it is cut."""
    title = one_line(next((line for line in visible(text).split("\n") if line.strip()), ""), TITLE_CHARS)
    if len(title.encode()) <= KEYWORD_BYTES:
        return title
    return cut_bytes(title, KEYWORD_BYTES - len("…".encode())).rstrip() + "…"


def delivery_title(state: DeliveryState, request: DeliveryRequest) -> str:
    """Return the title of a delivery as far as it is known: its issue's or branch's, else its plan's, else the first
    line of its request with the issue's number before it."""
    known_title = (state.prepared.request.title if state.prepared else "") or state.planning.title
    number = f"#{request.issue_number} " if request.issue_number and not known_title else ""
    return fit_title(known_title or number + request.request.lstrip())


def backlog_title(item_ids: Sequence[str]) -> str:
    """Return the title of a backlog with these items: `8 items: api, page, …`."""
    return fit_title(f"{format_count(len(item_ids), 'item')}: {', '.join(item_ids)}")


def request_title(raw: dict[str, Any]) -> str:
    """Return the title of a request as it was sent, as lists show it; also of one that is not valid."""
    text = str(raw.get("request") or describe_items(raw)).lstrip()
    return fit_title(" ".join(filter(None, (issue_number(raw), text))))


def issue_number(raw: dict[str, Any]) -> str:
    """Return the number of the issue that a request names, as `#12`; empty where it names none that has a number."""
    try:
        return f"#{IssueName.parse(str(raw['issue'])).number}" if raw.get("issue") is not None else ""
    except ValueError:
        return ""


def describe_items(raw: dict[str, Any]) -> str:
    """Return a backlog's items in words, `8 items: api, page, …`, and its issue selector; empty for anything else."""
    items, issues = raw.get("items"), [f"issues {raw['issues']}"] if isinstance(raw.get("issues"), str) else []
    names = [str(item.get("id") or item.get("issue")) for item in items or () if isinstance(item, dict)]
    listed = [backlog_title(names)] if names else []
    return " · ".join([*listed, *issues])


_SHOWN_CHARS = 200
"""Servers whose lists are in an SQL database take 255."""

_TESTS, _SINCE, _MOMENT = " · tests ", " · since ", "%Y-%m-%dT%H:%M:%SZ"


def format_change(state: DeliveryState) -> str:
    """Return the size of the change and its tests, `+120 −14 in 3 files · tests 455/455`.

    Empty while there is no commit; without the tests when the newest commit was not tested.
    """
    size, tests = state.building.change_size, state.testing.verdict
    if size is None:
        return ""
    text = change_line(size.files, size.added, size.deleted)
    if (
        tests is None
        or state.testing.tested_commit != state.building.head
        or tests.status not in (TestsStatus.GREEN, TestsStatus.RED)
    ):
        return text
    if tests.passed is None:
        return f"{text}{_TESTS}{tests.status}"
    return f"{text}{_TESTS}{tests.passed}/{tests.passed + (tests.failed or 0)}"


def format_waiting(text: str, since: datetime) -> str:
    """Return what a delivery waits for and since when: `held by Ada: lunch · since 2026-01-02T12:00:00Z`; empty for no
    text."""
    return f"{one_line(text, _SHOWN_CHARS)}{_SINCE}{since.astimezone(UTC).strftime(_MOMENT)}" if text else ""


def parse_waiting(value: str) -> tuple[str, datetime | None]:
    """Parse a text of `format_waiting` into what it waits for and since when; a text without a valid time is returned
    whole, with None."""
    text, _, since = value.rpartition(_SINCE)
    try:
        return text, datetime.strptime(since, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return value, None
