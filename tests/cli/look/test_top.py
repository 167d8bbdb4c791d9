"""`perdure top` and `perdure logs`: what waits first, one step, as it goes on."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.cli.look.top import mark_of, phase_cell, table_lines
from perdure.client.server.overview import OverviewRow
from perdure.models.delivery.decisions import Gate, PendingDecision
from tests.cli.conftest import Cli
from tests.cli.decision_fixtures import Desk, desk
from tests.cli.typist import Typist
from tests.engine import HAPPY, Engine, finished, make_target, until

__all__ = ["desk"]

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
ASKED = PendingDecision(
    gate=Gate.PLAN, target="1a2b3c4d", summary="approve the plan: \x1b[2JAdd sub", since=NOW - timedelta(minutes=5)
)


def row(id: str = "calc-sub", **more: object) -> OverviewRow:
    known = {"kind": "delivery", "repository": "calc", "phase": "build", "status": "running", "pending_decision": None}
    known |= {"since": None, "started": NOW - timedelta(hours=1), "closed": None, "cost_usd": 0.25}
    return OverviewRow(id=id, **{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_line_fits_and_nothing_of_others_moves_the_cursor(width: int) -> None:
    rows = [
        row("waiting-" * 6, pending_decision=ASKED, since=ASKED.since, status="waiting", phase="plan"),
        row(turn=3, doing="pytest -q " + "x" * 100, worker="1@host"),
        row("done", closed=NOW, status="delivered", phase="ship"),
    ]
    lines = table_lines(rows, width, NOW)
    assert all(len(line) <= width for line in lines), [len(line) for line in lines]
    assert not any("\x1b" in line for line in lines)
    assert [line[0] for line in lines[1:]] == ["!", "▸", "✓"]
    assert "▰▱▱▱▱ plan" in lines[1]
    assert "▰▰▱▱▱ build" in lines[2]
    assert "5 min" in lines[1]


@pytest.mark.parametrize("width", [60, 100])
def test_two_deliveries_never_look_alike(width: int) -> None:
    rows = [row("calc-add-subtraction-of-fractions-" + end) for end in ("3f09", "3f10")]
    first, second = (line.split()[1] for line in table_lines(rows, width, NOW)[1:])
    assert first != second
    assert first.endswith("3f09")


@pytest.mark.parametrize("width", [60, 100])
def test_a_narrow_terminal_has_titles_in_place_of_ids_and_no_two_alike(width: int) -> None:
    long_title = "Add subtraction of fractions and of all that follows from it"
    rows = [
        row("calc-add-1", title="Add sub"),
        row("calc-add-subtraction-of-fractions-3f09", title=long_title),
        row("calc-add-subtraction-of-fractions-3f10", title=long_title),
        row("night"),
    ]
    lines = table_lines(rows, width, NOW)[1:]
    assert "Add sub " in lines[0]
    assert "calc-add-1" not in lines[0]
    assert all("Add s" in line for line in lines[1:3])
    assert ("3f09" in lines[1], "3f10" in lines[2]) == (True, True)
    assert "night" in lines[3]
    assert all(len(line) <= width for line in lines)


def test_what_has_failed_says_why() -> None:
    failed = row(closed=NOW, status="not_delivered", reason="tests red: 2 of 44 fail")
    assert table_lines([failed], 160, NOW)[1].endswith("not delivered: tests red: 2 of 44 fail")


def test_a_wide_terminal_has_titles() -> None:
    (heading, line) = table_lines([row(title="Add sub\x1b[2J to calc")], 160, NOW)
    assert "title" in heading
    assert "Add sub" in line
    assert "\x1b" not in line


def test_a_silent_worker_a_failure_and_a_backlog_are_seen_at_a_glance() -> None:
    assert mark_of(row(silent_since=NOW)) == "?"
    assert mark_of(row(closed=NOW, status="not_delivered")) == "✗"
    assert phase_cell(row(kind="backlog")) == "backlog"
    assert phase_cell(row(phase="")) == "▱▱▱▱▱"
    assert table_lines([], 60) == []


@pytest.mark.timeout(180)
async def test_a_plan_that_waits_is_first_and_approved_by_a_key_and_without_a_terminal_it_is_a_table(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        cli = Cli(engine.home.root, tmp_path, {})
        ran = await asyncio.to_thread(cli, "top")
        assert (ran.code, ran.out.strip()) == (0, "nothing runs")
        engine.worker()
        submitted = await engine.submit(origin, gates=["plan"])

        async def asked() -> PendingDecision | None:
            return (await submitted.delivery.describe()).pending_decision

        await until(asked)

        def person() -> int:
            with Typist(cli, "top") as typist:
                typist.until("1 wait for you")
                typist.until("plan: approve the plan: Add sub")
                typist.types("\x1b[A")  # an arrow ends with an A: nothing is approved by it
                typist.types("a")
                typist.until(r"\[l\]ater")  # a key pressed before the choice is shown decides nothing
                typist.types("a")
                typist.until("calc-sub: decided")
                typist.types("q")
                return typist.ends()

        assert await asyncio.to_thread(person) == 0
        result = await finished(submitted, engine)
        assert result.status == "delivered"
        assert [made.verdict for made in result.decisions] == ["approved"]
        ran = await asyncio.to_thread(cli, "top", "--json")
        (told,) = json.loads(ran.out)
        assert (told["id"], told["status"]) == ("calc-sub", "delivered")
        ran = await asyncio.to_thread(cli, "top", "--once")
        assert "✓ calc-sub" in " ".join(ran.out.split())


PLAN = "── 2026-05-04 14:02:11 UTC  3f9c1d2a4b  plan  turn 1 · read calc.py\n  I shall look.\n"
BUILD = "── 2026-05-04 14:02:15 UTC  5aa90f3b11  implement 2  turn 1 · edit calc.py\n  ── plan  is what I said\n"


@pytest.mark.timeout(120)
async def test_logs_show_one_step_and_follow_until_the_delivery_ends(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("logged")
        await desk.asked("logged")
        desk.scene.log = PLAN + BUILD
        assert (await desk("logs", "logged")).out == PLAN + BUILD
        assert (await desk("logs", "logged", "--step", "plan")).out == PLAN
        assert (await desk("logs", "logged", "--step", "build")).out == BUILD
        assert "logged has taken no turn of review yet" in (await desk("logs", "logged", "--step", "review")).err
        told = await desk.refused("logs", "logged", "--step", "implemnt")
        assert "did you mean implement?" in told

        desk.scene.log, before = PLAN, desk.scene.logs_read
        following = asyncio.create_task(desk("logs", "logged", "--follow"))

        async def read() -> bool:
            return desk.scene.logs_read > before

        await desk.until(read)
        assert not following.done()
        desk.scene.log = PLAN + BUILD
        await desk("approve", "logged")
        assert (await following).out == PLAN + BUILD
        assert (await desk("logs", "logged", "-f")).out == PLAN + BUILD, "of one that has ended all of it, once"
