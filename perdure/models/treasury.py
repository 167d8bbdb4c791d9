"""A fleet's budget of a day: its rules, and what deliveries and the Treasury say to each other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from perdure.models.base import Recorded, Written
from perdure.models.issue import address, same_repository
from perdure.models.limits import ADDED_MOST_USD

_SHORT = re.compile(r"[\w.*?-]+/[\w.*?-]+")

TREASURY = "perdure-treasury"
"""The workflow's id: one in a namespace."""


class BudgetRule(Written):
    """`[[treasury]]` in the user file: dollars a day (UTC) for all deliveries of a repository, or with a label.

    repository  an address as in a request, or a pattern for it: `https://github.com/acme/*`; `acme/*` on any server
    label       of the request, or of the issue it names
    """

    repository: str = Field(default="", max_length=500)
    label: str = Field(default="", max_length=100)
    usd_per_day: float = Field(gt=0, le=1_000_000, allow_inf_nan=False)

    @field_validator("usd_per_day", mode="before")
    @classmethod
    def _no_switch(cls, given: object) -> object:
        if isinstance(given, bool):
            raise ValueError("say how many dollars")
        return given

    @model_validator(mode="after")
    def _one_of_both(self) -> BudgetRule:
        if bool(self.repository) == bool(self.label):
            raise ValueError("a budget is for a repository or for a label: name one of them")
        return self

    @property
    def name(self) -> str:
        """As people name it: `label:team-a`."""
        return f"label:{self.label}" if self.label else f"repository:{self.repository}"

    def covers(self, repository: str, labels: Iterable[str]) -> bool:
        if self.label:
            return self.label in labels
        if same_repository(self.repository, repository) or fnmatchcase(repository, self.repository):
            return True
        wanted = ("", self.repository.lower()) if _SHORT.fullmatch(self.repository) else address(self.repository)
        known = address(repository)  # of the same server by ssh, in other letters: nobody gets around a budget so
        return bool(wanted and known and wanted[0] in ("", known[0]) and fnmatchcase(known[1], wanted[1]))


def _many(given: object) -> object:
    if isinstance(given, dict):
        raise ValueError("write [[treasury]], in two brackets: there can be many")
    return given


def _each_once(rules: tuple[BudgetRule, ...]) -> tuple[BudgetRule, ...]:
    names = [rule.name for rule in rules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0].replace(':', ' ', 1)} has two budgets: which of them holds?")
    return rules


Budgets = Annotated[tuple[BudgetRule, ...], BeforeValidator(_many), AfterValidator(_each_once)]
"""`[[treasury]]`, any number of times, each name once."""


def matching(rules: Iterable[BudgetRule], repository: str, labels: Iterable[str]) -> dict[str, float]:
    """Name and dollars a day of every rule that a delivery is under; empty: it never asks the Treasury."""
    known = tuple(labels)
    return {rule.name: rule.usd_per_day for rule in rules if rule.covers(repository, known)}


class Reserve(Recorded):
    """Signal `reserve`: a delivery says what it has paid, and asks for room for more. Said twice it counts once.

    delivery  the workflow's id; `key` and `queue`: its key, and the host that has its spend log
    seq       repeated by the answer
    rules     what it is under: name, dollars a day (counts only where the Treasury does not know the rule)
    settled   dollars it has paid, over all its runs; `booked`: as much of that as it has told before
    ends      it ends here: what it has not used goes back
    needs     dollars beyond `settled` without which it sends no request: nothing is on its way; 0: any room will do
    """

    delivery: str
    seq: int
    rules: dict[str, float]
    settled: float
    booked: float = 0.0
    key: str = ""
    queue: str = ""
    ends: bool = False
    needs: float = 0.0


class Granted(Recorded):
    """Signal `granted`, the answer. The delivery may begin turns until it has paid `ceiling` dollars, before `until`.

    granted   by how much this answer has raised it
    left      dollars of the day that nobody has reserved, in its tightest rule
    why       why it got nothing, in one line: it is told by itself when there is something
    """

    seq: int
    ceiling: float
    until: datetime
    granted: float = 0.0
    left: float = 0.0
    why: str = ""


class Purse(Recorded):
    """A delivery's own view of its reservation. `seq`: its newest question; `answered`: the newest answer's.

    booked  dollars it has told the Treasury of, since the answer to that came
    told    dollars its newest question told of
    needs   the most that its next request can cost, where what was reserved did not cover it
    """

    seq: int = 0
    answered: int = 0
    ceiling: float = 0.0
    until: datetime | None = None
    granted: float = 0.0
    booked: float = 0.0
    told: float = 0.0
    why: str = ""
    needs: float = 0.0

    def again(self) -> Purse:
        """As a retry begins: nothing is reserved, and what was told is told."""
        return Purse(seq=self.seq, answered=self.seq, booked=max(self.booked, self.told))


class Rules(Recorded):
    """Signal `rules`: a worker has started whose configuration has these; name, dollars a day."""

    rules: dict[str, float]


class Add(Written):
    """Signal `add`: more for today, by a person. The same `id` twice is counted once."""

    rule: str = Field(min_length=1)
    usd: float = Field(gt=0, le=ADDED_MOST_USD, allow_inf_nan=False)
    id: str = Field(default="", max_length=100)


class SpentInput(Recorded):
    """The look-up of a silent delivery's spending: its host's spend log tells. `delivery`: its key."""

    delivery: str


class LastTableInput(Recorded):
    """The run whose table is wanted: one that has ended."""

    run_id: str


class Budget(BaseModel):
    """One rule's day, in dollars. Reserved is what the leases hold beside it."""

    model_config = ConfigDict(extra="ignore")

    usd_per_day: float
    spent: float = 0.0
    added: float = 0.0

    @property
    def limit(self) -> float:
        return self.usd_per_day + self.added


class BudgetLease(BaseModel):
    """One delivery's reservation.

    booked    dollars it has paid, as far as known; all of them are in some day's `spent`
    ceiling   what it may pay in all: the difference is reserved, until `until`
    waits     its place among those that wait for room; 0: it does not
    needs     the least that is of use to it
    """

    model_config = ConfigDict(extra="ignore")

    seq: int
    rules: tuple[str, ...]
    booked: float
    ceiling: float
    until: datetime
    key: str = ""
    queue: str = ""
    waits: int = 0
    needs: float = 0.0

    @property
    def held(self) -> float:
        return max(0.0, self.ceiling - self.booked)


class Table(BaseModel):
    """All the Treasury knows, and all that goes with it into a new run. `day`: UTC, `2026-01-31`.

    previous  the run that somebody ended, while its table is looked for: it goes on from there
    note      what became of that, in one line, on the day on which it was
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    day: str = ""
    rules: dict[str, Budget] = {}
    leases: dict[str, BudgetLease] = {}
    places: int = 0
    heard: tuple[str, ...] = ()
    previous: str = ""
    note: str = ""

    def reserved(self, rule: str) -> float:
        return round(sum(lease.held for lease in self.leases.values() if rule in lease.rules), 6)

    def room(self, rule: str) -> float:
        """Dollars nobody has spent or reserved; negative when a last reply cost more than was left."""
        budget = self.rules[rule]
        return round(budget.limit - budget.spent - self.reserved(rule), 6)


class LastTable(BaseModel):
    """The table of a run that has ended. Not `whole`: as that run was given it, because no more of it can be read."""

    model_config = ConfigDict(extra="ignore")

    table: Table
    whole: bool = True
