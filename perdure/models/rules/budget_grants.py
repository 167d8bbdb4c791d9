"""The division of a day's budgets among deliveries: decisions that change the Treasury's table, without clock or
server. Workflow `Treasury` calls them and sends the answers."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from math import isfinite

from perdure.models.budget.treasury import (
    BudgetGrant,
    BudgetLease,
    DayBudget,
    DayBudgetIncrease,
    ReserveRequest,
    TreasuryTable,
)
from perdure.models.ids import is_workflow_id
from perdure.text import format_money, shell_word

BLOCK_USD = 1.0
"""The amount a delivery reserves at once of a fleet's budget: about twenty turns, so that it seldom asks."""

BLOCKS_A_DAY = 300
"""Into which all budgets of a day are cut at most: a block costs about 10 events, and a day may have 5,000."""

BLOCK_LEAST_USD = 0.10
"""The least that is worth asking for; what remains of a day below it is not handed out."""

LEASE = timedelta(hours=1)
"""The time a delivery keeps what it has reserved without being heard of. Longer than nearly every turn."""

LEASE_RECORDS, LEASE_RECORDS_FOR = 2_000, timedelta(days=2)
"""Most records of deliveries that have nothing reserved, and how long one is kept.

They are half a megabyte, a quarter of what a new run can be given.
"""

INCREASE_IDS_KEPT = 100
"""Ids of budget increases that are remembered: the same one that comes again, comes within seconds."""


class BudgetAllocator:
    """Grants, reservations and payments over one table, which the methods change.

    Whatever is reported twice, late or out of order counts once: sums are of a delivery's whole life.
    """

    def __init__(self, table: TreasuryTable) -> None:
        self.table = table

    def add_rules(self, rules: dict[str, float], *, is_configured: bool) -> None:
        """Add rules, dollars a day by name, to the table; amounts that are not positive and finite are ignored.

        is_configured  they come from a configuration, so they replace amounts that are known; False: a delivery
                       reported them, which may be older than the configuration, so only unknown rules are added
        """
        for name, usd in rules.items():
            if not 0 < usd < float("inf"):
                continue
            budget = self.table.rules.setdefault(name, DayBudget(usd_per_day=usd))
            budget.usd_per_day = usd if is_configured else budget.usd_per_day

    def add_to_day(self, increase: DayBudgetIncrease) -> bool:
        """Add a person's increase to its rule's budget of today, and return True; one whose id came before adds
        nothing, and returns True. Return False when there is no such rule."""
        table = self.table
        if increase.id and increase.id in table.heard:
            return True
        if (budget := table.rules.get(increase.rule)) is None:
            return False
        budget.added = _round_usd(budget.added + increase.usd)
        table.heard = (*table.heard, increase.id)[-INCREASE_IDS_KEPT:] if increase.id else table.heard
        return True

    def begin_day(self, now: datetime) -> bool:
        """Begin a new day (UTC) in the table, with nothing spent or added and without the note of the day before, and
        return True; change nothing and return False when the table's day is still going on.

        What is reserved stays reserved and is spent in the new day.
        """
        day = f"{now.astimezone(UTC):%Y-%m-%d}"
        if day <= self.table.day:
            return False
        self.table.day, self.table.note = day, ""
        for budget in self.table.rules.values():
            budget.spent, budget.added = 0.0, 0.0
        return True

    def handle_request(self, request: ReserveRequest, now: datetime) -> BudgetGrant | None:
        """Record what a delivery has paid and asks for in the table, with rules that are new there; return the answer,
        or None when none is due now.

        A delivery that has enough reserved already is answered at once: its first answer is on its way, or was lost.
        Any other is queued for `grant_waiting`; when it needs a certain amount, what it has reserved is freed
        meanwhile. None also when it ends, which frees its reservation, and for a request of unknown rules, numbers that
        are not finite, or names that Temporal does not take, which is ignored.
        """
        self.add_rules(request.rules, is_configured=False)
        if not request.rules or not request.rules.keys() <= self.table.rules.keys():
            return None  # no delivery says this
        if not (isfinite(request.settled) and isfinite(request.booked) and isfinite(request.needs)):
            return None  # nor this; one such sum would spoil the day's for everybody
        if not is_workflow_id(request.delivery) or not (request.queue == "" or is_workflow_id(request.queue)):
            return None  # nor this: it can be neither answered nor looked up
        lease = self._get_or_create_lease(request, now)
        self._record_payment(lease, request.settled)
        if request.is_last:
            if request.seq >= lease.seq:  # else a retry has begun: what comes late must not take its block
                lease.ceiling, lease.waits = lease.booked, 0
            return None
        if request.seq >= lease.seq:
            lease.needs = max(request.needs, 0.0)
        lease.seq = max(request.seq, lease.seq)
        lease.rules, lease.key, lease.queue = tuple(request.rules), request.key, request.queue
        # Asked twice, the answer is on its way, or was lost.
        if lease.reserved_usd > self._block_usd(lease) / 2 and _round_usd(lease.reserved_usd) >= _round_usd(
            lease.needs
        ):
            lease.until, lease.waits = now + LEASE, 0
            return self._make_answer(lease, 0.0)
        if lease.needs:  # of no use to it: several that hold a part each would wait for each other
            lease.ceiling = lease.booked
        if not lease.waits:
            self.table.places += 1
            lease.waits = self.table.places
        return None

    def grant_waiting(self, now: datetime) -> dict[str, BudgetGrant]:
        """Reserve free dollars for deliveries that wait, in the order in which they came; return the answers by
        delivery, only of those that get some.

        A delivery that needs more than is free goes on waiting, and those behind it are still served.
        """
        answers = {}
        waiting = [(id, lease) for id, lease in self.table.leases.items() if lease.waits]
        for id, lease in sorted(waiting, key=lambda pair: pair[1].waits):
            block = self._block_usd(lease)
            granted = min(block + lease.needs, self._free_usd(lease))
            if granted >= (_round_usd(lease.needs) or min(BLOCK_LEAST_USD, block)):
                lease.ceiling = _round_usd(max(lease.ceiling, lease.booked) + granted)
                lease.until, lease.waits = now + LEASE, 0
                answers[id] = self._make_answer(lease, granted)
        return answers

    def refusal_answer(self, delivery: str, now: datetime) -> BudgetGrant | None:
        """Return an answer that grants nothing until the next midnight (UTC) and says why; None when the delivery does
        not wait. The delivery stays in the queue."""
        lease = self.table.leases.get(delivery)
        if lease is None or not lease.waits:
            return None
        until = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
        return self._make_answer(lease, 0.0).model_copy(update={"until": until, "why": self._waiting_reason(lease)})

    def revoke_grant(self, delivery: str, granted: float, now: datetime) -> None:
        """Take back a grant whose answer could not be delivered, because there is no such delivery any more; do nothing
        without a lease of it.

        Its lease ends now, so that what it had reserved before is looked up soon.
        """
        if (lease := self.table.leases.get(delivery)) is not None:
            lease.ceiling, lease.waits, lease.until = _round_usd(lease.ceiling - granted), 0, now

    def overdue_leases(self, now: datetime) -> dict[str, BudgetLease]:
        """Return the leases, by delivery, that have expired with something still reserved.

        Such deliveries were ended by force, or wait for people.
        """
        return {id: lease for id, lease in self.table.leases.items() if lease.reserved_usd > 0 and lease.until <= now}

    def settle_overdue(self, delivery: str, paid_usd: float | None, lease_until: datetime) -> None:
        """Record what an overdue delivery has paid in all, and free the rest of its reservation.

        paid_usd     None, or less than is known already (its log is lost): all that it had reserved counts as paid
        lease_until  the end of its lease when it was looked up; when that has changed, the delivery has reported since,
        and nothing is done
        """
        lease = self.table.leases.get(delivery)
        if lease is None or lease.until != lease_until:
            return
        self._record_payment(lease, lease.ceiling if paid_usd is None or paid_usd < lease.booked else paid_usd)
        lease.ceiling = lease.booked

    def delete_idle_leases(self, now: datetime) -> None:
        """Delete old records of deliveries that have nothing reserved and do not wait.

        Those older than LEASE_RECORDS_FOR go, and the oldest beyond LEASE_RECORDS: until then they are kept for
        messages that arrive late or twice.
        """
        idle = [
            (lease.until, id) for id, lease in self.table.leases.items() if not lease.reserved_usd and not lease.waits
        ]
        old = [id for until, id in idle if until <= now - LEASE_RECORDS_FOR]
        for id in {*old, *(id for _, id in sorted(idle)[: max(0, len(idle) - LEASE_RECORDS)])}:
            del self.table.leases[id]

    def _get_or_create_lease(self, request: ReserveRequest, now: datetime) -> BudgetLease:
        """Return the lease (record of a reservation) of the delivery that sent this request; when it has none, make one
        in the table, with nothing reserved."""
        lease = self.table.leases.get(request.delivery)
        if lease is None:
            lease = BudgetLease(
                seq=request.seq,
                rules=tuple(request.rules),
                booked=request.booked,
                ceiling=request.booked,
                until=now,
            )
            self.table.leases[request.delivery] = lease
        return lease

    def _record_payment(self, lease: BudgetLease, paid_usd: float) -> None:
        """Record that a delivery has paid `paid_usd` in all, and count the difference as spent in the budgets of its
        rules.

        A smaller sum than before is ignored: a rewind makes a delivery forget what it has paid, for one turn.
        """
        increase_usd = paid_usd - lease.booked
        if increase_usd <= 0:
            return
        lease.booked = _round_usd(paid_usd)
        for rule in lease.rules:
            self.table.rules[rule].spent = _round_usd(self.table.rules[rule].spent + increase_usd)

    def _block_usd(self, lease: BudgetLease) -> float:
        """Return how many dollars a delivery reserves at once: BLOCK_USD as a rule.

        More when the budgets are large, so that a day has a bounded number of blocks; less when the smallest of the
        delivery's budgets is small, so that several can work at once.
        """
        total = sum(budget.limit for budget in self.table.rules.values())
        smallest_budget = min(self.table.rules[rule].limit for rule in lease.rules)
        return min(
            max(BLOCK_USD, total / BLOCKS_A_DAY), max(smallest_budget / 10, min(smallest_budget, BLOCK_LEAST_USD))
        )

    def _free_usd(self, lease: BudgetLease) -> float:
        """Return the dollars that nobody has spent or reserved in the tightest of the lease's rules; may be
        negative."""
        return min(self.table.free_usd(rule) for rule in lease.rules)

    def _make_answer(self, lease: BudgetLease, granted: float) -> BudgetGrant:
        """Return the message that tells a delivery its ceiling, until when it holds, what was granted just now, and how
        many dollars are still free."""
        remaining_usd = max(0.0, self._free_usd(lease))
        return BudgetGrant(
            seq=lease.seq,
            ceiling=lease.ceiling,
            until=lease.until,
            granted=_round_usd(granted),
            remaining_usd=_round_usd(remaining_usd),
        )

    def _waiting_reason(self, lease: BudgetLease) -> str:
        """Return one line for people: why a delivery gets nothing of the tightest of its budgets, and what lets it go
        on."""
        rule = min(lease.rules, key=self.table.free_usd)
        budget, reserved_usd = self.table.rules[rule], self.table.reserved(rule)
        name = rule.replace(":", " ", 1)
        ways_on = f"tomorrow 00:00 UTC, or perdure budget --shared {shell_word(rule)} --add 5"
        if lease.needs > (remaining_usd := max(0.0, self.table.free_usd(rule))):
            needs, left = format_money(lease.needs), format_money(remaining_usd, budget.limit)
            text = f"the day's budget of {name} does not cover the next request, which may cost {needs}"
            return f"{text}: {left} are left; goes on when another gives back, {ways_on}"
        if _round_usd(budget.limit - budget.spent) < BLOCK_LEAST_USD:
            return f"the day's budget of {name} is spent: {format_money(budget.spent, budget.limit)}; goes on {ways_on}"
        spent, reserved, limit = map(format_money, (budget.spent, reserved_usd, budget.limit))
        text = f"{spent} spent and {reserved} reserved of {limit}"
        return f"the day's budget of {name} is taken: {text}; goes on when another delivery gives back, {ways_on}"


def _round_usd(amount: float) -> float:
    return round(amount, 6)
