"""Back to a turn: files and conversation byte for byte, earlier turns not paid again, words heard by it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.journal import SpendLog
from perdure.client.delivery.rewinding import rewind
from perdure.client.delivery.turns import TurnRecord, find_turn, turns
from perdure.models.errors import BadInput
from tests.commands import perdure
from tests.engine import Engine, make_target, until


def story(turns: int) -> str:
    lines = "".join(
        f"""
[[line]]
step = "implement"
turn = {number}
use = [{{ tool = "bash", input = {{ command = "echo line {number} >> notes.txt" }} }}]
"""
        for number in range(1, turns)
    )
    return f"""
[[line]]
step = "classify"
answer = {{ kind = "feature", reason = "it adds a file" }}
{lines}
[[line]]
step = "implement"
turn = {turns}
say = "All turns are done."
"""


REQUEST: dict[str, Any] = {
    "id": "long",
    "phases": ["build", "ship"],
    "config": "version = 1\n[gates]\nbefore = ['pull_request']\n",
}
"""Builds, then waits for a person."""


async def at_the_gate(engine: Engine, run: str = "") -> list[TurnRecord]:
    """The turns once the delivery waits, in another run than that."""
    delivery = engine.perdure.delivery("long")

    async def waits() -> bool:
        described = await delivery.describe()
        return described.run_id != run and described.pending_decision is not None

    await until(waits, 100)
    return await turns(delivery)


def parents(engine: Engine, checkpoints: list[str]) -> list[str]:
    """The checkpoints that these began with: each holds files and conversation, by its hash."""
    vault = Workspace.open(engine.home, "long").vault
    return [vault.git.text("rev-parse", f"{one}^") for one in checkpoints]


async def by_command(engine: Engine, known: list[TurnRecord], turns_taken: int) -> None:
    """`perdure turns` names them all, `perdure rewind` takes one of these names."""
    told = json.loads(await perdure(engine, "turns", "long", "--json"))
    assert [one["place"] for one in told] == [one.place for one in known]
    assert len((await perdure(engine, "turns", "long")).splitlines()) == len(known)
    run = (await engine.perdure.delivery("long").describe()).run_id
    said = await perdure(engine, "rewind", "long", "--to", f"build:{turns_taken - 1}", "--say", "once more")
    assert said.splitlines()[0] == f"rewound: long takes implement:{turns_taken - 1} anew"
    await at_the_gate(engine, run)
    refused = await perdure(engine, "rewind", "long", "--to", "implement:99", code=2)
    assert f"the nearest one is implement:{turns_taken}" in refused


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("number_of_turns", "places"),
    [(6, (4, 6, 1)), pytest.param(12, tuple(range(1, 13)), marks=pytest.mark.slow)],
    ids=["some", "each"],
)
async def test_a_delivery_goes_back_to_a_turn_and_pays_for_none_before_it(
    number_of_turns: int, places: tuple[int, ...], tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, story(number_of_turns), ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **REQUEST)).delivery
        first = await at_the_gate(engine)
        assert [one.place for one in first if one.step == "implement"] == [
            f"implement:{n}" for n in range(1, number_of_turns + 1)
        ]
        for number in places:
            run, calls = (await delivery.describe()).run_id, engine.model_calls()
            words = f"words for turn {number}"
            assert (await rewind(delivery, f"implement:{number}", say=words)).place == f"implement:{number}"
            again = await at_the_gate(engine, run)
            assert engine.model_calls() == calls + number_of_turns + 1 - number, "a turn before it was paid again"
            anew, old = ([one.checkpoint for one in told if one.step == "implement"] for told in (again, first))
            assert anew[: number - 1] == old[: number - 1]
            assert parents(engine, anew[number - 1 :][:1]) == parents(engine, old[number - 1 :][:1])
            assert anew[number - 1] != old[number - 1], "it was taken anew"
            assert engine.rehearsal is not None
            asked = [str(call.body) for call in engine.rehearsal.calls[calls:]]
            assert words in asked[0]
            heard = [older for older in range(1, number_of_turns + 1) if f"words for turn {older}\n" in asked[0] + "\n"]
            assert set(heard) <= {number}, "words of another rewind were said once more"
            assert SpendLog(engine.home.workspace("long")).count_repeats() == (0, 0), "paid twice, or cut off"
            first = again
        await by_command(engine, first, number_of_turns)
        with pytest.raises(BadInput, match="there is no turn 'implement:40'") as refused:
            await rewind(delivery, "implement:40")
        assert refused.value.fix == f"the nearest one is implement:{number_of_turns}"
        with pytest.raises(BadInput, match="there is no turn 'implment:2'") as refused:
            find_turn(first, "implment:2")
        assert refused.value.fix == "did you mean implement:2?"
        await delivery.cancel()
