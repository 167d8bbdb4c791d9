"""What a turn may pay for, and what may be shipped."""

from __future__ import annotations

import pytest
from turn_bench import DELIVERY, Bench, in_activity

from activities.open_pull_request import PullRequests
from perdure.models.errors import Diverged, ModelUnavailable, RepliesCut
from perdure.models.policy import REPLIES_CUT_PER_TURN
from perdure.models.publishing import ShipInput
from perdure.models.result import TestsStatus as Status
from perdure.models.work import TestVerdict
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.lab import heads

BROKEN = """
title = "a bad line"
[[line]]
step = "implement"
fault = "cut"
times = 50
say = "Add sub"
"""


async def test_a_reply_that_breaks_off_again_and_again_is_not_paid_for_without_end(bench: Bench) -> None:
    work = bench.work(1, bench.prepared.checkpoint)
    async with Rehearsal(Screenplay.parse(BROKEN)) as rehearsal:
        bench.environ["ANTHROPIC_BASE_URL"] = rehearsal.url
        host = bench.again()
        for _ in range(REPLIES_CUT_PER_TURN):
            with pytest.raises(ModelUnavailable):
                await bench.take(work, host=host)
        with pytest.raises(RepliesCut, match="billed"):
            await bench.take(work, host=host)
        assert len(rehearsal.calls) == REPLIES_CUT_PER_TURN
        assert host.spend(DELIVERY).repeats() == (0, REPLIES_CUT_PER_TURN)
        await host.close()
    # Another run (a retry, or a rewind) begins anew.
    assert (await bench.take(work, run="run-2")).checkpoint


async def test_a_verdict_on_another_tree_ships_nothing(bench: Bench) -> None:
    work = ShipInput(
        delivery=DELIVERY,
        policy=bench.prepared.policy,
        workflow_id=DELIVERY,
        base="main",
        branch="perdure/calc-sub",
        head=bench.prepared.head,
        title="Add sub",
        tests=TestVerdict(status=Status.GREEN, tree="0" * 40),
    )
    with pytest.raises(Diverged, match="tests ran on tree"):
        await in_activity(PullRequests(bench.host).open_pull_request, work)
    origin = bench.host.home.root.parent / "calc.git"
    assert heads(origin).keys() == {"main"}
