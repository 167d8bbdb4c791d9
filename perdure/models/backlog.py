"""A backlog as it is sent: the one argument of workflow type `Backlog`. What it knows: backlog_state.py."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from perdure.models.base import SOMETHING, Written, a_number, not_blank
from perdure.models.issue import IssueName, IssueQuery
from perdure.models.limits import ATTEMPTS_MOST, LABEL_CHARS, LABELS_MOST, NAME_CHARS, PLACE_CHARS, USD_LEAST, USD_MOST
from perdure.models.sent import a_switch, an_issue, bounded, left_out
from perdure.models.specialists import Within
from perdure.models.touches import TOUCHES_MOST, leaves
from perdure.models.window import Window
from perdure.text import one_line

ITEMS_MOST = 1000
"""Of one backlog: a night's work of the largest team is a tenth, and its table is read by a person."""

PARALLEL_MOST = 100
"""Deliveries of one backlog at once: more than any one forge or model account was seen to let through."""

CHECKS_S = 600.0
"""For the `check` commands of landed items in one landing: meanwhile nobody else lands. One test command may take as
long by default."""

CHECKS_MOST = 20
"""Commands of landed items in one landing, and so of one item: at some seconds each they take less than the tests of an
ordinary repository. The others' turn comes with the next landings."""

ITEMS_BYTES = 1_000_000
"""Of all items of one backlog, as JSON: they go along into each of its runs in one value, with as much again that it
knows of them, and a server takes 2 MB for one."""

ITEM_ID = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
"""Part of a workflow's id and of a branch, typed by people: short, and without case."""

ItemId = Annotated[str, Field(pattern=f"^{ITEM_ID}$", max_length=40)]
Text = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS)]
Glob = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]
Command = Annotated[str, Field(pattern=SOMETHING, max_length=PLACE_CHARS), BeforeValidator(not_blank)]


class BacklogItem(Written):
    """One item: it becomes one delivery, and one commit of the integration branch.

    id          names it: lower case letters, digits and dashes; left out with an issue: `issue-14`
    request     what is wanted, in words; may be left out where an issue says it all
    issue       an open issue of the repository: 14, "#14" or its address
    priority    higher goes first among those that are ready; -100 to 100
    labels      put on its delivery
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
    issue: int | str | None = None
    priority: int = Field(default=0, ge=-100, le=100)
    labels: tuple[Text, ...] = Field(default=(), max_length=LABELS_MOST)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")
    depends_on: tuple[ItemId, ...] = ()
    touches: tuple[Glob, ...] = Field(default=(), max_length=TOUCHES_MOST)
    check: tuple[Command, ...] = Field(default=(), max_length=CHECKS_MOST)
    budget_usd: float | None = Field(default=None, ge=USD_LEAST, le=USD_MOST, allow_inf_nan=False)
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_MOST)
    after_red: bool | None = None
    decompose: Literal["ask", "go"] | None = None

    _numbers = field_validator("priority", "budget_usd", "attempts", mode="before")(a_number)
    _switch = field_validator("after_red", mode="before")(a_switch)
    _bounded = field_validator("request")(bounded)
    _issue_named = field_validator("issue", mode="before")(an_issue)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, raw: Any) -> Any:
        """With an id: an issue's number is one, where the issue is known by it."""
        kept = left_out(raw)
        if isinstance(kept, dict) and "id" not in kept and "issue" in kept:
            number = 0  # of one that names no issue: that is what is told
            with suppress(ValueError):
                number = IssueName.parse(an_issue(kept["issue"])).number
            return kept | {"id": f"issue-{number}"}
        return kept

    @field_validator("touches")
    @classmethod
    def _inside(cls, touches: tuple[str, ...]) -> tuple[str, ...]:
        if words := next(filter(None, map(leaves, touches)), ""):
            raise ValueError(words)
        return touches

    @model_validator(mode="after")
    def _whole(self) -> BacklogItem:
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
        return IssueName.parse(self.issue).number if self.issue is not None else None

    @property
    def caption(self) -> str:
        """The request in one short line, the issue's number before it."""
        number = f"#{self.issue_number} " if self.issue_number else ""
        return one_line(number + self.request, 80)


class BacklogRequest(Written):
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
    gates, questions, labels, model, agent, config, source, proof   as in a delivery's request, for each of them
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
    labels: tuple[Text, ...] = Field(default=(), max_length=LABELS_MOST)
    model: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    agent: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    config: str | None = None
    source: str | None = Field(default=None, max_length=PLACE_CHARS)
    proof: str | None = Field(default=None, max_length=NAME_CHARS)
    version: int = Field(default=1, ge=1, le=1)

    _left_out = model_validator(mode="before")(left_out)
    _numbers = field_validator("parallel", "budget_usd", "attempts", "version", mode="before")(a_number)
    _switch = field_validator("questions", "after_red", mode="before")(a_switch)
    _small = field_validator("config")(bounded)

    @model_validator(mode="after")
    def _one_or_many(self) -> BacklogRequest:
        if self.land == "stack" and self.branch is not None:
            raise ValueError("branch: a stack has none of its own: leave it out, or land: branch")
        return self

    @field_validator("issues")
    @classmethod
    def _query(cls, issues: str | None) -> str | None:
        if issues is not None:
            IssueQuery.parse(issues)
        return issues

    @field_validator("window")
    @classmethod
    def _hours(cls, window: str | None) -> str | None:
        if window is not None:
            Window.parse(window)
        return window


class LandingPlace(Written):
    """In a delivery's request: the backlog that it lands for. `backlog`: its workflow id; `branch`: the integration
    branch; `role`: the item's, its agents are told; `decompose`: it lands nothing, but says which items it consists of
    (BacklogItem); `within`: it is a task of that delivery, and lands in its vault; `ships`: it is one of a stack, and
    opens a pull request of its own; into `branch` where the branch it began from is gone by then."""

    backlog: str = Field(min_length=1, max_length=PLACE_CHARS)
    item: str = Field(min_length=1, max_length=NAME_CHARS)
    branch: str = Field(min_length=1, max_length=NAME_CHARS)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")
    decompose: Literal["ask", "go"] | None = None
    within: Within | None = None
    ships: bool = False
