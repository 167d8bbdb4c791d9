"""Turns of Claude Code and Codex: each a checkpoint of tree and session, and a death between any two goes on there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from perdure.adapters.git.checkpoint import read_transcript, read_turn
from tests import needs
from tests.adapters.worker.turn.turn_fixtures import vault, working

pytestmark = pytest.mark.long

PLAY = """
[[line]]
step = "implement"
turn = 1
say = "I look first."
use = [{ tool = "read", input = { path = "calc.py" } }]
[[line]]
step = "implement"
turn = 2
contains = ["def add"]
use = [{ tool = "bash", input = { command = "echo 'def sub(a, b): return a - b' >> calc.py; echo $((40 + 2))" } }]
[[line]]
step = "implement"
turn = 3
contains = ["42"]
use = [{ tool = "write", input = { path = "notes.txt", content = "sub\\n" } }]
[[line]]
step = "implement"
turn = 4
say = "Add sub\\n\\nAs asked."
"""
AGENTS = [
    pytest.param("claude-code", marks=pytest.mark.needs("claude")),
    pytest.param("codex", marks=pytest.mark.needs("codex")),
]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}")


def config(agent: str) -> str:
    return f'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "{agent}"\n'


@pytest.mark.parametrize("agent", AGENTS)
async def test_each_turn_is_a_checkpoint_of_tree_and_session_and_every_reply_is_paid_once(
    agent: str, tmp_path: Path
) -> None:
    async with working(tmp_path, PLAY, config=config(agent)) as bench:
        results = await bench.take_step(fresh=True)
        assert len(results) == 4
        assert results[-1].outcome is not None
        assert results[-1].outcome.summary == "Add sub"
        store = vault(bench)
        files = [store.git.text("ls-tree", "-r", "--name-only", one.checkpoint) for one in results]
        assert ["notes.txt" in one for one in files] == [False, False, True, True]
        assert [call.turn for call in bench.rehearsal.calls] == [1, 2, 3, 4]
        report = bench.rehearsal.report()
        assert (report["replies"], report["repeated"], report["refused"]) == (4, 0, 0)
        sessions = {read_turn(store, one.checkpoint)["agent"]["session"] for one in results}
        assert len(sessions) == 1, "one session, resumed"
        if agent == "claude-code":
            assert {call.body["max_tokens"] for call in bench.rehearsal.calls} == {16_000}, "what is at risk in a death"
        transcript = json.dumps(read_transcript(store, results[-1].checkpoint))
        assert "42" in transcript


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_that_nothing_disturbs_is_begun_once_and_leaves_nothing(agent: str, tmp_path: Path) -> None:
    async with working(tmp_path, PLAY, config=config(agent)) as bench:
        results = await bench.take_step(fresh=False)
        assert [one.outcome is None for one in results] == [True, True, True, False]
        asked = [json.dumps(call.body) for call in bench.rehearsal.calls]
        assert len(asked) == 4
        assert not any("Go on." in one for one in asked), "it was begun again"
        left = [path.name for path in bench.host.home.root.rglob("agent-home-*") if not path.name.endswith(".log")]
        assert left == []
