"""What a silent delivery has paid, asked of the host that has its spend log."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.delivery_queries import QueryActivities
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.budget.ledger import Usage
from perdure.models.budget.treasury import SpentInput
from perdure.models.config.host import HostConfig


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Home(tmp_path), HostConfig(), None)


async def spent(host: Host, delivery: str) -> float:
    return (await ActivityEnvironment().run(QueryActivities(host).spent, SpentInput(delivery=delivery))).counted_usd


async def test_whole_replies_count_at_their_price_and_one_that_was_cut_off_at_its_most(host: Host) -> None:
    host.home.workspace("d").mkdir(parents=True)
    log = host.spend_log("d")
    log.record_intent("1", "a", 0.5)
    log.record_settlement("1", Usage(cost_usd=0.2))
    log.record_intent("2", "b", 0.3)
    assert await spent(host, "d") == 0.5


async def test_a_delivery_that_this_host_has_never_paid_for_has_paid_nothing(host: Host) -> None:
    assert await spent(host, "never") == 0.0
