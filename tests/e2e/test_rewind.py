"""Back to a turn, also of a delivery that has ended: files and conversation byte for byte, nothing paid again."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.journal import SpendLog
from perdure.client import Delivery
from perdure.client.delivery.rewinding import fork, rewind
from perdure.client.delivery.turns import TurnRecord, find_turn, turns
from perdure.models.delivery.result import DeliveryResult, Status
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from tests.commands import perdure
from tests.engine import BUILT, Engine, git, heads, make_target, pulls, until
from tests.repositories import unpack


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
@pytest.mark.cluster
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


STORY = """
[[line]]
step = "classify"
answer = { kind = "feature", reason = "it adds a file" }

[[line]]
step = "implement"
turn = 2
contains = ["another way"]
use = [{ tool = "bash", input = { command = "echo anew >> notes.txt" } }]

[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "echo line 1 >> notes.txt" } }]

[[line]]
step = "implement"
turn = 2
use = [{ tool = "bash", input = { command = "echo line 2 >> notes.txt" } }]

[[line]]
step = "implement"
turn = 3
say = "All turns are done."
"""


def called(known: list[TurnRecord], place: str) -> TurnRecord:
    (found,) = [one for one in known if one.place == place]
    return found


async def ended(delivery: Delivery, run_id: str) -> DeliveryResult:
    """The result of another run than that."""

    async def other() -> bool:
        return (await delivery.describe()).run_id == run_id

    await until(other, 60)
    return await asyncio.wait_for(delivery.result(), 120)


@pytest.mark.always
@pytest.mark.timeout(300)
async def test_one_that_was_delivered_goes_back_to_a_turn_and_updates_its_pull_request(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **BUILT)).delivery
        first = await delivery.result()
        assert first.status == "delivered", first.message
        assert first.pull_request is not None
        assert not Workspace.open(engine.home, delivery.id).path.exists(), "the worktree is gone"
        before, calls = called(await turns(delivery), "implement:2"), engine.model_calls()

        again = await rewind(delivery, "implement:2", say="another way", model="claude-opus-5-5")
        second = await ended(delivery, again.run_id)
        assert (second.status, second.run_id) == ("delivered", again.run_id)
        assert second.pull_request is not None
        assert second.pull_request.number == first.pull_request.number
        assert [pull["number"] for pull in pulls(origin)] == [first.pull_request.number], "a second pull request"
        assert heads(origin)[f"perdure/{delivery.id}"] == second.head_sha
        assert git(origin, "show", f"refs/pull/{first.pull_request.number}/head:notes.txt") == "line 1\nanew"
        assert git(origin, "rev-list", "--count", f"{second.base_sha}..{second.head_sha}") == "1"
        assert called(await turns(delivery), "implement:2").before == before.before
        assert engine.rehearsal is not None
        asked = engine.rehearsal.calls[calls:]
        assert len(asked) == 2, "a turn before it was paid again"
        assert {call.body["model"] for call in asked} == {"claude-opus-5-5"}
        assert "another way" in str(asked[0].body)
        assert (await rewind(delivery, "implement:2", say="another way", model="claude-opus-5-5")).already_done
        assert second.usage.cost_usd is not None
        assert first.usage.cost_usd is not None
        assert second.usage.cost_usd > first.usage.cost_usd, "what was rewound was paid all the same"
        assert Workspace.open(engine.home, delivery.id).record().ended_at is not None

        assert "11 claims of 11 verified" in await perdure(engine, "verify", delivery.id)
        assert "continued  rewind" in await perdure(engine, "events", delivery.id)
        third = await ended(delivery, (await rewind(delivery, "implement:1")).run_id)
        assert third.pull_request is not None
        assert third.pull_request.number == first.pull_request.number, "rewound to before an older rewind"


@pytest.mark.timeout(300)
async def test_one_that_was_cancelled_goes_on_and_what_cannot_be_taken_anew_is_refused_with_the_reason(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    gated = {**BUILT, "gates": ["pull_request"]}
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **gated)).delivery

        async def waits() -> bool:
            return (await delivery.describe()).pending_decision is not None

        await until(waits, 60)
        await delivery.cancel()
        first = await delivery.result()
        assert first.status is Status.CANCELLED

        vault = Workspace.open(engine.home, delivery.id).vault
        at = called(await turns(delivery), "implement:2")
        tree = vault.tree_of(at.before)
        unpack(vault.path)
        broken = vault.path / "objects" / tree[:2] / tree[2:]
        shutil.move(broken, tmp_path / "lost")
        run_id = (await delivery.describe()).run_id
        for attempt in (rewind(delivery, "implement:2"), fork(delivery, "implement:2")):
            with pytest.raises(BadInput, match="implement:2: the checkpoint it begins with is damaged"):
                await attempt
        with pytest.raises(BadInput, match="agent"):
            await rewind(delivery, "implement:1", agent="built_in")
        assert (await delivery.describe()).run_id == run_id, "it was rewound all the same"
        shutil.move(tmp_path / "lost", broken)

        await rewind(delivery, "implement:2")
        await until(waits, 60)
        await engine.handle(delivery.id).execute_update("approve", {})
        assert (await delivery.result()).status == "delivered"

        await engine.client.start_workflow(
            "Backlog", {"items": "not one"}, id="night", task_queue=f"{TASK_QUEUE}-nobody"
        )
        for attempt in (
            rewind(engine.perdure.delivery("night"), "plan"),
            fork(engine.perdure.delivery("night"), "plan"),
        ):
            with pytest.raises(BadInput, match="a backlog cannot go back: its deliveries have begun"):
                await attempt
        with pytest.raises(BadInput, match="no delivery nothing"):
            await rewind(engine.perdure.delivery("nothing"), "plan")
        await engine.handle("night").terminate()
