"""Agents that claim what is not so: each turn ends typed, the tree is at a checkpoint, nothing of them is alive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn import process
from perdure.models.delivery.turn import Ending, TurnResult
from tests.adapters.worker.turn.turn_fixtures import DELIVERY, Bench, working
from tests.stand_in_agent import TWO_FILES, StandIn
from tests.waiting import patient

pytestmark = pytest.mark.story

CONFIG = 'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "stand-in"\n'


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = StandIn(tmp_path)
    yield made
    assert made.alive() == []


async def turns(bench: Bench) -> list[TurnResult]:
    results: list[TurnResult] = []
    checkpoint = bench.prepared.checkpoint
    while not results or results[-1].outcome is None:
        results.append(await bench.take(bench.work(len(results) + 1, checkpoint)))
        checkpoint = results[-1].checkpoint
        assert len(results) < 10
    return results


def tree_is_at(bench: Bench, checkpoint: str) -> bool:
    return checkpoints.is_at_checkpoint(Workspace.open(bench.host.home, DELIVERY), checkpoint)


async def test_one_that_tells_the_truth_ends_well(agent: StandIn, tmp_path: Path) -> None:
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        results = await turns(bench)
        assert [one.outcome.summary if one.outcome else "" for one in results] == ["", "", "Add both"]
        assert tree_is_at(bench, results[-1].checkpoint)
        assert bench.rehearsal.report()["repeated"] == 0


@pytest.mark.parametrize(("way", "words"), [("fails well", "Add both"), ("silent", "end")])
async def test_exit_0_and_success_are_no_proof(agent: StandIn, tmp_path: Path, way: str, words: str) -> None:
    agent.does(way)
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        results = await turns(bench)
        assert results[-1].outcome is not None
        assert results[-1].outcome.ending is Ending.FAILED
        assert words in results[-1].outcome.summary
        assert tree_is_at(bench, results[-1].checkpoint)


async def test_exit_0_with_nothing_done_is_a_failure(agent: StandIn, tmp_path: Path) -> None:
    agent.does("nothing")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        [only] = await turns(bench)
        assert only.outcome is not None
        assert only.outcome.ending is Ending.FAILED
        assert bench.rehearsal.calls == []
        assert tree_is_at(bench, only.checkpoint)


async def test_one_that_never_exits_after_its_result_is_ended(
    agent: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "AGENT_ENDS_S", 1.0)
    agent.does("stays")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        begun = time.monotonic()
        results = await turns(bench)
        assert time.monotonic() - begun < patient(60)
        assert results[-1].outcome is not None
        assert (results[-1].outcome.ending, results[-1].outcome.summary) == (Ending.DONE, "Add both")
        assert tree_is_at(bench, results[-1].checkpoint)


async def test_endless_reconnecting_has_an_end(agent: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "AGENT_SILENT_S", 3.0)
    agent.does("reconnects")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        [only] = await turns(bench)
        assert only.outcome is not None
        assert only.outcome.ending is Ending.FAILED
        assert tree_is_at(bench, only.checkpoint)


async def test_output_without_end_is_cut_off_and_the_step_ends(agent: StandIn, tmp_path: Path) -> None:
    agent.does("floods")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        results = await turns(bench)
        assert results[-1].outcome is not None
        assert results[-1].outcome.ending is Ending.FAILED
        assert tree_is_at(bench, results[-1].checkpoint)


async def test_an_orphan_writes_into_no_checkpoint_and_is_dead_after_its_turn(agent: StandIn, tmp_path: Path) -> None:
    agent.does("orphan")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        results = await turns(bench)
        assert agent.alive() == []
        assert tree_is_at(bench, results[-1].checkpoint)


async def test_success_after_a_last_reply_without_a_word_is_a_failure(agent: StandIn, tmp_path: Path) -> None:
    async with working(tmp_path, TWO_FILES.replace("Add both", "…"), config=CONFIG) as bench:
        results = await turns(bench)
        assert results[-1].outcome is not None
        assert results[-1].outcome.ending is Ending.FAILED
        assert "last reply was empty" in results[-1].outcome.summary
        assert tree_is_at(bench, results[-1].checkpoint)
