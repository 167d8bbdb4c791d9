"""Backlogs made by chance, and played to their end by the rules alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState, OpenBacklogResult
from perdure.models.backlog.touches import patterns_overlap
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.scheduling import OVERTAKEN_MOST, SLOT_KEPT, is_finished, startable_items, unreserved_usd

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
OPENED = OpenBacklogResult(base="main", base_sha="b", branch="perdure/night", queue="q", frees_waiting_slots=True)
PLACES = ("src/api/**", "src/web/**", "src/**", "*.md", "docs/guide.md", "tests/test_*.py", "tests/test_api.py")


def backlog(*items: dict[str, Any], **terms: Any) -> tuple[BacklogRequest, BacklogState]:
    made = tuple(BacklogItem(**({"request": "x"} | item)) for item in items)
    request = BacklogRequest(repository="/r", items=made, **terms)
    states = {item.id: ItemState(item=item, order=order) for order, item in enumerate(made)}
    return request, BacklogState(items=states, began_at=NOON, opened=OPENED)


@st.composite
def backlogs(draw: st.DrawFn, most: int = 14) -> tuple[BacklogRequest, BacklogState]:
    number = draw(st.integers(1, most))
    items = [
        {
            "id": f"i{at}",
            "depends_on": tuple(f"i{on}" for on in sorted(draw(st.sets(st.integers(0, at - 1), max_size=3))))
            if at
            else (),
            "touches": tuple(draw(st.lists(st.sampled_from(PLACES), max_size=2))),
            "priority": draw(st.integers(-2, 2)),
            "budget_usd": draw(st.sampled_from((None, None, 0.5, 3.0))),
        }
        for at in range(number)
    ]
    terms: dict[str, Any] = {
        "parallel": draw(st.integers(1, 5)),
        "overlap": draw(st.sampled_from(("wait", "wait", "build"))),
        "budget_usd": draw(st.sampled_from((None, 2.0, 100.0))),
    }
    return backlog(*items, **terms)


@dataclass
class Night:
    """A backlog as its workflow would run it, with no time but a count; chance decides what moves next, and how.

    planning   how probable it is that what moves is a plan that names files, waiting: a question to a person
    """

    request: BacklogRequest
    state: BacklogState
    chance: random.Random
    failing: float = 0.2
    planning: float = 0.0
    waiting: float = 0.0
    now: datetime = NOON
    begun: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def run(self) -> None:
        while not is_finished(self.request, self.state, self.now):
            self.begin()
            self.check()
            building = [id for id, at in self.state.items.items() if at.phase is ItemPhase.BUILDING]
            assert building, "it has not ended, and nothing moves"
            self.moves(self.chance.choice(building))

    def moves(self, id: str) -> None:
        at, drawn = self.state.items[id], self.chance.random()
        self.now += timedelta(seconds=self.chance.choice((1, 60, 600)))
        if at.waiting.reason:
            at.waiting.reason, at.waiting.since = "", None
            self.answered.add(id)
        elif drawn < self.planning and not at.foreseen.touches:
            at.foreseen.touches = tuple(self.chance.sample(PLACES, 2))
        elif drawn > 1 - self.waiting:
            at.waiting.reason, at.waiting.since = "plan: approve?", self.now
        else:
            self.end(id)

    def begin(self) -> None:
        for start in startable_items(self.request, self.state, self.now):
            at, building = self.state.items[start.id], self.building()
            assert at.phase is ItemPhase.WAITING
            assert self.free(building), f"{start.id} begins without a slot"
            if self.request.overlap == "wait":
                assert not any(overlap(at, other) for other in building), f"{start.id} meets what runs"
            at.phase, at.child.began_at, at.child.granted_usd, at.child.runs = (
                ItemPhase.BUILDING,
                self.now,
                start.usd,
                at.child.runs + 1,
            )
            self.begun.append(start.id)

    def end(self, id: str) -> None:
        self.now += timedelta(minutes=1)
        at = self.state.items[id]
        failed = self.chance.random() < self.failing
        at.phase, at.child.ended_at = ItemPhase.FAILED if failed else ItemPhase.LANDED, self.now
        at.child.usd = round((at.child.granted_usd or 1.0) * self.chance.random(), 2)

    def building(self) -> list[ItemState]:
        return [at for at in self.state.items.values() if at.phase is ItemPhase.BUILDING]

    def free(self, building: list[ItemState]) -> bool:
        """There is a slot: who waits for a person for long has none, and twice as many are under way at most."""
        works = [at for at in building if not (at.waiting.since and at.waiting.since + SLOT_KEPT <= self.now)]
        return len(works) < self.request.parallel and len(building) < 2 * self.request.parallel

    def check(self) -> None:
        """All that has to hold at every moment."""
        items, building = self.state.items, self.building()
        beyond = len(self.answered & {at.item.id for at in building})
        works = [at for at in building if not at.waiting.reason]
        assert len(works) <= min(self.request.parallel + beyond, 2 * self.request.parallel)
        for at in building:
            assert all(items[on].phase in (ItemPhase.LANDED, ItemPhase.SKIPPED) for on in at.item.depends_on)
        left = unreserved_usd(self.request, self.state)
        assert left is None or left >= 0
        waiting = [
            at
            for at in items.values()
            if at.phase is ItemPhase.WAITING and all(items[on].phase is ItemPhase.LANDED for on in at.item.depends_on)
        ]
        assert not startable_items(self.request, self.state, self.now)
        if not self.free(building) or (left is not None and left < 0.01):
            return
        first = sorted((at for at in waiting), key=lambda at: self.ranked(at))
        for at in waiting:
            others = building if len(overtook(at, items.values())) < OVERTAKEN_MOST else [*building, *first]
            kept = [one for one in first[:1] if len(overtook(one, items.values())) >= OVERTAKEN_MOST]
            assert self.request.overlap == "wait", at.item.id
            unknown = not at.touches and any(
                not one.item.touches for behind in kept for one in overtook(behind, items.values())
            )
            if not unknown:
                assert any(overlap(at, other) for other in [*others, *kept]), f"{at.item.id} waits beside a free slot"

    def ranked(self, at: ItemState) -> tuple[int, int, int, int]:
        graph = Dependencies.from_state(self.state)
        id = at.item.id
        return (-graph.unblocks[id], -graph.chain_length[id], -at.item.priority, at.order)


def overlap(one: ItemState, other: ItemState) -> bool:
    return any(patterns_overlap(mine, theirs) for mine in one.touches for theirs in other.touches)


def overtook(at: ItemState, items: Any) -> list[ItemState]:
    """Items that meet this one and began since it was ready."""
    known = {one.item.id: one for one in items}
    ready = max((known[on].child.ended_at or NOON for on in at.item.depends_on), default=NOON)
    return [
        one
        for one in items
        if one is not at and one.child.began_at and one.child.began_at >= ready and overlap(at, one)
    ]
