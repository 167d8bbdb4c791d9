"""Agents with a process of their own: told once that they go in circles, and none of a killed worker is left."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import Bench, working

from perdure.adapters.agents.builtin.progress import STANDING_STOP, STANDING_WARN, STUCK
from perdure.adapters.worker.attempt import current_facts
from perdure.adapters.worker.turn.process import _remove_leftovers
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.turn import Ending, TurnResult
from tests import needs
from tests.stand_in_agent import TWO_FILES, StandIn

CIRCLES = """
[[line]]
step = "implement"
lacks = ["STOPS AT ALL"]
use = [{ tool = "bash", input = { command = "cat calc.py" } }]
"""
HEEDS = (
    CIRCLES.replace("STOPS AT ALL", STUCK) + f'[[line]]\nstep = "implement"\ncontains = ["{STUCK}"]\nsay = "Add none"\n'
)


def config(agent: str) -> str:
    return f'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "{agent}"\n'


async def turns(bench: Bench, *, dies_after: int = 0, said_before: int = 0) -> list[TurnResult]:
    """All turns of the step; another worker takes the one after `dies_after`, a person speaks before `said_before`."""
    results: list[TurnResult] = []
    checkpoint, host = bench.prepared.checkpoint, bench.host
    while not results or results[-1].outcome is None:
        host = bench.again() if dies_after and len(results) == dies_after else host
        work = bench.work(len(results) + 1, checkpoint)
        if work.turn == said_before:
            work = work.model_copy(update={"messages": (UserMessage(id="w", text="Look again."),)})
        results.append(await bench.take(work, host=host))
        checkpoint = results[-1].checkpoint
        assert len(results) < 3 * STANDING_STOP
    return results


def told(bench: Bench) -> list[bool]:
    """In which requests of the step the word stands."""
    return [STUCK in json.dumps(call.body) for call in bench.rehearsal.calls if call.step == "implement"]


@pytest.mark.story
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("spoken", "resumes"), [(False, True), (True, True), (True, False)])
async def test_it_is_told_once_then_ended_by_name(
    spoken: bool, resumes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    agent = StandIn(tmp_path, spoken=spoken)
    agent.does("speaks" if spoken else "honest", resumes=resumes)
    async with working(tmp_path, CIRCLES, config=config("stand-in")) as bench:
        outcome = (await turns(bench, dies_after=STANDING_WARN + 3))[-1].outcome
        assert outcome is not None
        assert outcome.ending is Ending.LOOPING
        assert outcome.summary == f"no progress: {STANDING_STOP} times"
        words = told(bench)
        first = words.index(True)
        assert first > STANDING_WARN, "an honest agent may look twice"
        assert all(words[first:]), "it has forgotten the word"
        assert sum(json.dumps(bench.rehearsal.calls[-1].body).count(one) for one in (STUCK,)) == 1, "told again"
        assert bench.rehearsal.report()["repeated"] == 0
        assert agent.alive() == []


@pytest.mark.story
@pytest.mark.timeout(300)
async def test_words_of_a_person_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    StandIn(tmp_path)
    async with working(tmp_path, HEEDS, config=config("stand-in")) as bench:
        await turns(bench, said_before=STANDING_WARN)
        assert told(bench).index(True) > 2 * STANDING_WARN


class Told(dict[str, object]):
    """What an attempt has said of itself, all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[object] = []

    def update(self, *facts: Any, **more: Any) -> None:
        self.said += [fact["doing"] for fact in (*facts, more) if "doing" in fact]


@pytest.mark.story
@pytest.mark.timeout(300)
async def test_people_see_the_command_that_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    StandIn(tmp_path)
    secret = "rehearsal"  # the worker's key
    async with working(tmp_path, TWO_FILES.replace("echo two", f"echo {secret}"), config=config("stand-in")) as bench:
        current_facts.set(told := Told())
        await turns(bench)
        shown = [str(one) for one in told.said if one != "waiting for the model"]
        assert shown[:2] == ["Stand-in begins", "echo one > one.txt"]
        assert secret not in shown[2]
        assert "> two.txt" in shown[2]
        assert len(shown) == 3


@pytest.mark.story
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "agent",
    [
        "stand-in",
        pytest.param("claude-code", marks=pytest.mark.needs("claude")),
        pytest.param("codex", marks=pytest.mark.needs("codex")),
    ],
)
async def test_one_that_heeds_the_word_ends_well(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}")
    StandIn(tmp_path)
    async with working(tmp_path, HEEDS, config=config(agent)) as bench:
        outcome = (await turns(bench))[-1].outcome
        assert outcome is not None
        assert (outcome.ending, outcome.summary) == (Ending.DONE, "Add none")
        assert told(bench) == [False] * (len(bench.rehearsal.calls) - 1) + [True]
        assert bench.rehearsal.report()["repeated"] == 0


def test_what_a_killed_worker_left_of_an_agent_is_removed(tmp_path: Path) -> None:
    sockets = Path(tempfile.mkdtemp(prefix="perdure-agent-"))
    (sockets / "model").touch()
    (tmp_path / "agent-home-1").mkdir()
    (tmp_path / "agent-home-1.socket").write_text(str(sockets))
    _remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not sockets.exists()


@pytest.mark.parametrize("torn", ["", ".", "/", "..", "\0\0\0", "{elsewhere}"])
def test_a_torn_or_forged_name_of_a_socket_removes_nothing_else(
    torn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for place in (elsewhere, here, tmp_path / "work"):
        place.mkdir()
        (place / "kept").touch()
    monkeypatch.chdir(here)
    (tmp_path / "work" / "agent-home-1.socket").write_text(torn.replace("{elsewhere}", str(elsewhere)))
    _remove_leftovers(tmp_path / "work")
    assert (elsewhere / "kept").exists()
    assert (here / "kept").exists()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["kept"]
