"""A rewind is two calls of one command: killed in between, or made twice at once, it happens once."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from perdure.adapters.worker.journal import SpendLog
from perdure.client import Delivery
from perdure.client.delivery.rewinding import rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import PerdureError
from tests.commands import carried_out, perdure
from tests.e2e.test_fork import STORY, TURNS
from tests.engine import Engine, make_target, until

BACK, ID = 3, "short"
WORDS = "keep the old name"
REQUEST: dict[str, Any] = {
    "id": ID,
    "phases": ["build", "ship"],
    "config": "version = 1\n[gates]\nbefore = ['pull_request']\n",
}

KILLED = """
import asyncio, os, signal, sys
from temporalio.service import WorkflowService

call, moment = WorkflowService.reset_workflow_execution, sys.argv.pop(1)

async def reset(self, *given, **more):
    if moment != "before":
        calling = asyncio.ensure_future(call(self, *given, **more))
        await (calling if moment == "after" else asyncio.sleep(0.001))
    os.kill(os.getpid(), signal.SIGKILL)

WorkflowService.reset_workflow_execution = reset
from perdure.cli.app import main
main()
"""
"""The command, which kills itself before Temporal's call, while it is on its way, or before its answer is read."""


def rewind_command(moment: str) -> tuple[str, ...]:
    """Its words: with others it is another rewind."""
    return "rewind", ID, "--to", f"implement:{BACK}", "--say", f"{WORDS}, {moment}"


async def waiting(engine: Engine, left: str = "") -> str:
    """The run that waits for a person, another one than that."""
    delivery = engine.perdure.delivery(ID)

    async def waits() -> str:
        described = await delivery.describe()
        return described.run_id if described.pending_decision is not None and described.run_id != left else ""

    return str(await until(waits, 100))


async def killed(engine: Engine, moment: str) -> None:
    code, out = await carried_out(engine, "-c", KILLED, moment, *rewind_command(moment))
    assert code == -signal.SIGKILL, out


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_new_command_finishes_the_rewind_of_one_that_was_killed_and_nothing_is_rewound_twice(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **REQUEST)).delivery
        run = await waiting(engine)
        for moment in ("before", "during", "after"):
            run = await finished_by_another(engine, moment, run)
        assert SpendLog(engine.home.workspace(ID)).count_repeats() == (0, 0)
        once_more = await perdure(engine, *rewind_command("after"), "--again")
        assert once_more.startswith(f"rewound: {ID}"), once_more
        run, calls = await waiting(engine, run), engine.model_calls()
        await perdure(engine, "rewind", ID, "--to", f"implement:{BACK}", "--model", "claude-opus-5-5")
        assert await waiting(engine, run)
        assert engine.rehearsal is not None
        asked = [call.body["model"] for call in engine.rehearsal.calls[calls:]]
        assert asked == ["claude-opus-5-5"] * (TURNS + 1 - BACK), "another model took over while it ran"
        await delivery.cancel()


async def finished_by_another(engine: Engine, moment: str, left: str) -> str:
    """A command that rewinds this run is killed at that moment, two others finish it: the run that then waits."""
    calls = engine.model_calls()
    engine.end_workers()  # so that it is the same whichever of these commands is the faster one
    await killed(engine, moment)
    told = [json.loads(await perdure(engine, *rewind_command(moment), "--json")) for _ in range(2)]
    (run,) = {(await engine.perdure.delivery(ID).describe()).run_id, *(one["run_id"] for one in told)}  # rewound once
    assert run != left
    assert told[1]["before"] is True
    if moment != "during":
        assert told[0]["before"] is (moment == "after")
    assert {one["rewound_to"] for one in told} == {f"implement:{BACK}"}
    engine.worker()
    assert await waiting(engine, left) == run
    assert engine.model_calls() == calls + TURNS + 1 - BACK, "a turn was paid for that nobody took back"
    assert engine.rehearsal is not None
    asked = json.dumps(engine.rehearsal.calls[calls].body)
    assert asked.count(WORDS) == 1, "the words were lost, or said twice, or those of another rewind as well"
    return run


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_delivery_whose_rewind_was_killed_before_the_reset_goes_on_and_says_so(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY.replace("echo", "sleep 5; echo"), ports=ports) as engine:
        worker = engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **REQUEST)).delivery

        async def begun() -> bool:
            return bool([one for one in await turns(delivery) if one.place == f"implement:{BACK}"])

        await until(begun, 100)
        worker.send_signal(signal.SIGSTOP)
        try:
            await killed(engine, "before")
        finally:
            worker.send_signal(signal.SIGCONT)
        stayed = await waiting(engine)
        told = await engine.handle(ID).query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        assert "the rewind to implement" in told.current_details
        assert "did not happen" in told.current_details
        await engine.handle(ID).execute_update("approve", {})
        assert (await delivery.result()).run_id == stayed, "it did not go on in the run that was not left"
        assert engine.rehearsal is not None
        assert WORDS not in json.dumps([call.body for call in engine.rehearsal.calls])


MOMENTS = ({"ada": 2, "grace": 3}, {"ada": 3, "grace": 2}, {"ada": 2, "grace": 2}) * 2
"""The turn that each of them goes back to."""


async def checkpoints(delivery: Delivery) -> list[str]:
    return [one.checkpoint for one in await turns(delivery) if one.step == "implement"]


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_of_two_rewinds_in_the_same_instant_one_stands_whole_and_who_sent_the_other_is_told(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **REQUEST)).delivery
        run = await waiting(engine)
        assert engine.rehearsal is not None
        for number, moment in enumerate(MOMENTS):
            before, calls = await checkpoints(delivery), engine.model_calls()
            sent = [rewind(delivery, f"implement:{n}", say=f"{who} in {number}") for who, n in moment.items()]
            ends = dict(zip(moment, await asyncio.gather(*sent, return_exceptions=True), strict=True))
            for end in ends.values():
                if isinstance(end, BaseException):
                    assert isinstance(end, PerdureError), end
                    assert "in another run meanwhile" in end.what or "same moment, and stands" in end.what
            run = await waiting(engine, run)
            newest = json.dumps(engine.rehearsal.calls[-1].body)
            (heard,) = [who for who in moment if f"{who} in {number}" in newest]
            assert not isinstance(ends[heard], BaseException), "who is heard was told that another one stands"
            after, back = await checkpoints(delivery), moment[heard] - 1
            assert (len(after), after[:back]) == (TURNS, before[:back])
            assert after[back] != before[back], "not the turn of who is heard"
            assert engine.model_calls() - calls <= 2 * TURNS
        twice, _ = SpendLog(engine.home.workspace(ID)).count_repeats()
        assert twice == 0  # the run that does not stand is ended, also while it waits for a reply
        await delivery.cancel()
