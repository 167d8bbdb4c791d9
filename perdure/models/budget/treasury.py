"""A fleet's budgets of a day, shared by many deliveries: their rules in the configuration, the messages between
deliveries and workflow `Treasury`, and its table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from perdure.models.base import HistoryModel, LazyModel, SignalModel, UserInputModel
from perdure.models.issue import is_same_repository, parse_repository_address
from perdure.models.limits import ADDED_MOST_USD

_SHORT = re.compile(r"[\w.*?-]+/[\w.*?-]+")

TREASURY = "perdure-treasury"
"""The workflow's id: there is one in a namespace."""


class BudgetRule(UserInputModel):
    """`[[treasury]]` in the user file: dollars a day (UTC) for all deliveries of a repository, or with a label.

    repository  an address as in a request, or a pattern for it: `https://github.com/acme/*`; `acme/*` on any server
    label       of the request, or of the issue it names
    """

    repository: str = Field(default="", max_length=500)
    label: str = Field(default="", max_length=100)
    usd_per_day: float = Field(gt=0, le=1_000_000, allow_inf_nan=False)

    @field_validator("usd_per_day", mode="before")
    @classmethod
    def _require_number(cls, usd_per_day: object) -> object:
        """Return the value itself; raise ValueError for true and false, which pydantic would take for a number."""
        if isinstance(usd_per_day, bool):
            raise ValueError("say how many dollars")
        return usd_per_day

    @model_validator(mode="after")
    def _require_one_subject(self) -> BudgetRule:
        """Return the rule itself; raise ValueError when it names both a repository and a label, or neither."""
        if bool(self.repository) == bool(self.label):
            raise ValueError("a budget is for a repository or for a label: name one of them")
        return self

    @property
    def name(self) -> str:
        """Return the rule's name for people, `label:team-a`."""
        return f"label:{self.label}" if self.label else f"repository:{self.repository}"

    def applies_to(self, repository: str, labels: Iterable[str]) -> bool:
        """Return True when a delivery of this repository with these labels is under the rule.

        The rule's repository may be an address, a pattern for addresses, or a pattern for owner/name on any server;
        another spelling of the same address is under it too.
        """
        if self.label:
            return self.label in labels
        if is_same_repository(self.repository, repository) or fnmatchcase(repository, self.repository):
            return True
        pattern = (
            ("", self.repository.lower())
            if _SHORT.fullmatch(self.repository)
            else parse_repository_address(self.repository)
        )
        actual = parse_repository_address(
            repository
        )  # of the same server by ssh, in other letters: nobody gets around a budget so
        return bool(pattern and actual and pattern[0] in ("", actual[0]) and fnmatchcase(actual[1], pattern[1]))


def _require_list(value: object) -> object:
    """Return the value itself; raise ValueError for a single table, `[treasury]` instead of `[[treasury]]`."""
    if isinstance(value, dict):
        raise ValueError("write [[treasury]], in two brackets: there can be many")
    return value


def _require_unique_names(rules: tuple[BudgetRule, ...]) -> tuple[BudgetRule, ...]:
    """Return the rules themselves; raise ValueError when two have the same name."""
    names = [rule.name for rule in rules]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{repeated[0].replace(':', ' ', 1)} has two budgets: which of them holds?")
    return rules


Budgets = Annotated[tuple[BudgetRule, ...], BeforeValidator(_require_list), AfterValidator(_require_unique_names)]
"""`[[treasury]]`, any number of times, each name once."""


def matching_budgets(rules: Iterable[BudgetRule], repository: str, labels: Iterable[str]) -> dict[str, float]:
    """Return name and dollars a day of every rule that applies to a delivery; empty when none does, and the delivery
    never asks the Treasury."""
    label_names = tuple(labels)
    return {rule.name: rule.usd_per_day for rule in rules if rule.applies_to(repository, label_names)}


class ReserveRequest(SignalModel):
    """Signal `reserve`: a delivery reports what it has paid, and asks to reserve more.

    delivery  the workflow's id; `key` and `queue`: its key, and the host that has its spend log
    seq       repeated by the answer; the same number twice counts once
    rules     what it is under: name, dollars a day (counts only where the Treasury does not know the rule)
    settled   dollars it has paid, over all its runs; `booked`: as much of that as it has reported before
    is_last   it ends here: what it has not used goes back
    needs     dollars beyond `settled` without which it sends no request; 0: any amount will do
    """

    delivery: str
    seq: int
    rules: dict[str, float]
    settled: float
    booked: float = 0.0
    key: str = ""
    queue: str = ""
    is_last: bool = False
    needs: float = 0.0


class BudgetGrant(SignalModel):
    """Signal `granted`, the answer. The delivery may begin turns until it has paid `ceiling` dollars, before `until`.

    granted        by how much this answer has raised the ceiling
    remaining_usd  dollars of the day that nobody has reserved, in its tightest rule
    why            why it got nothing, in one line: it gets another answer by itself when there is something
    """

    seq: int
    ceiling: float
    until: datetime
    granted: float = 0.0
    remaining_usd: Annotated[float, Field(alias="left")] = 0.0
    why: str = ""


class BudgetReservation(HistoryModel):
    """A delivery's own view of what it has reserved. `seq`: of its newest request; `answered`: of the newest answer.

    booked        dollars it has reported to the Treasury and that the Treasury has confirmed
    reported_usd  dollars that its newest request reports
    needs         the most that its next request to a model can cost, where what was reserved did not cover it
    why           why it got nothing, in one line
    """

    seq: int = 0
    answered: int = 0
    ceiling: float = 0.0
    until: datetime | None = None
    granted: float = 0.0
    booked: float = 0.0
    reported_usd: float = 0.0
    why: str = ""
    needs: float = 0.0

    def for_retry(self) -> BudgetReservation:
        """Return the reservation with which a retry begins: nothing is reserved, and what was reported stays
        reported."""
        return BudgetReservation(seq=self.seq, answered=self.seq, booked=max(self.booked, self.reported_usd))


class TreasuryRules(SignalModel):
    """Signal `rules`: a worker has started whose configuration has these rules; name → dollars a day."""

    rules: dict[str, float]


class DayBudgetIncrease(UserInputModel):
    """Signal `add`: a person adds dollars to a rule's budget of today. The same `id` twice is counted once."""

    rule: str = Field(min_length=1)
    usd: float = Field(gt=0, le=ADDED_MOST_USD, allow_inf_nan=False)
    id: str = Field(default="", max_length=100)


class SpentInput(HistoryModel):
    """Look up what a silent delivery has spent, in its host's spend log. `delivery`: its key."""

    delivery: str


class LastTableInput(HistoryModel):
    """Read the table of a Treasury run that has ended."""

    run_id: str


class DayBudget(LazyModel):
    """One rule's day, in dollars; what is reserved stands in the leases."""

    model_config = ConfigDict(extra="ignore")

    usd_per_day: float
    spent: float = 0.0
    added: float = 0.0

    @property
    def limit(self) -> float:
        """Return the dollars that may be spent today, those that people added among them."""
        return self.usd_per_day + self.added


class BudgetLease(LazyModel):
    """One delivery's reservation, as the Treasury holds it.

    booked    dollars it has paid, as far as known; all of them are in some day's `spent`
    ceiling   what it may pay in all: the difference is reserved, until `until`
    waits     its place among those that wait for free dollars; 0: it does not wait
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
    def reserved_usd(self) -> float:
        """Return the dollars that are reserved and not yet paid."""
        return max(0.0, self.ceiling - self.booked)


class TreasuryTable(LazyModel):
    """All that the Treasury knows, and all that goes with it into a new run. `day`: UTC, `2026-01-31`.

    places    counts the waiting places that were ever given
    heard     ids of increases that were counted
    previous  the run that somebody ended, while its table is looked for: this run goes on from that
    note      how that ended, in one line, on the day on which it happened
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    day: str = ""
    rules: dict[str, DayBudget] = {}
    leases: dict[str, BudgetLease] = {}
    places: int = 0
    heard: tuple[str, ...] = ()
    previous: str = ""
    note: str = ""

    def reserved(self, rule: str) -> float:
        """Return the dollars that deliveries have reserved under a rule and not yet paid."""
        return round(sum(lease.reserved_usd for lease in self.leases.values() if rule in lease.rules), 6)

    def free_usd(self, rule: str) -> float:
        """Return the dollars of a rule that nobody has spent or reserved; negative when a last reply cost more than was
        free."""
        budget = self.rules[rule]
        return round(budget.limit - budget.spent - self.reserved(rule), 6)


class LastTable(LazyModel):
    """The table of a run that has ended. Not `whole`: as that run was given it, because no more of it can be read."""

    model_config = ConfigDict(extra="ignore")

    table: TreasuryTable
    whole: bool = True
