"""Ctrl-C, arrow up, Enter: the same words again come back to what they began."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from perdure.models.limits import WORKFLOW_TASK
from tests.cli.conftest import Cli
from tests.cli.decision_fixtures import Desk, desk
from tests.waiting import patient

pytestmark = pytest.mark.story

__all__ = ["desk"]


def left(cli: Cli, *args: str) -> str:
    """The output of a command when Ctrl-C ends it, as soon as it watches; it exits with 130."""
    process = cli.start(*args)
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if line.startswith("  watching"):
            process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(patient(30)) == 130
    return seen


@pytest.mark.timeout(120)
async def test_ctrl_c_and_the_same_command_again_come_back_to_the_same_delivery(desk: Desk, cli: Cli) -> None:
    here = Cli(desk.cli.home, cli.cwd, desk.cli.env)
    wanted = ("deliver", "Add sub")
    first = await asyncio.to_thread(left, here, *wanted)
    id = first.splitlines()[0].split(" · ")[1]
    assert id.startswith("calc-add-sub-")
    again = await asyncio.to_thread(here, *wanted, "--detach", "--json")
    assert json.loads(again.out) == {"delivery_id": id, "attached": True}
    assert f"{id} is already there: nothing new was started; --new starts another" in again.err
    options = ("--agent", "claude-code", "--budget", "3", "--no-questions", "--gate", "plan", "--phases", "plan")
    attached = await asyncio.to_thread(here, *wanted, *options, "--id", id, "--detach", "--json")
    assert "--agent claude-code, --budget 3.0, --gate plan, --phases plan, --no-questions did not count" in attached.err
    assert "did not count" not in again.err
    another = json.loads((await asyncio.to_thread(here, *wanted, "--new", "--detach", "--json")).out)
    assert (another["attached"], another["delivery_id"] == id) == (False, False)
    refused = await asyncio.to_thread(here, "deliver", "Remove sub", "--id", id)
    assert (refused.code, refused.out) == (2, "")
    assert f"the id {id} is taken by another request there: Add sub" in refused.err
    assert "one of them" in (await asyncio.to_thread(here, *wanted, "--new", "--id", "x")).err
    for started in (id, another["delivery_id"]):
        handle = desk.client.get_workflow_handle(started)
        begun = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        assert begun.workflow_task_timeout.ToTimedelta() == WORKFLOW_TASK
        await handle.terminate()


@pytest.mark.timeout(120)
async def test_a_phase_alone_comes_back_too_until_somebody_pushes(desk: Desk, cli: Cli, origin: Path) -> None:
    here = Cli(desk.cli.home, cli.cwd, desk.cli.env)
    work = origin.with_name(f"{origin.name}-work")

    def push(text: str) -> None:
        (work / "calc.py").write_text(text)
        for args in (("commit", "-qam", text), ("push", "-q", str(origin), "HEAD:topic")):
            subprocess.run(["git", *args], cwd=work, check=True, timeout=60)

    async def tested() -> tuple[str, bool]:
        ran = await asyncio.to_thread(here, "run", "test", "--branch", "topic", "--detach", "--json")
        told = json.loads(ran.out)
        return told["delivery_id"], told["attached"]

    await asyncio.to_thread(push, "one = 1\n")
    first, again = await tested(), await tested()
    assert (again, first[1]) == ((first[0], True), False)
    assert first[0].startswith("calc-test-topic-")
    await asyncio.to_thread(push, "one = 2\n")
    later = await tested()
    assert (later[1], later[0] == first[0]) == (False, False)
    for started in (first[0], later[0]):
        await desk.client.get_workflow_handle(started).terminate()
