"""Decisions a delivery waits for, the verdicts of people, and their words to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from perdure.models.amounts import Duration
from perdure.models.backlog import BacklogItem
from perdure.models.base import Recorded, Written, a_number, kind_of
from perdure.models.errors import InvalidRequest
from perdure.models.limits import NAME_CHARS, SAID_BYTES, TOKENS_MOST, USD_MOST
from perdure.models.request import explain
from perdure.text import one_line

_NAME_SHOWN = 60
"""Characters of a person's name in one line."""


class Gate(StrEnum):
    """A point where a person decides; `tests`: whether what fails was there before, where nothing else can tell;
    `deaths`: whether work that was cut off again and again is tried once more; `landing`: whether a change that could
    not land, twice, is mended once more; `items`: whether a large request consists of these items."""

    PLAN = "plan"
    ITEMS = "items"
    TESTS = "tests"
    PULL_REQUEST = "pull_request"
    BUDGET = "budget"
    QUESTION = "question"
    DEATHS = "deaths"
    LANDING = "landing"


class Verdict(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"
    EDITED = "edited"
    ANSWERED = "answered"
    EXPIRED = "expired"


class QuestionKind(StrEnum):
    TEXT = "text"
    CHOICE = "choice"
    YES_NO = "yes_no"


class Question(Recorded):
    """An agent's question. `why`: what depends on the answer."""

    text: str
    kind: QuestionKind = QuestionKind.TEXT
    choices: tuple[str, ...] = ()
    why: str = ""


_MORE: dict[str, dict[str, Any]] = {"tokens": {"tokens": 500_000}, "time": {"time": "1h"}}
"""Dollars do not help where tokens or time have run out."""


class Asked(Recorded):
    """The one thing a delivery waits for.

    of      names what is decided: the beginning of the plan's or commit's hash, or a number; a decision repeats it, so
            that it can never decide something else after a rewind (holes.md H7)
    words   what is asked, in one line
    since   when it began to wait; `expires`: when it ends by itself, None: never
    options which verdicts are open: the names of the updates to send
    limit   which one is reached, at gate budget: usd, tokens or time; that is what add_budget has to raise
    """

    gate: Gate
    of: str
    words: str
    since: datetime
    expires: datetime | None = None
    question: Question | None = None
    options: tuple[str, ...] = ("approve", "reject")
    limit: str = ""

    @property
    def key(self) -> str:
        return f"{self.gate}:{self.of}"

    def examples(self) -> list[tuple[str, str]]:
        """Name and JSON of every update that decides this, as a person would send it."""
        said: dict[str, dict[str, Any]] = {
            "approve": {},
            "reject": {"note": "why, and what instead"},
            "edit_plan": {"plan": "sha256 of the edited plan"},
            "answer": {"answer": self._answer()},
            "add_budget": _MORE.get(self.limit, {"usd": 5}),
        }
        return [(name, json.dumps({"of": self.of, **said[name]})) for name in self.options]

    def _answer(self) -> str:
        question = self.question
        if question is None or question.kind is QuestionKind.TEXT:
            return "your answer"
        return question.choices[0] if question.kind is QuestionKind.CHOICE and question.choices else "yes"


class Decided(Recorded):
    """A decision as it was counted. `artifact`: an edited plan, `note` then its title. `at`: when it was counted."""

    verdict: Verdict
    note: str = ""
    by: str = ""
    artifact: str = ""
    at: datetime | None = None

    @property
    def described(self) -> str:
        """`approved by Ada, 2026-11-23 14:05:12 UTC`, for who decides after them."""
        by = f" by {one_line(self.by, _NAME_SHOWN)}" if self.by else ""
        return f"{self.verdict}{by}" + (f", {self.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.at else "")


class Said(Recorded):
    """Words for the next turn. `id` makes them arrive once; `about`: the question they answer, if any."""

    id: str
    text: str
    about: str = ""


def _bounded(text: str) -> str:
    if len(text.encode()) > SAID_BYTES:
        raise ValueError(
            f"is {len(text.encode())} bytes, at most {SAID_BYTES} fit: put long material into the repository"
        )
    return text


class Deciding(Written):
    """Fields that every decision may carry.

    of    what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives
    gate  likewise, by its kind
    by    who decides, for the record
    """

    of: str = Field(default="", max_length=64)
    gate: Gate | None = None
    by: str = Field(default="", max_length=200)


class Approve(Deciding):
    """Let it go on as it is. `note` is kept with the decision."""

    note: str = ""

    _small = field_validator("note")(_bounded)


class Reject(Deciding):
    """`note` says why: it is what planning or fixing goes back with."""

    note: str = Field(min_length=1)

    _small = field_validator("note")(_bounded)


class EditPlan(Deciding):
    """`plan`: SHA-256 of the edited plan, an artifact of the delivery that `perdure approve --edit` has stored."""

    plan: str = Field(pattern=r"^[0-9a-f]{64}$")
    title: str = Field(default="", max_length=200)


class Answer(Deciding):
    """The answer to an agent's question: its next turn reads it. One of the choices where there are some, yes or no."""

    answer: str = Field(min_length=1)

    _small = field_validator("answer")(_bounded)


class AddBudget(Deciding):
    """More to spend, at any time: dollars, tokens, wall time. The same `id` twice is counted once."""

    id: str = Field(default="", max_length=100)
    usd: float = Field(default=0, ge=0, le=USD_MOST, allow_inf_nan=False)
    tokens: int = Field(default=0, ge=0, le=TOKENS_MOST)
    time: Duration | None = None

    _numbers = field_validator("usd", "tokens", mode="before")(a_number)


class Say(Written):
    """Words for the next turn. The same `id` twice is heard once; without one every signal counts."""

    text: str = Field(min_length=1)
    id: str = Field(default="", max_length=100)

    _small = field_validator("text")(_bounded)


class Rewind(Written):
    """A reset to an earlier turn follows: the run of that id begins no further turn meanwhile. The run that the reset
    makes forgets what was said and held before, and hears `text`.

    to      the turn, for people; since: when it began the first time, the time from then on is not the delivery's
    policy  the terms from there on, made by the delivery's host, where model or agent are others; models: by step
    model, agent    as they were asked for, so that the same rewind is known again
    """

    from_run: str = Field(min_length=1, max_length=100)
    to: str = Field(default="", max_length=100)
    text: str = ""
    id: str = Field(default="", max_length=100)
    since: datetime | None = None
    policy: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    models: dict[str, str] = {}
    model: str = Field(default="", max_length=NAME_CHARS)
    agent: str = Field(default="", max_length=NAME_CHARS)

    _small = field_validator("text")(_bounded)


class Hold(Written):
    """Begin no further turn. `note`: why, for those who wonder; `by`: who says so."""

    note: str = Field(default="", max_length=500)
    by: str = Field(default="", max_length=200)


def holding(note: str, by: str = "") -> str:
    """Say that somebody holds it, and why."""
    if by:
        return f"held by {one_line(by, _NAME_SHOWN)}: {note or 'resume lets it go on'}"
    return f"held: {note}" if note else "held by a person: resume lets it go on"


class Resume(Written):
    """Go on after a hold."""


class Decide(Written):
    """A decision sent as a signal because no worker took the update: `update` names it; `of`, or for `add_budget` an
    `id`, must be in `said`, so that it counts once however often and by whatever way it comes."""

    update: str
    said: dict[str, Any]


class CheckPlanInput(Recorded):
    """An edited plan as somebody named it: `plan`, SHA-256 of an artifact of the delivery; `items`: it has to be a list
    of items."""

    delivery: str
    plan: str
    items: bool = False


class CheckedPlan(Recorded):
    """`problem`: why it cannot be worked by, empty when it can. `title`: its own; `words`: the beginning of it;
    `touches`: the files it names, as patterns; `items`: all of it, where items were asked for."""

    title: str = ""
    words: str = ""
    problem: str = ""
    touches: tuple[str, ...] = ()
    items: tuple[BacklogItem, ...] = ()


class KeepInput(Recorded):
    """Text that a person hands in for a delivery, at most KEPT_BYTES."""

    delivery: str
    text: str


class Kept(Recorded):
    sha256: str


T = TypeVar("T", bound=Written)


def understood(shape: type[T], raw: Any) -> T:
    """Return what somebody sent, or InvalidRequest with one line that names the field."""
    given = {} if raw is None else raw
    if not isinstance(given, dict):
        raise InvalidRequest(f"expected one JSON object, got {kind_of(given)}")
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(explain(error, tuple(shape.model_fields))) from None
