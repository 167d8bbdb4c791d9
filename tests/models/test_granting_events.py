"""A day of the Treasury is a bounded number of events in its history."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from perdure.models.budget.treasury import BudgetGrant, ReserveRequest, TreasuryTable
from perdure.models.rules.budget_grants import BudgetAllocator

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)

ASK_EVENTS, ANSWER_EVENTS, TICKS_A_DAY_EVENTS = 4, 5, 48 * 5
"""In the Treasury's history, each in a workflow task of its own: as benchmarks/treasury.py has counted them."""


@pytest.mark.parametrize(("usd", "most"), [(5.0, 6.0), (300.0, 6.0), (3000.0, 60.0)])
def test_fifty_deliveries_at_once_use_up_a_budget_in_less_than_five_thousand_events(usd: float, most: float) -> None:
    """One that has paid its $2 to $6 ends, and another begins, until all fifty wait: 75 end on a day of $300. On one of
    $3,000 they are ten times as dear, and get larger blocks."""
    chance, rules = random.Random(7), {"label:team-a": usd}
    it = BudgetAllocator(TreasuryTable())
    it.begin_day(NOON)
    it.add_rules(rules, is_configured=True)
    paid, ends = [0.0] * 50, [chance.uniform(most / 3, most) for _ in range(50)]
    name, seq, known = [f"d{n}" for n in range(50)], [0] * 50, [BudgetGrant(seq=0, ceiling=0.0, until=NOON)] * 50
    ended = events = 0
    while any(paid[n] < known[n].ceiling or not known[n].why for n in range(50)):
        n = chance.randrange(50)
        if paid[n] < known[n].ceiling:
            paid[n] = round(paid[n] + chance.uniform(0.02, 0.3), 6)
        over = paid[n] >= ends[n]
        low = known[n].ceiling - paid[n] <= known[n].granted / 4
        if not over and (not low or known[n].why):
            continue
        seq[n] += 1
        said = ReserveRequest(delivery=name[n], seq=seq[n], rules=rules, settled=paid[n], is_last=over)
        answer = it.handle_request(said, NOON)
        answers = it.grant_waiting(NOON) | ({name[n]: answer} if answer else {})
        if not over and name[n] not in answers and (refused := it.refusal_answer(name[n], NOON)) is not None:
            answers[name[n]] = refused
        events += ASK_EVENTS + len(answers) * ANSWER_EVENTS
        for id, got in answers.items():
            known[name.index(id)] = got
        if over:
            ended += 1
            name[n], paid[n], ends[n] = f"e{ended}", 0.0, chance.uniform(most / 3, most)
            seq[n], known[n] = 0, BudgetGrant(seq=0, ceiling=0.0, until=NOON)
    assert it.table.rules["label:team-a"].spent + it.table.reserved("label:team-a") > usd - 1
    assert events + TICKS_A_DAY_EVENTS < 5000, (events, ended)
