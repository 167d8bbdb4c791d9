"""A gate at a terminal: one key decides, and what is decided stands beside it."""

from __future__ import annotations

import asyncio

import pytest

from perdure.cli.decide.gate import gate_choices
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import Progress
from perdure.render.decision_lines import verdict_lines
from tests.cli.decision_fixtures import Desk, desk
from tests.cli.typist import Typist
from tests.render.test_decision_lines import NOON

pytestmark = pytest.mark.story

__all__ = ["desk"]

PLAN_GATE = r"\[a\]pprove \[r\]eject \[e\]dit \[l\]ater "


def asks(gate: Gate, *options: str) -> str:
    return " ".join(
        gate_choices(PendingDecision(gate=gate, target="1a", summary="w", since=NOON, options=options)).values()
    )


def test_what_a_key_can_decide_is_offered_and_nothing_else() -> None:
    assert asks(Gate.PLAN, "approve", "reject", "edit_plan") == "[a]pprove [r]eject [e]dit [l]ater"
    assert asks(Gate.PULL_REQUEST, "approve", "reject") == "[a]pprove [r]eject [d]iff [t]ests [l]ater"
    assert asks(Gate.QUESTION, "answer") == asks(Gate.BUDGET, "add_budget", "reject") == ""


def test_beside_a_change_stand_tests_review_and_cost() -> None:
    steps = [
        StepRecord(step="run_tests", status="failed", summary="2 of 44 fail"),
        StepRecord(step="run_tests", attempt=2, status="done", summary="44 green"),
        StepRecord(step="review", status="done", summary="1 tech debt"),
    ]
    known = Progress(delivery_id="d", run_id="r", repository="/r", status="running", steps=steps, budget_usd=5.0)
    lines = verdict_lines(known.model_copy(update={"spend": Spend(usd=0.43)}))
    assert lines == ["", "  tests    44 green", "  review   1 tech debt", "  cost     $0.43 of $5.00"]


@pytest.mark.timeout(120)
async def test_who_watches_decides_by_a_key_and_sees_who_has_decided(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("in-place")
        with Typist(desk.cli, "watch", "in-place") as person:
            await asyncio.to_thread(person.until, r"1\. Write sub  \(calc\.py\)")
            await asyncio.to_thread(person.until, PLAN_GATE)
            person.types("r")
            await asyncio.to_thread(person.until, "what is wrong, and what instead")
            person.types("with types\n")
            await asyncio.to_thread(person.until, "✓ rejected: plan ")
            await asyncio.to_thread(person.until, "▰▱▱▱▱ plan")
            desk.scene.replans.set()
            await asyncio.to_thread(person.until, PLAN_GATE)
            person.types("a")
            await asyncio.to_thread(person.until, "✓ approved: plan ")
            assert await asyncio.to_thread(person.ends) == 0
        assert "Completed" in person.seen
        decided = [line.split(maxsplit=1)[1] for line in person.seen.splitlines() if line.startswith("  decided")]
        assert len(decided) == 1
        shown = (await desk("show", "in-place")).out
        first, second = (line.strip() for line in shown.splitlines() if " by " in line)
        assert first.startswith("decided  plan ")
        assert "rejected by " in first
        assert first.endswith(": with types")
        assert "approved by " in second


@pytest.mark.timeout(120)
async def test_a_gate_that_somebody_else_decides_or_that_is_left_for_later_is_left(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("elsewhere")
        asked = await desk.asked("elsewhere")
        with Typist(desk.cli, "approve", "elsewhere") as person:
            await asyncio.to_thread(person.until, PLAN_GATE)
            person.types("l")
            await asyncio.to_thread(person.until, "nothing was decided: it still waits")
            assert await asyncio.to_thread(person.ends) == 1
        with Typist(desk.cli, "watch", "elsewhere") as person:
            await asyncio.to_thread(person.until, PLAN_GATE)
            await desk.perdure.delivery("elsewhere").approve(asked.target, by="ada")
            await asyncio.to_thread(person.until, r"decided +plan \w+ approved by ada")
            assert await asyncio.to_thread(person.ends) == 0


@pytest.mark.timeout(120)
async def test_who_decides_second_at_a_terminal_reads_who_has_decided_what_and_when(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("second")
        asked = await desk.asked("second")
        with Typist(desk.cli, "approve", "second") as person:
            await asyncio.to_thread(person.until, PLAN_GATE)
            await desk.perdure.delivery("second").reject("with types", asked.target, by="ada")
            person.types("a")
            lost = r"! this was decided before, otherwise: rejected by ada, [\d-]{10} [\d:]{8} UTC"
            await asyncio.to_thread(person.until, lost)
            assert await asyncio.to_thread(person.ends) == 0
        await desk.perdure.delivery("second").cancel()


@pytest.mark.timeout(120)
async def test_resume_of_what_nobody_holds_says_what_it_waits_for(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("not-held")
        asked = await desk.asked("not-held")
        told = await desk.refused("resume", "not-held")
        assert f"nobody holds it: it waits for plan {asked.target}: approve the plan: Add sub" in told
        assert "perdure approve not-held" in told
        await desk("hold", "not-held")
        await desk("resume", "not-held")
        await desk("approve", "not-held")
        await desk.result("not-held")


@pytest.mark.timeout(180)
async def test_a_key_pressed_before_the_choice_is_shown_decides_nothing_and_the_first_one_after_it_does(
    desk: Desk,
) -> None:
    async with desk.worker():
        await desk.submit("early")
        for key, told in (("l", "nothing was decided: it still waits"), ("a", "✓ approved: plan ")):
            with Typist(desk.cli, "approve", "early") as person:
                person.types("la"[key == "l"] * 3)
                await asyncio.to_thread(person.until, PLAN_GATE)
                person.types(key)
                await asyncio.to_thread(person.until, told)
                await asyncio.to_thread(person.ends)
        assert (await desk.result("early")).status == "completed"
