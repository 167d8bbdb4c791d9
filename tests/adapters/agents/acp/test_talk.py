"""An agent of the Agent Client Protocol carries out prompts, is cancelled, and ends typed whatever it does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.adapters.agents.acp import plug as inside
from perdure.adapters.agents.acp import talk as talking
from perdure.adapters.agents.acp.lines import plug
from perdure.adapters.agents.acp.policy import Policy
from perdure.adapters.agents.acp.talk import Talk
from perdure.models.errors import AgentFailed
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.waiting import patient

STAND_IN = Path(__file__).with_name("stand_in.py")
PLAY = """
[[line]]
step = "implement"
turn = 1
say = "I write it."
use = [{ tool = "write", input = { path = "lib/calc.py", content = "answer = 42\\n" } }]
[[line]]
step = "implement"
turn = 2
say = "Add answer"
"""
PROMPT = "Step: implement\n\nWrite it."


@asynccontextmanager
async def talk(tree: Path, how: str = "", policy: Policy | None = None, url: str = "") -> AsyncIterator[Talk]:
    """With a stand-in that works in the tree, its home beside it; its process is ended."""
    home = tree.parent / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_BASE_URL": url}
    async with plug(home / "agent") as plugged:
        words = [sys.executable, inside.__file__, str(plugged.socket), sys.executable, str(STAND_IN), how]
        process = await asyncio.create_subprocess_exec(*words, cwd=tree, env=env)
        try:
            async with Talk(await plugged.lines(patient(30)), policy) as talk:
                yield talk
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


async def test_a_prompt_is_carried_out_and_permissions_are_given_and_counted(tree: Path) -> None:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin, talk(tree, url=twin.url) as agent:
        assert await agent.begin(str(tree)) == "the-session"
        end = await agent.prompt(PROMPT, patient(60))
    assert (end.reason, end.text) == ("end_turn", "Add answer"), "the words after the last tool"
    assert (end.allowed, end.refused, end.foreign) == (1, 0, 1)
    assert (tree / "lib" / "calc.py").read_text() == "answer = 42\n"
    declared = (tree.parent / "home" / "declared.json").read_text()
    assert '"readTextFile":false,"writeTextFile":false' in declared
    assert '"terminal":false' in declared


async def test_a_step_that_only_reads_allows_no_change(tree: Path) -> None:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin, talk(tree, policy=Policy(reads=True), url=twin.url) as agent:
        await agent.begin(str(tree))
        end = await agent.prompt(PROMPT, patient(60))
    assert (end.allowed, end.refused) == (0, 1)
    assert not (tree / "lib").exists()


async def test_a_session_goes_on_in_another_process(tree: Path) -> None:
    more = PLAY + '[[line]]\nstep = "implement"\nturn = 3\nsay = "It was 42."\n'
    async with Rehearsal(Screenplay.parse(more)) as twin:
        async with talk(tree, url=twin.url) as agent:
            session = await agent.begin(str(tree))
            await agent.prompt(PROMPT, patient(60))
        async with talk(tree, url=twin.url) as agent:
            assert await agent.begin(str(tree), session) == session
            end = await agent.prompt("What was it?", patient(60))
        assert end.text == "It was 42."
        assert twin.report()["prefix_breaks"] == 0


async def test_a_hold_cancels_the_prompt_and_the_agent_takes_another_one(tree: Path) -> None:
    async with talk(tree, "slow") as agent:
        await agent.begin(str(tree))
        for times in (1, 2):
            prompt = asyncio.create_task(agent.prompt("Think.", patient(60)))
            while agent.policy.updates < times:
                await asyncio.sleep(0.02)
            end = await agent.cancel()
            assert end is not None
            assert (end.reason, (await prompt).reason) == ("cancelled", "cancelled")
        assert await agent.cancel() is None


async def test_a_task_that_is_cancelled_cancels_the_prompt(tree: Path) -> None:
    async with talk(tree, "slow") as agent:
        await agent.begin(str(tree))
        prompt = asyncio.create_task(agent.prompt("Think.", patient(60)))
        while agent.policy.text != "I think.":
            await asyncio.sleep(0.02)
        prompt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompt
        assert await agent.cancel() is None, "the agent has ended it"


async def test_an_agent_that_does_not_hear_a_cancel_ends_typed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talking, "CANCEL_S", 0.5)
    async with talk(tree, "deaf") as agent:
        await agent.begin(str(tree))
        prompt = asyncio.create_task(agent.prompt("Think.", patient(60)))
        while agent.policy.text != "I think.":
            await asyncio.sleep(0.02)
        with pytest.raises(AgentFailed, match="has not ended its prompt within"):
            await agent.cancel()
        prompt.cancel()
        await asyncio.gather(prompt, return_exceptions=True)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("garbage", "1000 lines that are no message, the first: 'line 0 of a program"),
        ("version", "speaks version 7"),
        ("dies", "has ended before it answered session/prompt"),
        ("flood", "a line of more than 16 MiB"),
        ("slow", "has not answered session/prompt within 1 s"),
    ],
)
async def test_an_agent_that_breaks_the_protocol_ends_typed(tree: Path, how: str, what: str) -> None:
    async with talk(tree, how) as agent:
        with pytest.raises(AgentFailed, match=what):  # noqa: PT012 (some break it at once, others in the prompt)
            await agent.begin(str(tree), within_s=patient(30))
            await agent.prompt("Do it.", 1 if how == "slow" else patient(30))


async def test_lines_of_odd_json_are_left_out(tree: Path) -> None:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin, talk(tree, "odd", url=twin.url) as agent:
        await agent.begin(str(tree))
        assert (await agent.prompt(PROMPT, patient(60))).foreign == 7


async def test_files_that_were_not_offered_are_not_read(tree: Path) -> None:
    async with talk(tree, "reads") as agent:
        await agent.begin(str(tree))
        assert (await agent.prompt("Read.", patient(30))).text == "Method not found"


async def test_an_agent_that_cannot_go_on_with_a_session_begins_another_one(tree: Path) -> None:
    async with talk(tree, "forgets") as agent:
        assert await agent.begin(str(tree), "another-session") == "the-session"


async def test_an_agent_that_never_begins_ends_typed(tmp_path: Path) -> None:
    async with plug(tmp_path / "agent") as plugged:
        with pytest.raises(AgentFailed, match="has not begun within"):
            await plugged.lines(0.1)


async def test_nobody_else_gets_the_agents_socket(tmp_path: Path) -> None:
    async with plug(tmp_path / "agent") as plugged:
        for _ in range(2):
            await asyncio.open_unix_connection(plugged.socket)
        await plugged.lines(patient(10))
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            await asyncio.open_unix_connection(plugged.socket)
