"""The division of a day's budget: pure decisions over the Treasury's table."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from math import isfinite

from perdure.models.treasury import Add, Budget, BudgetLease, Granted, Reserve, Table

BLOCK_USD = 1.0
"""A delivery's reservation of a fleet's budget: about twenty turns, so that it seldom asks (holes.md H28)."""

BLOCKS_A_DAY = 300
"""Into which all budgets of a day are cut at most: a block costs about 9 events, a day may have 5,000."""

BLOCK_LEAST_USD = 0.10
"""The least that is worth asking for; what is left of a day below it is not handed out."""

LEASE = timedelta(hours=1)
"""A delivery holds what it has reserved this long without being heard of. Longer than nearly every turn."""

LEASE_RECORDS, LEASE_RECORDS_FOR = 2_000, timedelta(days=2)
"""Of deliveries that hold nothing any more: half a megabyte, a quarter of what a new run can be given."""

TREASURY_HEARD = 100
"""Ids of additions: the same one that comes again, comes within seconds."""


class Granting:
    """One table. Whatever is said twice, late or out of order counts once: sums are of a delivery's whole life."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def know(self, rules: dict[str, float], *, sure: bool) -> None:
        """Rules of a configuration. Not `sure`: said by a delivery, which may be older than the configuration."""
        for name, usd in rules.items():
            if not 0 < usd < float("inf"):
                continue
            known = self.table.rules.setdefault(name, Budget(usd_per_day=usd))
            known.usd_per_day = usd if sure else known.usd_per_day

    def add(self, more: Add) -> bool:
        """Add to a rule's day; False where there is no such rule."""
        table = self.table
        if more.id and more.id in table.heard:
            return True
        if (budget := table.rules.get(more.rule)) is None:
            return False
        budget.added = _usd(budget.added + more.usd)
        table.heard = (*table.heard, more.id)[-TREASURY_HEARD:] if more.id else table.heard
        return True

    def begin_day(self, now: datetime) -> bool:
        """Begin a new day; False where it is the old one. What is reserved stays so and is spent in the new one."""
        day = f"{now.astimezone(UTC):%Y-%m-%d}"
        if day <= self.table.day:
            return False
        self.table.day, self.table.note = day, ""
        for budget in self.table.rules.values():
            budget.spent, budget.added = 0.0, 0.0
        return True

    def hear(self, said: Reserve, now: datetime) -> Granted | None:
        """Count what a delivery said; the answer, or None where it waits for `serve`, or wants none."""
        self.know(said.rules, sure=False)
        if not said.rules or not said.rules.keys() <= self.table.rules.keys():
            return None  # no delivery says this
        if not (isfinite(said.settled) and isfinite(said.booked) and isfinite(said.needs)):
            return None  # nor this; one such sum would spoil the day's for everybody
        lease = self._lease(said, now)
        self._book(lease, said.settled)
        if said.ends:
            if said.seq >= lease.seq:  # else a retry has begun: what comes late must not take its block
                lease.ceiling, lease.waits = lease.booked, 0
            return None
        if said.seq >= lease.seq:
            lease.needs = max(said.needs, 0.0)
        lease.seq = max(said.seq, lease.seq)
        lease.rules, lease.key, lease.queue = tuple(said.rules), said.key, said.queue
        # Asked twice, the answer is on its way, or was lost.
        if lease.held > self._block(lease) / 2 and _usd(lease.held) >= _usd(lease.needs):
            lease.until, lease.waits = now + LEASE, 0
            return self._answer(lease, 0.0)
        if lease.needs:  # of no use to it: several that hold a part each would wait for each other
            lease.ceiling = lease.booked
        if not lease.waits:
            self.table.places += 1
            lease.waits = self.table.places
        return None

    def serve(self, now: datetime) -> dict[str, Granted]:
        """Room for those that wait, in the order in which they came, as far as there is any."""
        answers = {}
        waiting = [(id, lease) for id, lease in self.table.leases.items() if lease.waits]
        for id, lease in sorted(waiting, key=lambda one: one[1].waits):
            block = self._block(lease)
            granted = min(block + lease.needs, self._room(lease))
            if granted >= (_usd(lease.needs) or min(BLOCK_LEAST_USD, block)):
                lease.ceiling = _usd(max(lease.ceiling, lease.booked) + granted)
                lease.until, lease.waits = now + LEASE, 0
                answers[id] = self._answer(lease, granted)
        return answers

    def refused(self, delivery: str, now: datetime) -> Granted | None:
        """Return what one that waits is told; None when it does not."""
        lease = self.table.leases.get(delivery)
        if lease is None or not lease.waits:
            return None
        until = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
        return self._answer(lease, 0.0).model_copy(update={"until": until, "why": self._why(lease)})

    def take_back(self, delivery: str, granted: float, now: datetime) -> None:
        """There is no such delivery any more: it has not got its answer. What it held before is looked up soon."""
        if (lease := self.table.leases.get(delivery)) is not None:
            lease.ceiling, lease.waits, lease.until = _usd(lease.ceiling - granted), 0, now

    def overdue(self, now: datetime) -> dict[str, BudgetLease]:
        """Deliveries that hold something and have not been heard of for long: ended by force, or waiting for people."""
        return {id: lease for id, lease in self.table.leases.items() if lease.held > 0 and lease.until <= now}

    def found(self, delivery: str, paid: float | None, until: datetime) -> None:
        """Book what one of those has paid. None, or less than is known (its log is lost): all it held counts as paid.

        `until`: of its lease when it was looked up; one that was heard of meanwhile keeps its reservation.
        """
        lease = self.table.leases.get(delivery)
        if lease is None or lease.until != until:
            return
        self._book(lease, lease.ceiling if paid is None or paid < lease.booked else paid)
        lease.ceiling = lease.booked

    def forget(self, now: datetime) -> None:
        """Records of deliveries that hold and want nothing: they are kept for what arrives late or twice."""
        idle = [(lease.until, id) for id, lease in self.table.leases.items() if not lease.held and not lease.waits]
        old = [id for until, id in idle if until <= now - LEASE_RECORDS_FOR]
        for id in {*old, *(id for _, id in sorted(idle)[: max(0, len(idle) - LEASE_RECORDS)])}:
            del self.table.leases[id]

    def _lease(self, said: Reserve, now: datetime) -> BudgetLease:
        known = self.table.leases.get(said.delivery)
        if known is None:
            known = BudgetLease(
                seq=said.seq,
                rules=tuple(said.rules),
                booked=said.booked,
                ceiling=said.booked,
                until=now,
            )
            self.table.leases[said.delivery] = known
        return known

    def _book(self, lease: BudgetLease, paid: float) -> None:
        """Never less than before: a rewind makes a delivery forget what it has paid, for one turn."""
        more = paid - lease.booked
        if more <= 0:
            return
        lease.booked = _usd(paid)
        for rule in lease.rules:
            self.table.rules[rule].spent = _usd(self.table.rules[rule].spent + more)

    def _block(self, lease: BudgetLease) -> float:
        """A dollar; more where the budgets are large, so that a day has a bounded number of blocks; less where the
        delivery's own is small, so that several can work at once."""
        total = sum(budget.limit for budget in self.table.rules.values())
        own = min(self.table.rules[rule].limit for rule in lease.rules)
        return min(max(BLOCK_USD, total / BLOCKS_A_DAY), max(own / 10, min(own, BLOCK_LEAST_USD)))

    def _room(self, lease: BudgetLease) -> float:
        return min(self.table.room(rule) for rule in lease.rules)

    def _answer(self, lease: BudgetLease, granted: float) -> Granted:
        left = max(0.0, self._room(lease))
        return Granted(seq=lease.seq, ceiling=lease.ceiling, until=lease.until, granted=_usd(granted), left=_usd(left))

    def _why(self, lease: BudgetLease) -> str:
        rule = min(lease.rules, key=self.table.room)
        budget, held = self.table.rules[rule], self.table.reserved(rule)
        name = rule.replace(":", " ", 1)
        more = f"tomorrow 00:00 UTC, or perdure budget --shared {rule} --add 5"
        if lease.needs > (left := max(0.0, self.table.room(rule))):
            words = f"the day's budget of {name} does not cover the next request, which may cost ${lease.needs:.2f}"
            return f"{words}: ${left:.2f} of ${budget.limit:.2f} are left; goes on when another gives back, {more}"
        if _usd(budget.limit - budget.spent) < BLOCK_LEAST_USD:
            return f"the day's budget of {name} is spent: ${budget.spent:.2f} of ${budget.limit:.2f}; goes on {more}"
        words = f"${budget.spent:.2f} spent and ${held:.2f} reserved of ${budget.limit:.2f}"
        return f"the day's budget of {name} is taken: {words}; goes on when another delivery gives back, {more}"


def _usd(amount: float) -> float:
    return round(amount, 6)
