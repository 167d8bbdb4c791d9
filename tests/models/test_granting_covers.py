"""A request that was reserved for first never takes a day's budget beyond its limit, whoever dies or asks twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from perdure.models.budget.treasury import ReserveRequest, TreasuryTable
from perdure.models.rules.budget_grants import BudgetAllocator

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
RULE, LIMIT = "label:team-a", 3.0


@dataclass
class One:
    """A delivery. flight: the most that a request of its may cost which was sent and is not settled."""

    name: str
    seq: int = 0
    paid: float = 0.0
    ceiling: float = 0.0
    flight: float = 0.0
    last: ReserveRequest | None = None


class Day:
    def __init__(self, count: int) -> None:
        self.it = BudgetAllocator(TreasuryTable())
        self.it.begin_day(NOON)
        self.it.add_rules({RULE: LIMIT}, is_configured=True)
        self.all = {f"d{n}": One(f"d{n}") for n in range(count)}

    def wants(self, one: One, upper: float) -> None:
        """Send a request where it is covered, else ask for what covers it."""
        if not one.flight and round(one.paid + upper, 6) <= one.ceiling:
            one.flight = upper
        elif not one.flight:
            one.seq += 1
            self.say(
                one, ReserveRequest(delivery=one.name, seq=one.seq, rules={RULE: LIMIT}, settled=one.paid, needs=upper)
            )

    def say(self, one: One, said: ReserveRequest) -> None:
        one.last = said
        answer = self.it.handle_request(said, NOON)
        answers = self.it.grant_waiting(NOON) | ({one.name: answer} if answer is not None else {})
        if one.name not in answers and (refused := self.it.refusal_answer(one.name, NOON)) is not None:
            answers[one.name] = refused
        for name, told in answers.items():
            self.all[name].ceiling = told.ceiling

    @property
    def spent(self) -> float:
        """As the vendor would count it at worst."""
        return round(sum(one.paid + one.flight for one in self.all.values()), 6)


EVENTS = st.tuples(
    st.integers(0, 4), st.sampled_from(["wants", "wants", "settles", "dies", "ends", "again"]), st.integers(1, 40)
)


@given(st.lists(EVENTS, max_size=60))
def test_the_day_is_never_overspent_and_what_is_left_goes_to_whoever_it_covers(
    events: list[tuple[int, str, int]],
) -> None:
    day = Day(5)
    for number, event, cents in events:
        one, usd = day.all[f"d{number}"], cents * 5 / 100
        match event:
            case "wants":
                day.wants(one, usd)
            case "settles":
                one.paid, one.flight = round(one.paid + min(usd, one.flight), 6), 0.0
            case "dies":  # between the reservation and the settlement: at risk it counts in full
                one.paid, one.flight = round(one.paid + one.flight, 6), 0.0
            case "ends" if not one.flight:
                one.seq += 1
                day.say(
                    one,
                    ReserveRequest(delivery=one.name, seq=one.seq, rules={RULE: LIMIT}, settled=one.paid, is_last=True),
                )
                one.ceiling = 0.0
            case "again" if one.last is not None and not one.last.is_last:
                day.say(one, one.last)
        assert day.spent <= LIMIT, day.all
        assert day.it.table.free_usd(RULE) >= 0
    for one in day.all.values():
        one.paid, one.flight = round(one.paid + one.flight, 6), 0.0
    left = round(LIMIT - day.spent, 6)
    if left > 0:
        for one in [*day.all.values()] * 2:  # who was served when another let go sends it then
            day.wants(one, left)
        assert any(one.flight for one in day.all.values()), "whoever holds a part of it lets go of that for who waits"
