"""Journal and spend log are counted again, and each turn must find a settlement of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.verify import ledger_fact
from perdure.models.budget.ledger import Usage
from perdure.models.config.host import HostConfig

KEY = "calc-sub"


def usage(tokens: int, cost: float | None = 0.1) -> Usage:
    return Usage(input_tokens=tokens, cost_usd=cost)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Home(tmp_path / "home"), HostConfig(), None)


def paid(host: Host, *usages: Usage) -> None:
    log = host.spend_log(KEY)
    for one in usages:
        name = f"r{one.input_tokens}"
        log.record_intent(name, f"reply {name}", 1.0)
        log.record_settlement(name, one)


def test_turns_that_were_paid_for_are_the_ledgers_sum(host: Host) -> None:
    paid(host, usage(1), usage(2, 0.2))
    found = ledger_fact(host, KEY, [("plan 1, turn 1", usage(1)), ("plan 1, turn 2", usage(2, 0.2))], ())
    assert (found.settled, found.turns, found.unpaid) == (2, 2, ())
    assert (found.spend.usd, found.spend.tokens) == (0.3, usage(1).tokens + usage(2, 0.2).tokens)
    assert found.kept_usage.cost_usd == 0.3


def test_a_settlement_with_another_price_is_no_settlement_of_the_turn(host: Host) -> None:
    paid(host, usage(1, 0.05), usage(2, 0.25))
    found = ledger_fact(host, KEY, [("plan 1, turn 1", usage(1)), ("plan 1, turn 2", usage(2, 0.2))], ())
    assert found.unpaid == ("plan 1, turn 1", "plan 1, turn 2"), "the sum alone would be right"


def test_one_settlement_pays_for_one_turn_only(host: Host) -> None:
    paid(host, usage(1))
    assert ledger_fact(host, KEY, [("a", usage(1)), ("b", usage(1))], ()).unpaid == ("b",)


def test_a_death_that_was_reported_and_never_journalled_is_unheard_of(host: Host) -> None:
    journal = host.journal(KEY)
    journal.record_start(attempt="run-1/7/1/deadbeef", key="k", activity="implement", worker="gone")
    journal.record_start(attempt="run-1/7/2/cafecafe", key="k", activity="implement", worker=host.inflight.worker)
    journal.record_end("run-1/7/2/cafecafe", "done")
    found = ledger_fact(host, KEY, [], ("7/1", "8/1"))
    assert (found.worker_deaths, found.turns_redone) == (1, 1)
    assert found.unknown_deaths == ("8/1",)


def test_an_unknown_price_stays_unknown(host: Host) -> None:
    paid(host, usage(1, None))
    found = ledger_fact(host, KEY, [("a", usage(1, None))], ())
    assert (found.spend.usd, found.kept_usage.cost_usd, found.unpaid) == (None, None, ())
