"""What a turn may pay for, and what may be shipped."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from turn_fixtures import DELIVERY, Bench, in_activity

from activities.close import CloseActivity
from activities.forge import ForgeActivities
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn.paid_replies import REPLIES_CUT_PER_TURN
from perdure.models.config.host import HomeSettings
from perdure.models.delivery.publishing import ShipInput
from perdure.models.delivery.result import TestsStatus as Status
from perdure.models.delivery.work import CloseInput, TestVerdict
from perdure.models.errors import Diverged, ModelUnavailable, RepliesCut
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.repositories import heads

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
        assert host.spend_log(DELIVERY).count_repeats() == (0, REPLIES_CUT_PER_TURN)
        allowed = work.model_copy(update={"approved_retries": 1})
        for _ in range(REPLIES_CUT_PER_TURN):
            with pytest.raises(ModelUnavailable):
                await bench.take(allowed, host=host)
        with pytest.raises(RepliesCut, match=f"broke off {2 * REPLIES_CUT_PER_TURN} times"):
            await bench.take(allowed, host=host)
        await host.close()
    # Another run (a retry, or a rewind) begins anew.
    assert (await bench.take(work, run="run-2")).checkpoint


async def test_a_retry_finds_the_reply_that_was_bought_and_a_rewind_samples_anew(bench: Bench) -> None:
    """Each of these runs has died over the tools of its first turn: the reply is there, the checkpoint is not."""
    first, retry, rewind, retried = (f"0-aaaaaaaaaaa{number}" for number in range(4))
    work = bench.work(1, bench.prepared.checkpoint)

    async def calls(run: str, *, began: str, sample: str = "") -> int:
        before = len(bench.rehearsal.calls)
        await bench.take(work.model_copy(update={"started_run_suffix": began[-12:], "sample": sample}), run=run)
        return len(bench.rehearsal.calls) - before

    assert await calls(first, began=first) == 1
    assert await calls(retry, began=retry) == 0, "paid before"
    assert await calls(rewind, began=retry) == 1, "a rewind has its predecessor's input, and wants another reply"
    assert await calls(retried, began=retried, sample=rewind[-12:]) == 0, "a retry goes on from what the rewind bought"
    assert bench.host.spend_log(DELIVERY).count_repeats() == (0, 0), (
        "what was sampled anew on purpose is not paid twice"
    )

    (bench.host.home.workspace(DELIVERY) / "replies.jsonl").unlink()
    assert await calls("0-aaaaaaaaaaa4", began="aaaaaaaaaaa4") == 1
    assert bench.host.spend_log(DELIVERY).count_repeats() == (1, 0), "by its bytes, whatever run asks"
    closed = await in_activity(CloseActivity(bench.host).close, CloseInput(delivery=DELIVERY, keep=True))
    assert closed.usage.tokens == closed.spend.tokens > 0
    assert closed.usage.cost_usd == pytest.approx(closed.spend.usd), "tokens and dollars of the same replies"


async def test_the_end_of_a_delivery_removes_what_ended_from_a_home_beyond_its_limit(bench: Bench) -> None:
    host, mine = bench.host, Workspace.open(bench.host.home, DELIVERY)
    old = await asyncio.to_thread(Workspace.create, host.home, mine.vault, "old", bench.prepared.head)
    old.write_record(old.record().model_copy(update={"ended_at": datetime.now(UTC) - timedelta(hours=2)}))
    closing = CloseInput(delivery=DELIVERY, keep=True)
    assert (await in_activity(CloseActivity(host).close, closing)).message == ""
    assert old.path.exists()
    host.config = host.config.model_copy(update={"home": HomeSettings(gigabytes=0)})
    assert (await in_activity(CloseActivity(host).close, closing)).message == ""
    assert (old.path.exists(), mine.path.exists()) == (False, True)


async def test_a_verdict_on_another_tree_ships_nothing(bench: Bench) -> None:
    work = ShipInput(
        delivery=DELIVERY,
        contract=bench.prepared.contract,
        workflow_id=DELIVERY,
        base="main",
        branch="perdure/calc-sub",
        head=bench.prepared.head,
        title="Add sub",
        tests=TestVerdict(status=Status.GREEN, tree="0" * 40),
    )
    with pytest.raises(Diverged, match="nobody has looked at"):
        await in_activity(ForgeActivities(bench.host).open_pull_request, work)
    origin = bench.host.home.root.parent / "calc.git"
    assert heads(origin).keys() == {"main"}
