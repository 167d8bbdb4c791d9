"""A backlog as people send it (`BacklogRequest`, the one argument of workflow type `Backlog`), its items, the place
that each of its deliveries lands in; and validators of fields that a delivery's request has as well. The state of a
running backlog is in state.py."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from perdure.models.backlog.touches import TOUCHES_MOST, invalid_pattern_reason
from perdure.models.base import NON_BLANK, UserInputModel, json_type_name, require_not_blank, require_number
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.issue import IssueName, IssueQuery
from perdure.models.limits import (
    ATTEMPTS_MOST,
    LABEL_CHARS,
    LABELS_MOST,
    NAME_CHARS,
    PLACE_CHARS,
    PRIORITY_MOST,
    REQUEST_BYTES,
    TASK_QUEUE,
    USD_LEAST,
    USD_MOST,
)
from perdure.models.schedule import Window
from perdure.text import one_line


def drop_nulls(raw: Any) -> Any:
    """Return a JSON object without fields that are null: programs in Go and Java write null for a field that nobody
    set.

    A null `repository` stays, and a null `request` becomes empty text. Anything but an object is returned as it is.
    """
    if not isinstance(raw, dict):
        return raw
    kept = {name: value for name, value in raw.items() if value is not None or name == "repository"}
    return kept | ({"request": ""} if "request" in raw and "request" not in kept else {})


def require_bool(value: Any) -> Any:
    """Return the value itself, for use as a pydantic validator. Raises ValueError for all but true and false: pydantic
    would convert words and numbers."""
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def check_text_size(text: str | None) -> str | None:
    """Return the text itself, or None. Raises ValueError when it is larger than REQUEST_BYTES."""
    if text is not None and len(text.encode()) > REQUEST_BYTES:
        raise ValueError(f"is {len(text.encode())} bytes, at most {REQUEST_BYTES} (64 KiB) fit: shorten it")
    return text


def check_issue(issue: Any) -> Any:
    """Return the value of field `issue` as a text, or None. Raises ValueError when it is no number or text, is too
    long, or names no issue."""
    if issue is not None:
        if isinstance(issue, bool) or not isinstance(issue, int | str):
            raise ValueError(f"is {json_type_name(issue)}: write 12, #12 or https://…/issues/12")
        issue = str(issue)
        if len(issue) > PLACE_CHARS:
            raise ValueError(f"is {len(issue)} characters long, at most {PLACE_CHARS} fit")
        IssueName.parse(issue)
    return issue


ITEMS_MOST = 1000
"""Of one backlog: the largest team's work of a night is a tenth of it, and a person reads its table."""

PARALLEL_MOST = 100
"""Deliveries of one backlog at once: no forge or model account was seen to let more through."""

CHECKS_S = 600.0
"""Time for the `check` commands of landed items in one landing: no other item lands meanwhile. One test command
may take as long by default."""

CHECKS_MOST = 20
"""Commands of landed items that run in one landing, and so the most of one item: at some seconds each they take
less than the tests of an ordinary repository. The remaining commands run in the next landings."""

ITEMS_BYTES = 1_000_000
"""Of all items of one backlog, as JSON: they go into each of its runs in one value, together with as much state
about them, and a server accepts 2 MB for one value."""

ITEM_ID = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
"""Pattern of an item's id: part of a workflow id and of a branch, and typed by people, so short and in lower case."""

ITEM_ID_CHARS = 40
ItemId = Annotated[str, Field(pattern=f"^{ITEM_ID}$", max_length=ITEM_ID_CHARS)]
LabelText = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS)]
Glob = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]
Command = Annotated[str, Field(pattern=NON_BLANK, max_length=PLACE_CHARS), BeforeValidator(require_not_blank)]


class BacklogItem(UserInputModel):
    """One item: it becomes one delivery, and one commit of the integration branch.

    id          names it: lower case letters, digits and dashes; left out with an issue: `issue-14`
    request     what is wanted, in words; may be left out where an issue says it all
    issue       an open issue of the repository: "14", "#14" or its address; a number is taken, too
    priority    higher goes first among those that are ready; -100 to 100
    labels      put on its delivery, and counted with those of the backlog
    role        its agents are told so: frontend, test, …; with the repository's `.perdure/prompts/role-<role>.md`,
                where there is one; empty: nobody's in particular
    depends_on  ids of items that have to land before it begins
    touches     files it is expected to change, as in .gitignore: src/api/**, *.md; items whose patterns meet are not
                built at the same time
    check       commands that hold once it has landed, and in every landing after it
    budget_usd  the most its delivery may spend; left out: an equal share of what the backlog has left
    attempts, after_red   as in a delivery's request; left out: as the backlog's
    decompose   it is too large for one delivery: a planning step makes items of it, which take its place. ask: a person
                approves or edits them first (gate `items`); go: they begin at once
    """

    id: ItemId
    request: str = ""
    issue: str | None = None
    priority: int = Field(default=0, ge=-PRIORITY_MOST, le=PRIORITY_MOST)
    labels: tuple[LabelText, ...] = Field(default=(), max_length=LABELS_MOST)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")
    depends_on: tuple[ItemId, ...] = ()
    touches: tuple[Glob, ...] = Field(default=(), max_length=TOUCHES_MOST)
    check: tuple[Command, ...] = Field(default=(), max_length=CHECKS_MOST)
    budget_usd: float | None = Field(default=None, ge=USD_LEAST, le=USD_MOST, allow_inf_nan=False)
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_MOST)
    after_red: bool | None = None
    decompose: Literal["ask", "go"] | None = None

    _require_numbers = field_validator("priority", "budget_usd", "attempts", mode="before")(require_number)
    _require_bool = field_validator("after_red", mode="before")(require_bool)
    _check_request_size = field_validator("request")(check_text_size)
    _check_issue = field_validator("issue", mode="before")(check_issue)

    @model_validator(mode="before")
    @classmethod
    def _fill_id(cls, raw: Any) -> Any:
        """Return the raw fields without nulls and, when there is an issue and no id, with an id such as `issue-14`."""
        fields = drop_nulls(raw)
        if isinstance(fields, dict) and "id" not in fields and "issue" in fields:
            number = 0  # Of an issue that cannot be parsed: the validator of `issue` reports it.
            with suppress(ValueError):
                number = IssueName.parse(check_issue(fields["issue"])).number
            return fields | {"id": f"issue-{number}"}
        return fields

    @field_validator("touches")
    @classmethod
    def _check_touches(cls, touches: tuple[str, ...]) -> tuple[str, ...]:
        """Return the patterns themselves. Raises ValueError for the first one that is not valid, or leaves the
        repository."""
        if reason := next(filter(None, map(invalid_pattern_reason, touches)), ""):
            raise ValueError(reason)
        return touches

    @model_validator(mode="after")
    def _check_combinations(self) -> BacklogItem:
        """Return the item itself. Raises ValueError when it has neither a request nor an issue, or is to be decomposed
        and has `check` or `touches`."""
        if self.issue is None and not self.request.strip():
            missing = "request" not in self.model_fields_set
            raise ValueError(
                f"request: {'is missing (or name an issue)' if missing else 'is empty: say what you want'}"
            )
        if self.decompose and (field := "check" if self.check else "touches" if self.touches else ""):
            raise ValueError(f"{field}: an item that is decomposed lands nothing itself: its parts have their own")
        return self

    @property
    def issue_number(self) -> int | None:
        """Return the number of the item's issue; None: it has none."""
        return IssueName.parse(self.issue).number if self.issue is not None else None

    @property
    def caption(self) -> str:
        """Return the request in one line of at most 80 characters, with the issue's number before it."""
        number = f"#{self.issue_number} " if self.issue_number else ""
        return one_line(number + self.request, 80)


class BacklogRequest(UserInputModel):
    """Many requests that shall land on one integration branch.

    repository  as for a delivery
    issues      open issues that are items, too, as of when it begins: label:bug, milestone:1.0 or search:"…"
    base        the branch it begins from and its pull request goes into; default: the target's default branch
    branch      the integration branch; default: `perdure/<backlog id>`
    land        branch: one integration branch, one pull request at the end; stack: a pull request for each item, into
                the branch of the one it depends on
    parallel    deliveries at once
    budget_usd  the most all of them may spend together; left out: each has its own budget only
    window      hours in which deliveries may begin: "23:00-07:00" in UTC, "23:00-07:00 +02:00", "23:00-07:00
                Europe/Berlin"; left out: always
    overlap     wait: items whose `touches` meet are built one after the other; build: at the same time
    attempts, after_red   as in a delivery's request, for each item that says nothing else
    gates, questions, labels, model, agent, config, source, proof, host   as in a delivery's request, for each of them
    """

    repository: str = Field(min_length=1, max_length=PLACE_CHARS)
    items: tuple[BacklogItem, ...] = Field(default=(), max_length=ITEMS_MOST)
    issues: str | None = Field(default=None, max_length=PLACE_CHARS)
    base: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    branch: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    land: Literal["branch", "stack"] = "branch"
    parallel: int = Field(default=4, ge=1, le=PARALLEL_MOST)
    budget_usd: float | None = Field(default=None, ge=USD_LEAST, le=USD_MOST, allow_inf_nan=False)
    window: str | None = None
    overlap: Literal["wait", "build"] = "wait"
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_MOST)
    after_red: bool | None = None
    gates: tuple[Literal["plan", "pull_request"], ...] = ()
    questions: bool | None = None
    labels: tuple[LabelText, ...] = Field(default=(), max_length=LABELS_MOST)
    model: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    agent: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    config: str | None = None
    source: str | None = Field(default=None, max_length=PLACE_CHARS)
    proof: str | None = Field(default=None, max_length=NAME_CHARS)
    host: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    version: int = Field(default=1, ge=1, le=1)

    _drop_nulls = model_validator(mode="before")(drop_nulls)
    _require_numbers = field_validator("parallel", "budget_usd", "attempts", "version", mode="before")(require_number)
    _require_bools = field_validator("questions", "after_red", mode="before")(require_bool)
    _check_config_size = field_validator("config")(check_text_size)

    @property
    def open_queue(self) -> str:
        """Return the task queue of what needs the repository before a host has it: any host's, unless it names one."""
        return self.host or TASK_QUEUE

    @property
    def is_stack(self) -> bool:
        """Return True when each item gets a branch and a pull request of its own, on top of those it depends on."""
        return self.land == "stack"

    @model_validator(mode="after")
    def _check_branch(self) -> BacklogRequest:
        """Return the request itself. Raises ValueError for a stack that names an integration branch: it has none."""
        if self.is_stack and self.branch is not None:
            raise ValueError("branch: a stack has none of its own: leave it out, or land: branch")
        return self

    @field_validator("issues")
    @classmethod
    def _check_issues(cls, issues: str | None) -> str | None:
        """Return the selector of issues itself, or None. Raises ValueError when it is not valid."""
        if issues is not None:
            IssueQuery.parse(issues)
        return issues

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: str | None) -> str | None:
        """Return the window itself, or None. Raises ValueError when it is not valid."""
        if window is not None:
            Window.parse(window)
        return window


class LandingPlace(UserInputModel):
    """In a delivery's request: the backlog that it lands for.

    backlog    its workflow id
    branch     the integration branch, into which it goes where the branch it began from is gone by then
    role       the item's, its agents are told
    decompose  it lands nothing, but says which items it consists of (BacklogItem)
    within     it is a task of that delivery, and lands in its vault
    ships      it is one of a stack, and opens a pull request of its own
    """

    backlog: str = Field(min_length=1, max_length=PLACE_CHARS)
    item: str = Field(min_length=1, max_length=NAME_CHARS)
    branch: str = Field(min_length=1, max_length=NAME_CHARS)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")
    decompose: Literal["ask", "go"] | None = None
    within: ParentDelivery | None = None
    ships: bool = False
