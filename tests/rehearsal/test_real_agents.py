"""Claude Code and Codex play a screenplay that was written for the built-in agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.real_agents import claude, codex, told
from tests.rehearsal.wire_fixtures import SCHEMA
from tests.waiting import patient

pytestmark = pytest.mark.long

PLAY = """
title = "one play for all"
[[line]]
step = "implement"
turn = 1
say = "I write it."
use = [{ tool = "write", input = { path = "lib/calc.py", content = "def add(a, b):\\n    return a - b\\n" } }]
[[line]]
step = "implement"
turn = 2
use = [
    { tool = "read", input = { path = "lib/calc.py" } },
    { tool = "glob", input = { pattern = "**/*.py" } },
    { tool = "grep", input = { pattern = "return" } },
]
[[line]]
step = "implement"
turn = 3
contains = ["lib/calc.py:2"]
[[line.use]]
tool = "edit"
input.path = "lib/calc.py"
input.old = "    return a - b\\n"
input.new = "    return a + b\\n"
[[line]]
step = "implement"
turn = 4
use = [{ tool = "bash", input = { command = "python3 -c 'import lib.calc as c; print(c.add(40, 2))'" } }]
[[line]]
step = "implement"
last = "42"
say = "Add add"
[[line]]
step = "plan"
answer = { title = "A plan" }
"""
PROMPT = "Step: implement\n\nWrite add.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / ".git").mkdir(parents=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (path / ".git" / name).mkdir()
    return path


def done(tree: Path) -> bool:
    return (tree / "lib" / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"


@pytest.mark.needs("claude")
@pytest.mark.parametrize("more", [(), ("--bare",)], ids=["as it comes", "bare"])
async def test_claude_code_changes_the_files_as_the_built_in_agent_would(rehearsal, tree, tmp_path, more):
    twin = await rehearsal(PLAY)
    code, said = await told(claude(*more, url=twin.url), PROMPT, tree, tmp_path / "home")
    assert (code, json.loads(said)["result"]) == (0, "Add add"), said
    assert done(tree)
    assert [(call.turn, call.status) for call in twin.calls] == [(turn, 200) for turn in range(1, 6)]
    assert (twin.report()["prefix_breaks"], twin.report()["repeated"]) == (0, 0)


@pytest.mark.needs("codex")
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-6.1-sol", "one-it-does-not-know"])
async def test_codex_changes_the_files_as_the_built_in_agent_would(rehearsal, tree, tmp_path, model):
    twin = await rehearsal(PLAY)
    code, said = await told(codex(url=twin.url, model=model), PROMPT, tree, tmp_path / "home")
    events = [json.loads(line) for line in said.splitlines()]
    assert (code, events[-1]["type"]) == (0, "turn.completed"), said
    assert events[-2]["item"]["text"] == "Add add"
    assert done(tree)
    assert [(call.turn, call.status) for call in twin.calls] == [(turn, 200) for turn in range(1, 6)]
    assert (twin.report()["prefix_breaks"], twin.report()["repeated"]) == (0, 0)


@pytest.mark.needs("claude")
async def test_claude_code_gives_an_answer_through_its_own_tool_for_that(rehearsal, tree, tmp_path):
    twin = await rehearsal(PLAY)
    agent = claude("--json-schema", json.dumps(SCHEMA), url=twin.url)
    code, said = await told(agent, "Step: plan\n\nPlan it.", tree, tmp_path / "home")
    assert (code, json.loads(said)["structured_output"]) == (0, {"title": "A plan"}), said
    assert len(twin.calls) == 1


@pytest.mark.needs("codex")
async def test_codex_gives_an_answer_that_follows_the_schema(rehearsal, tree, tmp_path):
    twin = await rehearsal(PLAY)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    agent = codex("--output-schema", str(tmp_path / "schema.json"), url=twin.url)
    code, said = await told(agent, "Step: plan\n\nPlan it.", tree, tmp_path / "home")
    assert code == 0, said
    assert json.loads(json.loads(said.splitlines()[-2])["item"]["text"]) == {"title": "A plan"}


async def until_held(home: Path, known: int) -> None:
    """Until every result of the held request is in Claude Code's session file: it writes that a little later."""
    async with asyncio.timeout(patient(10)):
        while sum(file.read_text().count('"type":"tool_result"') for file in home.rglob("projects/*/*.jsonl")) < known:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("claude", marks=pytest.mark.needs("claude")),
        pytest.param("codex", marks=pytest.mark.needs("codex")),
    ],
)
async def test_an_agent_that_was_killed_goes_on_in_the_turn_that_its_session_stands_at(rehearsal, tree, tmp_path, name):
    held = '\n[[line]]\nstep = "implement"\nturn = 3\nfault = "hang"\n'
    twin = await rehearsal(held + PLAY.replace('title = "one play for all"', ""))
    home = tmp_path / "home"
    run = asyncio.create_task(
        told(claude(url=twin.url) if name == "claude" else codex(url=twin.url), PROMPT, tree, home)
    )
    async with asyncio.timeout(patient(30)):
        while [call.turn for call in twin.calls] != [1, 2, 3]:
            await asyncio.sleep(0.02)
    if name == "claude":
        await until_held(home, 4)
    run.cancel()  # which kills it
    await asyncio.gather(run, return_exceptions=True)
    if name == "claude":
        (session,) = home.rglob("projects/*/*.jsonl")
        again = claude("--resume", session.stem, url=twin.url)
    else:
        (session,) = home.rglob("rollout-*.jsonl")
        words, variables = codex(url=twin.url)
        again = [words[0], words[1], "resume", *words[2:-1], session.stem[-36:], words[-1]], variables
    code, said = await told(again, "Go on.", tree, home)
    assert code == 0, said
    assert done(tree)
    assert [call.turn for call in twin.calls] == [1, 2, 3, 3, 4, 5]
