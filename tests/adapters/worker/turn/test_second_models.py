"""The second model of a step: when it takes over, at which price, and that it does so once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from turn_fixtures import DELIVERY, Bench, working

from perdure.adapters.agents.prices import PRICES
from perdure.adapters.worker.turn import paid_replies
from perdure.models.delivery.turn import Ending
from perdure.models.errors import ModelUnavailable

FIRST, SECOND = "claude-sonnet-5-5", "claude-opus-5-5"

AWAY = f"""
[[line]]
step = "implement"
model = "{FIRST}"
fault = "{{fault}}"
times = 99
"""

SAYS = f"""
[[line]]
step = "implement"
model = "{SECOND}"
say = "Add sub"
"""


@asynccontextmanager
async def bench(root: Path, fault: str, *, fallback: str | None = SECOND, then: str = SAYS) -> AsyncIterator[Bench]:
    config = "version = 1\n[setup]\ncommands = []\n"
    config += f'[steps.implement]\nfallback = "{fallback}"\n' if fallback else ""
    line = AWAY.format(fault=fault) + ("retry_after = 0.06\n" if fault.isdigit() else "")
    async with working(root, line + then, phases=("build",), config=config) as made:
        yield made


async def test_the_second_model_takes_over_a_refused_step_from_its_opening_and_each_is_priced_by_its_own_row(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, "refusal") as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        assert (refused.outcome, refused.model) == (None, SECOND)
        assert refused.summary == f"turn 1 · goes on with {SECOND}: the model refused (general_harms)"
        again = await made.take(made.work(1, made.prepared.checkpoint), host=made.again())
        assert (again.checkpoint, again.adopted, again.model) == (refused.checkpoint, True, SECOND)
        done = await made.take(made.work(2, refused.checkpoint))
        assert done.outcome is not None
        assert (done.outcome.ending, done.model) == (Ending.DONE, SECOND)
        first, then = made.rehearsal.calls
        assert first.body["messages"] == then.body["messages"], "the opening: nothing was done yet"
        for result, model in ((refused, FIRST), (done, SECOND)):
            assert result.usage.cost_usd == round(PRICES[model].cost_of(result.usage), 6) > 0
        total = made.host.spend_log(DELIVERY).total_spend()
        assert total.usd == pytest.approx((refused.usage.cost_usd or 0) + (done.usage.cost_usd or 0))


async def test_a_second_refusal_ends_the_step(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", then=AWAY.format(fault="refusal").replace(FIRST, SECOND)) as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        ended = await made.take(made.work(2, refused.checkpoint))
        assert ended.outcome is not None
        assert ended.outcome.ending is Ending.REFUSED


async def test_a_price_that_nobody_knows_is_no_reason_not_to_go_on(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", fallback="a-gateways", then=SAYS.replace(SECOND, "a-gateways")) as made:
        refused = await made.take(made.work(1, made.prepared.checkpoint))
        done = await made.take(made.work(2, refused.checkpoint))
        assert done.outcome is not None
        assert done.usage.cost_usd is None
        assert done.spend.usd is None


async def test_an_overload_is_waited_for_with_patience_and_then_the_second_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_replies, "PACE_WAIT_S", 0.3)
    async with bench(tmp_path, "529") as made:
        over = await made.take(made.work(1, made.prepared.checkpoint))
        assert (over.outcome, over.model, over.usage.tokens) == (None, SECOND, 0)
        assert over.summary == f"turn 1 · goes on with {SECOND}: its API is overloaded"
        assert over.waited_s >= 0.3, "the delivery's time does not run meanwhile"
        assert {call.outcome for call in made.rehearsal.calls} == {"529"}
        monkeypatch.undo()  # the key's pause holds for the second model, too
        done = await made.take(made.work(2, over.checkpoint))
        assert done.outcome is not None
        assert made.rehearsal.calls[-1].body["model"] == SECOND
        assert made.host.spend_log(DELIVERY).total_spend().at_risk_usd == 0


@pytest.mark.parametrize(("fault", "fallback"), [("429", SECOND), ("529", None)])
async def test_a_rate_limit_and_an_overload_without_a_second_model_are_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, fallback: str | None
) -> None:
    monkeypatch.setattr(paid_replies, "PACE_WAIT_S", 0.2)
    async with bench(tmp_path, fault, fallback=fallback) as made:
        with pytest.raises(ModelUnavailable, match="too little"):
            await made.take(made.work(1, made.prepared.checkpoint))


async def test_without_a_second_model_a_refusal_ends_the_step(tmp_path: Path) -> None:
    async with bench(tmp_path, "refusal", fallback=None) as made:
        ended = await made.take(made.work(1, made.prepared.checkpoint))
        assert ended.outcome is not None
        assert ended.outcome.ending is Ending.REFUSED
