"""Decisions that a delivery waits for, people's decisions and messages as they are sent and as they are recorded, and
the parsing of what is sent. The rules by which they count are in perdure/models/rules/inbox.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import HistoryModel, SignalModel, UserInputModel, json_type_name, require_number
from perdure.models.delivery.request import describe_invalid_field
from perdure.models.duration import Duration
from perdure.models.errors import InvalidRequest
from perdure.models.limits import MESSAGE_BYTES, NAME_CHARS, PERSON_CHARS, TOKENS_MOST, USD_LEAST, USD_MOST
from perdure.text import one_line, shorten

_PERSON_NAME_CHARS = 60
"""Characters of a person's name that are shown in one line."""


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


class GateVerdict(StrEnum):
    """The verdict at a gate; `expired`: nobody decided in time."""

    APPROVED = "approved"
    REJECTED = "rejected"
    EDITED = "edited"
    ANSWERED = "answered"
    EXPIRED = "expired"


QUESTION_CHARS = 200
"""The most characters of an agent's question in the one line by which people are told of it."""


class QuestionKind(StrEnum):
    TEXT = "text"
    CHOICE = "choice"
    YES_NO = "yes_no"


class Question(HistoryModel):
    """An agent's question. `why`: what depends on the answer."""

    text: str
    kind: QuestionKind = QuestionKind.TEXT
    choices: tuple[str, ...] = ()
    why: str = ""

    @property
    def line(self) -> str:
        """Return the question in the one line by which people are told of it."""
        return shorten(f"question: {self.text}", QUESTION_CHARS)


_BUDGET_EXAMPLES: dict[str, int | str] = {"usd": 5, "tokens": 500_000, "time": "1h"}
"""Examples of what to add, by the limit that was reached: dollars do not help where tokens or time have run out."""


class PendingDecision(HistoryModel):
    """The one thing a delivery waits for.

    of      names what is decided: the beginning of the plan's or commit's hash, or a number; a decision repeats it, so
            that it can never decide something else after a rewind
    words   what is asked, in one line
    since   when it began to wait; `expires`: when it ends by itself, None: never
    options which verdicts are open: the names of the updates to send
    limit   which one is reached, at gate budget: usd, tokens or time; that is what add_budget has to raise
    """

    always_written = frozenset({"options"})  # programs read them in the memo and in `progress`

    gate: Gate
    target: Annotated[str, Field(alias="of")]
    summary: Annotated[str, Field(alias="words")]
    since: datetime
    expires: datetime | None = None
    question: Question | None = None
    options: tuple[str, ...] = ("approve", "reject")
    limit: str = ""

    @property
    def key(self) -> str:
        """Return the key under which the decision is kept once it is made: gate and target, `plan:1a2b3c4d`."""
        return f"{self.gate}:{self.target}"

    @property
    def budget_example(self) -> tuple[str, int | str]:
        """Return what to add where a budget is spent: the field of AddBudget, and an example of its value."""
        limit = self.limit if self.limit in _BUDGET_EXAMPLES else "usd"
        return limit, _BUDGET_EXAMPLES[limit]

    @property
    def budget_options(self) -> str:
        """Return the options of `perdure budget` that add `budget_example`."""
        field, value = self.budget_example
        return f"{'--add' if field == 'usd' else f'--{field}'} {value}"

    def example_updates(self) -> list[tuple[str, str]]:
        """Return name and JSON of every update that decides this, with an example of its payload, as a person would
        send it."""
        payloads: dict[str, dict[str, Any]] = {
            "approve": {},
            "reject": {"note": "why, and what instead"},
            "edit_plan": {"plan": "sha256 of the edited plan"},
            "answer": {"answer": self._example_answer()},
            "add_budget": dict([self.budget_example]),
        }
        return [(name, json.dumps({"of": self.target, **payloads[name]})) for name in self.options]

    def _example_answer(self) -> str:
        """Return an answer that fits the question: the first of its choices, "yes", or "your answer" for one in free
        text or none at all."""
        question = self.question
        if question is None or question.kind is QuestionKind.TEXT:
            return "your answer"
        return question.choices[0] if question.kind is QuestionKind.CHOICE and question.choices else "yes"


class DecisionRecord(HistoryModel):
    """A decision as it was counted.

    artifact    an edited plan; then `note` is its title
    decided_at  when it was counted
    """

    verdict: GateVerdict
    note: str = ""
    by: str = ""
    artifact: str = ""
    decided_at: datetime | None = None

    @property
    def description(self) -> str:
        """Return `approved by Ada, 2026-11-23 14:05:12 UTC`, for people whose decision comes after this one; name and
        time are left out when they are not known."""
        by = f" by {one_line(self.by, _PERSON_NAME_CHARS)}" if self.by else ""
        return f"{self.verdict}{by}" + (
            f", {self.decided_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.decided_at else ""
        )


class UserMessage(SignalModel):
    """A person's message for the next turn.

    id        a second message of the same id does not count
    question  text of the agent's question that it answers; empty: it answers none
    """

    id: str
    text: str
    question: str = ""


def _check_message_size(text: str) -> str:
    """Return the text itself. Raises ValueError when it is larger than MESSAGE_BYTES."""
    if len(text.encode()) > MESSAGE_BYTES:
        raise ValueError(
            f"is {len(text.encode())} bytes, at most {MESSAGE_BYTES} fit: put long material into the repository"
        )
    return text


class DecisionUpdate(UserInputModel):
    """Fields that every decision may carry.

    of    what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives
    gate  likewise, by its kind
    by    who decides, for the record
    """

    target: str = Field(alias="of", default="", max_length=64)
    gate: Gate | None = None
    by: str = Field(default="", max_length=PERSON_CHARS)


class Approve(DecisionUpdate):
    """Let it go on as it is. `note` is kept with the decision."""

    note: str = ""

    _check_size = field_validator("note")(_check_message_size)


class Reject(DecisionUpdate):
    """`note` says why: it is what planning or fixing goes back with."""

    note: str = Field(min_length=1)

    _check_size = field_validator("note")(_check_message_size)


class EditPlan(DecisionUpdate):
    """`plan`: SHA-256 of the edited plan, an artifact of the delivery that `perdure approve --edit` has stored."""

    plan: str = Field(pattern=r"^[0-9a-f]{64}$")
    title: str = Field(default="", max_length=200)


class Answer(DecisionUpdate):
    """The answer to an agent's question: its next turn reads it. One of the choices where there are some, yes or no."""

    answer: str = Field(min_length=1)

    _check_size = field_validator("answer")(_check_message_size)


class AddBudget(DecisionUpdate):
    """More to spend, at any time: dollars (0.01 at least), tokens, wall time. The same `id` twice is counted once."""

    id: str = Field(default="", max_length=100)
    usd: float = Field(default=0, ge=0, le=USD_MOST, allow_inf_nan=False)
    tokens: int = Field(default=0, ge=0, le=TOKENS_MOST)
    time: Duration | None = None

    _require_numbers = field_validator("usd", "tokens", mode="before")(require_number)

    @field_validator("usd")
    @classmethod
    def _require_least(cls, usd: float) -> float:
        if 0 < usd < USD_LEAST:
            raise ValueError(f"is {usd:.15g}, the least is {USD_LEAST}")
        return usd


class Say(UserInputModel):
    """Words for the next turn. The same `id` twice is heard once; without one every signal counts."""

    text: str = Field(min_length=1)
    id: str = Field(default="", max_length=100)

    _check_size = field_validator("text")(_check_message_size)


class Rewind(UserInputModel):
    """A reset to an earlier turn follows: the run of that id begins no further turn meanwhile. The run that the reset
    makes forgets what was said and held before, and hears `text`.

    to      the turn, for people; since: when it began the first time, the time from then on is not the delivery's
    policy  the terms from there on, made by the delivery's host, where model or agent are others; models: by step;
            unpriced: those of them whose price nobody knows
    model, agent    as they were asked for, so that the same rewind is known again
    """

    from_run: str = Field(min_length=1, max_length=100)
    to: str = Field(default="", max_length=100)
    text: str = ""
    id: str = Field(default="", max_length=100)
    since: datetime | None = None
    policy: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    models: dict[str, str] = {}
    unpriced: tuple[str, ...] = ()
    model: str = Field(default="", max_length=NAME_CHARS)
    agent: str = Field(default="", max_length=NAME_CHARS)

    _check_size = field_validator("text")(_check_message_size)


class Hold(UserInputModel):
    """Begin no further turn. `note`: why, for those who wonder; `by`: who says so."""

    note: str = Field(default="", max_length=500)
    by: str = Field(default="", max_length=PERSON_CHARS)


def describe_hold(note: str, by: str = "") -> str:
    """Return the line that says that a person holds the delivery, who, and why: `held by Ada: lunch`."""
    if by:
        return f"held by {one_line(by, _PERSON_NAME_CHARS)}: {note or 'resume lets it go on'}"
    return f"held: {note}" if note else "held by a person: resume lets it go on"


class Resume(UserInputModel):
    """Go on after a hold."""


class Decide(UserInputModel):
    """A decision sent as a signal because no worker took the update: `update` names it; `of`, or for `add_budget` an
    `id`, must be in `said`, so that it counts once however often and by whatever way it comes."""

    update: str
    payload: Annotated[dict[str, Any], Field(alias="said")]


class CheckPlanInput(HistoryModel):
    """An edited plan that a person named, to be checked.

    plan   SHA-256 of an artifact of the delivery
    items  it has to be a list of items
    title  what the person names the change; empty: as the plan does, or as before
    """

    delivery: str
    plan: str
    items: bool = False
    title: str = ""


class CheckPlanResult(HistoryModel):
    """The result of checking an edited plan.

    title      its own
    plan_text  the beginning of its text
    problem    why it cannot be worked by; empty: it can
    touches    the files it names, as patterns
    items      all of its items, where it has to be a list of items
    """

    title: str = ""
    plan_text: str = ""
    problem: str = ""
    touches: tuple[str, ...] = ()
    items: tuple[BacklogItem, ...] = ()


class StoreTextInput(HistoryModel):
    """Text that a person hands in for a delivery, at most HANDED_IN_BYTES."""

    delivery: str
    text: str


class StoredText(HistoryModel):
    """The text that was handed in, as an artifact of the delivery."""

    sha256: str


T = TypeVar("T", bound=BaseModel)


def parse_input(model: type[T], raw: Any) -> T:
    """Return what a person or program sent as an object of this model; None counts as an empty JSON object.

    Raises InvalidRequest, with one line that names the field, when it is no JSON object or not valid.
    """
    fields = {} if raw is None else raw
    if not isinstance(fields, dict):
        raise InvalidRequest(f"expected one JSON object, got {json_type_name(fields)}")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        names = tuple(field.alias or name for name, field in model.model_fields.items())
        raise InvalidRequest(describe_invalid_field(error, names)) from None
