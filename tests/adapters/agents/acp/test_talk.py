"""An agent of the Agent Client Protocol carries out prompts, is cancelled, and ends typed whatever it does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.adapters.agents.acp import session as talking
from perdure.adapters.agents.acp import stdio_over_socket as inside
from perdure.adapters.agents.acp.session import AcpSession, PermissionPolicy
from perdure.adapters.agents.acp.transport import open_agent_socket
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
async def talk(
    tree: Path, how: str = "", policy: PermissionPolicy | None = None, url: str = ""
) -> AsyncIterator[AcpSession]:
    """With a stand-in that works in the tree, its home beside it; its process is ended."""
    home = tree.parent / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_BASE_URL": url}
    async with open_agent_socket(home / "agent") as plugged:
        words = [sys.executable, inside.__file__, str(plugged.socket), sys.executable, str(STAND_IN), how]
        process = await asyncio.create_subprocess_exec(*words, cwd=tree, env=env)
        try:
            async with AcpSession(await plugged.wait_for_transport(patient(30)), policy) as talk:
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
        assert await agent.open_session(str(tree)) == "the-session"
        end = await agent.send_prompt(PROMPT, patient(60))
    assert (end.reason, end.text) == ("end_turn", "Add answer"), "the words after the last tool"
    assert (end.allowed, end.refused, end.foreign_lines) == (1, 0, 1)
    assert (tree / "lib" / "calc.py").read_text() == "answer = 42\n"
    declared = (tree.parent / "home" / "declared.json").read_text()
    assert '"readTextFile":false,"writeTextFile":false' in declared
    assert '"terminal":false' in declared


async def test_a_step_that_only_reads_allows_no_change(tree: Path) -> None:
    async with (
        Rehearsal(Screenplay.parse(PLAY)) as twin,
        talk(tree, policy=PermissionPolicy(read_only=True), url=twin.url) as agent,
    ):
        await agent.open_session(str(tree))
        end = await agent.send_prompt(PROMPT, patient(60))
    assert (end.allowed, end.refused) == (0, 1)
    assert not (tree / "lib").exists()


async def test_a_session_goes_on_in_another_process(tree: Path) -> None:
    more = PLAY + '[[line]]\nstep = "implement"\nturn = 3\nsay = "It was 42."\n'
    async with Rehearsal(Screenplay.parse(more)) as twin:
        async with talk(tree, url=twin.url) as agent:
            session = await agent.open_session(str(tree))
            await agent.send_prompt(PROMPT, patient(60))
        async with talk(tree, url=twin.url) as agent:
            assert await agent.open_session(str(tree), session) == session
            end = await agent.send_prompt("What was it?", patient(60))
        assert end.text == "It was 42."
        assert twin.report()["prefix_breaks"] == 0


async def test_a_hold_cancels_the_prompt_and_the_agent_takes_another_one(tree: Path) -> None:
    async with talk(tree, "slow") as agent:
        await agent.open_session(str(tree))
        for times in (1, 2):
            prompt = asyncio.create_task(agent.send_prompt("Think.", patient(60)))
            while agent.policy.updates < times:
                await asyncio.sleep(0.02)
            end = await agent.cancel_prompt()
            assert end is not None
            assert (end.reason, (await prompt).reason) == ("cancelled", "cancelled")
        assert await agent.cancel_prompt() is None


async def test_a_task_that_is_cancelled_cancels_the_prompt(tree: Path) -> None:
    async with talk(tree, "slow") as agent:
        await agent.open_session(str(tree))
        prompt = asyncio.create_task(agent.send_prompt("Think.", patient(60)))
        while agent.policy.text != "I think.":
            await asyncio.sleep(0.02)
        prompt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await prompt
        assert await agent.cancel_prompt() is None, "the agent has ended it"


async def test_an_agent_that_does_not_hear_a_cancel_ends_typed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talking, "CANCEL_S", 0.5)
    async with talk(tree, "deaf") as agent:
        await agent.open_session(str(tree))
        prompt = asyncio.create_task(agent.send_prompt("Think.", patient(60)))
        while agent.policy.text != "I think.":
            await asyncio.sleep(0.02)
        with pytest.raises(AgentFailed, match="has not ended its prompt within"):
            await agent.cancel_prompt()
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
            await agent.open_session(str(tree), within_s=patient(30))
            await agent.send_prompt("Do it.", 1 if how == "slow" else patient(30))


async def test_lines_of_odd_json_are_left_out(tree: Path) -> None:
    async with Rehearsal(Screenplay.parse(PLAY)) as twin, talk(tree, "odd", url=twin.url) as agent:
        await agent.open_session(str(tree))
        assert (await agent.send_prompt(PROMPT, patient(60))).foreign_lines == 7


async def test_files_that_were_not_offered_are_not_read(tree: Path) -> None:
    async with talk(tree, "reads") as agent:
        await agent.open_session(str(tree))
        assert (await agent.send_prompt("Read.", patient(30))).text == "Method not found"


async def test_an_agent_that_cannot_go_on_with_a_session_begins_another_one(tree: Path) -> None:
    async with talk(tree, "forgets") as agent:
        assert await agent.open_session(str(tree), "another-session") == "the-session"


async def test_an_agent_that_never_begins_ends_typed(tmp_path: Path) -> None:
    async with open_agent_socket(tmp_path / "agent") as plugged:
        with pytest.raises(AgentFailed, match="has not begun within"):
            await plugged.wait_for_transport(0.1)


async def test_nobody_else_gets_the_agents_socket(tmp_path: Path) -> None:
    async with open_agent_socket(tmp_path / "agent") as plugged:
        for _ in range(2):
            await asyncio.open_unix_connection(plugged.socket)
        await plugged.wait_for_transport(patient(10))
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            await asyncio.open_unix_connection(plugged.socket)
