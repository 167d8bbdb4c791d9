"""Turns of agents that are spoken to by the Agent Client Protocol, ours and installed ones, in the sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from turn_fixtures import vault, working

from perdure.adapters.agents.presets import read_preset
from perdure.adapters.git.checkpoint import read_transcript, read_turn
from perdure.models.delivery.turn import Ending, TurnResult
from perdure.models.errors import WorkCutOff
from tests import needs
from tests.stand_in_agent import TWO_FILES, StandIn
from tests.waiting import until

FORGETS = """
[[line]]
step = "implement"
lacks = ["could not be brought back"]
use = [{ tool = "bash", input = { command = "echo one > one.txt" } }]
[[line]]
step = "implement"
contains = ["could not be brought back", "+one"]
lacks = ["+two"]
use = [{ tool = "bash", input = { command = "echo two > two.txt" } }]
[[line]]
step = "implement"
contains = ["+one", "+two"]
say = "Add both"
"""
CONFIG = 'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "stand-in"\n'


@pytest.fixture
def speaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = StandIn(tmp_path, "speaks", spoken=True)
    yield made
    assert made.alive() == []


@pytest.mark.story
@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "a process a turn"])
async def test_each_turn_is_a_checkpoint_and_the_session_goes_on_whoever_takes_the_next(
    speaker: StandIn, tmp_path: Path, *, fresh: bool
) -> None:
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        results = await bench.take_step(fresh=fresh)
        assert [one.outcome.summary if one.outcome else "" for one in results] == ["", "", "Add both"]
        assert results[-1].outcome is not None
        assert results[-1].outcome.ending is Ending.DONE
        store = vault(bench)
        files = [store.git.text("ls-tree", "-r", "--name-only", one.checkpoint) for one in results]
        assert ["tree/one.txt" in one for one in files] == [True, True, True]
        assert ["tree/two.txt" in one for one in files] == [False, True, True]
        memories = [read_turn(store, one.checkpoint)["agent"] for one in results]
        assert {(one["session"], one["allowed"], one["refused"]) for one in memories} == {("the-session", "1", "0")}
        report = bench.rehearsal.report()
        assert (report["replies"], report["repeated"], report["refused"]) == (3, 0, 0)


@pytest.mark.story
async def test_one_that_speaks_something_else_ends_typed(speaker: StandIn, tmp_path: Path) -> None:
    speaker.does("babbles")
    async with working(tmp_path, TWO_FILES, config=CONFIG) as bench:
        [only] = await bench.take_step(fresh=False)
        assert only.outcome is not None
        assert only.outcome.ending is Ending.FAILED
        assert "1000 lines that are no message, the first: 'this" in only.outcome.summary
        assert bench.rehearsal.calls == []


@pytest.mark.story
async def test_one_that_cannot_go_on_with_its_session_is_told_what_was_done(speaker: StandIn, tmp_path: Path) -> None:
    speaker.does("forgets")
    async with working(tmp_path, FORGETS, config=CONFIG) as bench:
        results = await bench.take_step(fresh=True)
        assert [one.outcome.summary if one.outcome else "" for one in results] == ["", "", "Add both"]
        said = json.dumps(read_transcript(vault(bench), results[-1].checkpoint))
        assert said.count("could not be brought back") == 1, "what it was told is not told in what it is told next"


@pytest.mark.story
async def test_one_that_is_killed_from_outside_has_not_failed(speaker: StandIn, tmp_path: Path) -> None:
    play = TWO_FILES.replace("echo one > one.txt", "touch started; sleep 100")
    async with working(tmp_path, play, config=CONFIG) as bench:
        turn = asyncio.create_task(bench.take(bench.work(1, bench.prepared.checkpoint)))
        await until(lambda: any(bench.host.home.root.rglob("started")))
        for process in speaker.alive():
            with suppress(psutil.NoSuchProcess):  # it went with another one
                process.kill()
        with pytest.raises(WorkCutOff, match="was ended from outside"):
            await turn


PLAY = """
[[line]]
step = "implement"
lacks = ["def sub"]
use = [{ tool = "bash", input = { command = "echo 'def sub(a, b): return a - b' >> calc.py" } }]
[[line]]
step = "implement"
contains = ["def sub"]
lacks = ["notes.txt"]
use = [{ tool = "write", input = { path = "notes.txt", content = "sub\\n" } }]
[[line]]
step = "implement"
contains = ["notes.txt"]
say = "Add sub"
"""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", [pytest.param(name, marks=pytest.mark.needs(name)) for name in needs.SPOKEN])
@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "begun again each turn"])
async def test_each_turn_is_a_checkpoint_and_every_reply_is_paid_once(agent: str, fresh: bool, tmp_path: Path) -> None:
    config = f'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "{agent}"\n'
    async with working(tmp_path, PLAY, config=config) as bench:
        results: list[TurnResult] = []
        checkpoint = bench.prepared.checkpoint
        while not results or results[-1].outcome is None:
            host = bench.again() if fresh else bench.host
            results.append(await bench.take(bench.work(len(results) + 1, checkpoint), host=host))
            checkpoint = results[-1].checkpoint
            assert len(results) < 8
        assert results[-1].outcome is not None
        assert results[-1].outcome.summary == "Add sub"
        store = vault(bench)
        files = [store.git.text("ls-tree", "-r", "--name-only", one.checkpoint) for one in results]
        assert ["notes.txt" in one for one in files] == [False, True, True]
        report = bench.rehearsal.report()
        assert (report["repeated"], report["refused"]) == (0, 0)
        assert len([call for call in bench.rehearsal.calls if call.step == "implement"]) == 3
        if read_preset(agent).preset.abilities.resume:
            assert len({read_turn(store, one.checkpoint)["agent"]["session"] for one in results}) == 1
