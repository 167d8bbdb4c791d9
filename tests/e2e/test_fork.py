"""A fork has a turn's files and conversation, goes its own way, and leaves the delivery it came from as it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.journal import SpendLog
from perdure.client import Delivery
from perdure.client.delivery.rewinding import fork
from perdure.client.delivery.turns import turns
from perdure.models.delivery.comparison import Comparison
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from tests.commands import perdure
from tests.engine import FIXES, Engine, git, make_target, pulls, until

TURNS, AT = 4, 3
WORDS = "use tabs"
LINES = "".join(
    f"""
[[line]]
step = "implement"
turn = {number}
use = [{{ tool = "bash", input = {{ command = "echo line {number} >> notes.txt" }} }}]
"""
    for number in range(1, TURNS)
)
STORY = f"""
[[line]]
step = "classify"
answer = {{ kind = "feature", reason = "it adds a file" }}
{LINES}
[[line]]
step = "implement"
turn = {TURNS}
say = "All turns are done."
"""
CONFIG = "version = 1\n[gates]\nbefore = ['pull_request']\n[ship]\nallow_untested = true\n"
REQUEST: dict[str, Any] = {"id": "whole", "phases": ["build", "ship"], "config": CONFIG}


async def waiting(delivery: Delivery) -> None:
    async def waits() -> bool:
        described = await delivery.describe()
        assert described.running, described
        return described.pending_decision is not None

    await until(waits, 100)


async def approved(engine: Engine, delivery: Delivery) -> Any:
    await waiting(delivery)
    await engine.handle(delivery.id).execute_update("approve", {})
    return await delivery.result()


async def history(engine: Engine) -> int:
    """Events of the other delivery, workflow tasks that queries caused among them."""
    return len((await engine.handle("whole").fetch_history()).events)


def refs_of(engine: Engine, delivery: str) -> dict[str, str]:
    vault: Vault = Workspace.open(engine.home, delivery).vault
    return vault.list_refs(f"refs/perdure/{delivery}/") | vault.list_refs(f"refs/artifacts/{delivery}/")


@pytest.mark.timeout(300)
async def test_a_fork_goes_on_from_a_turn_and_the_delivery_it_came_from_notices_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        whole = (await engine.submit(origin, "Add notes", **REQUEST)).delivery
        await waiting(whole)
        first, calls = await turns(whole), engine.model_calls()
        events, refs = (await history(engine)), refs_of(engine, "whole")
        engine.end_workers()
        engine.kept(PERDURE_CRASH_AT="during-prepare")
        said = await perdure(engine, "fork", "whole", "--at", f"build:{AT}", "--say", WORDS)
        told = json.loads(await perdure(engine, "fork", "whole", "--at", f"implement:{AT}", "--say", WORDS, "--json"))
        id = told["delivery_id"]
        assert said.startswith(f"{id} begins: whole before implement:{AT}"), said
        assert (told["before"], told["turns"]) == (True, AT - 1), "one more sibling, or other turns than before it"
        sibling = engine.perdure.delivery(id)
        await waiting(sibling)

        assert engine.model_calls() == calls + TURNS + 1 - AT, "a turn before it was paid again"
        assert engine.rehearsal is not None
        asked = str(engine.rehearsal.calls[calls].body)
        assert (WORDS in asked, f"echo line {AT - 1}" in asked) == (True, True), "its words, or what was said before"
        anew = [one for one in await turns(sibling) if one.step == "implement"]
        assert [one.place for one in anew] == [f"implement:{number}" for number in range(AT, TURNS + 1)]
        vault = Workspace.open(engine.home, id).vault
        before = [one.checkpoint for one in first if one.place == f"implement:{AT - 1}"]
        assert vault.git.text("rev-parse", f"{anew[0].checkpoint}^") == before[0], "it began with other files or words"
        assert await history(engine) == events, "something was written into the other's history"
        assert refs_of(engine, "whole") == refs

        results = [await approved(engine, one) for one in (whole, sibling)]
        assert [result.status for result in results] == ["delivered", "delivered"]
        assert results[0].branch == "perdure/whole"
        assert results[1].branch == f"perdure/{id}"
        texts = [git(origin, "show", f"{one.head_sha}:notes.txt") for one in results]
        assert texts[0] == texts[1] == "line 1\nline 2\nline 3"
        assert len(pulls(origin)) == 2
        receipt = results[1].receipt
        assert (receipt.forked_from, receipt.inherited_turns) == (f"whole at implement:{AT}", AT - 1)
        shared = sum(one.cost_usd or 0.0 for one in first[: AT - 1])
        assert receipt.inherited_usd == pytest.approx(shared)
        own = sum(one.cost_usd or 0.0 for one in anew)
        assert results[1].usage.cost_usd == pytest.approx(own), "what the other one paid was counted twice"
        assert SpendLog(engine.home.workspace(id)).count_repeats() == (0, 0)
        assert receipt.worker_deaths == 1
        listed = {one.delivery_id: one.cost_usd for one in await engine.perdure.list()}
        if listed[id] is not None:
            assert sum(cost or 0 for cost in listed.values()) == pytest.approx(
                sum(result.usage.cost_usd or 0 for result in results)
            )
        assert "paid there" in await perdure(engine, "show", id)
        beside = Comparison.model_validate_json(await perdure(engine, "compare", "whole", id, "--json"))
        assert (beside.same, [one.path for one in beside.files]) == (True, ["notes.txt"])
        assert beside.related == f"{id} is forked from whole at implement:{AT}"
        assert beside.cost_usd == pytest.approx(sum(result.usage.cost_usd or 0 for result in results))
        assert (beside.left_delivery.turns, beside.right_delivery.turns) == (TURNS, TURNS + 1 - AT)
        assert "together $" in await perdure(engine, "compare", "whole", id)
        assert "started" in (await perdure(engine, "events", id)).splitlines()[0]
        assert "11 claims of 11 verified" in await perdure(engine, "verify", id)
        assert "is one delivery" in await perdure(engine, "compare", "whole", "whole", code=2)

        again = await fork(whole, "implement:1", id="from-the-end")
        assert (await approved(engine, again.delivery)).status == "delivered", "a fork of one that has ended"
        of_fork = await fork(sibling, f"implement:{TURNS}", id="of-a-fork")
        assert of_fork.origin.turns == TURNS - 1
        assert (await approved(engine, of_fork.delivery)).status == "delivered", "a fork of a fork"
        with pytest.raises(BadInput, match="is another delivery"):
            await fork(whole, "implement:2", id=id)
        with pytest.raises(BadInput, match="there is no turn") as refused:
            await fork(whole, "implement:9")
        assert refused.value.fix == f"the nearest one is implement:{TURNS}"


@pytest.mark.timeout(300)
async def test_a_fork_in_a_later_phase_takes_over_plan_commits_and_approval_and_asks_another_model(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, FIXES, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, gates=["plan"])).delivery
        result = await approved(engine, delivery)
        assert result.status == "delivered"
        places = {one.step: one.place for one in reversed(await turns(delivery))}
        calls = engine.model_calls()
        sibling = await fork(delivery, places[Step.FIX_REVIEW], model="claude-opus-5-5", id="sibling")
        ended = await sibling.delivery.result()
        assert ended.status == "delivered", ended.message
        assert next(one.step for one in await turns(sibling.delivery)) == Step.FIX_REVIEW
        assert engine.rehearsal is not None
        asked = {str(call.body.get("model")) for call in engine.rehearsal.calls[calls:]}
        assert asked == {"claude-opus-5-5"}
        assert git(origin, "show", f"{ended.head_sha}:calc.py") == git(origin, "show", f"{result.head_sha}:calc.py")
        made = git(origin, "rev-list", "--count", f"{result.base_sha}..{result.head_sha}")
        assert git(origin, "rev-list", "--count", f"{result.base_sha}..{ended.head_sha}") == made
        verified = await perdure(engine, "verify", "sibling")
        assert "after 2 of calc-sub" in verified, verified
        assert len(pulls(origin)) == 2


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_fork_and_the_delivery_it_came_from_run_beside_each_other_and_do_not_meet(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    slow = STORY.replace("echo line 3", "sleep 6; echo line 3")
    async with Engine.open(tmp_path, slow, ports=ports) as engine:
        engine.worker()
        ungated = {**REQUEST, "config": CONFIG.replace("'pull_request'", "")}
        whole = (await engine.submit(origin, "Add notes", **ungated)).delivery

        async def in_its_third() -> bool:
            return any(one.place == "implement:3" for one in await turns(whole))

        await until(in_its_third, 60)
        sibling = (await fork(whole, "implement:3", say=WORDS)).delivery
        first = await sibling.describe()
        assert (first.running, (await whole.describe()).running) == (True, True), "they do not run beside each other"
        results = await asyncio.gather(whole.result(), sibling.result())
        assert [result.status for result in results] == ["delivered", "delivered"]
        for result in results:
            assert git(origin, "show", f"{result.head_sha}:notes.txt") == "line 1\nline 2\nline 3"
            assert result.receipt.replies_paid_twice == result.receipt.turns_redone == 0
        assert engine.model_calls() == TURNS + TURNS - 2
        assert engine.rehearsal is not None
        heard = [call for call in engine.rehearsal.calls if WORDS in str(call.body)]
        assert len(heard) == TURNS - 2, "words for the one were heard by the other"
        assert "11 claims of 11 verified" in await perdure(engine, "verify", "whole")
