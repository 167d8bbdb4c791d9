"""A turn commits or never happened: whoever takes it again finds the same checkpoint and pays for nothing twice."""

from __future__ import annotations

import asyncio

import pytest
from temporalio import activity
from turn_fixtures import DELIVERY, Bench, in_activity, vault

from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.turn.delivery_text import delivery_text
from perdure.adapters.worker.turn.materials import material_texts
from perdure.models.delivery.turn import Ending, VaultReadInput
from perdure.models.errors import BadInput, Diverged, ModelRefusesUs, WorkspaceLost
from perdure.models.ids import run_ref
from perdure.models.phases import Step

NESTED = "printf x > kept.txt; mkdir -p sub && cd sub && git init -q . && printf y > file.txt"


async def test_a_step_is_taken_turn_by_turn_and_read_back_by_people(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    tree = bench.host.home.tree(DELIVERY)
    assert "def sub" in (tree / "calc.py").read_text()
    assert first.summary.startswith("turn 1 · read calc.py")
    assert second.spend.usd == pytest.approx((first.usage + second.usage).cost_usd)
    assert second.outcome is None

    third = await bench.take(bench.work(3, second.checkpoint))
    last = await bench.take(bench.work(4, third.checkpoint))
    assert last.outcome is not None
    assert (last.outcome.ending, last.outcome.summary) == (Ending.DONE, "Add sub")
    assert bench.rehearsal.prefix_breaks == 0

    record = Workspace.open(bench.host.home, DELIVERY).record()

    def read(what: str, checkpoint: str = "") -> str:
        return delivery_text(vault(bench), record, VaultReadInput(delivery=DELIVERY, what=what, checkpoint=checkpoint))

    lines = read("turns").splitlines()
    assert [line.split()[3] for line in lines] == [turn.checkpoint[:10] for turn in (first, second, third, last)]
    log = read("logs")
    assert '▸ read {"path": "calc.py"}' in log
    assert "written" in log
    assert "Add sub" in read("logs", last.checkpoint)
    assert read("diff") == "", "nothing is committed yet"
    assert '"base":"main"' in read("artifact", bench.prepared.contract)
    with pytest.raises(BadInput):
        read("secrets")


async def test_a_turn_whose_checkpoint_exists_is_adopted_by_the_next_attempt(bench: Bench) -> None:
    work = bench.work(1, bench.prepared.checkpoint)
    first = await bench.take(work)
    calls = len(bench.rehearsal.calls)
    other = bench.again()
    again = await bench.take(work, host=other)
    assert again == first.model_copy(update={"adopted": True})
    assert len(bench.rehearsal.calls) == calls
    await other.close()


async def test_a_vault_ahead_of_the_server_by_several_turns_hands_out_each_turn_its_own(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    assert (await bench.take(bench.work(1, bench.prepared.checkpoint))).checkpoint == first.checkpoint
    assert (await bench.take(bench.work(2, first.checkpoint))).checkpoint == second.checkpoint


async def test_another_turn_than_the_one_that_was_recorded_diverges_and_writes_nothing(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    with pytest.raises(Diverged, match="implement turn 1, not implement turn 2"):
        await bench.take(bench.work(2, bench.prepared.checkpoint))
    stranger = await bench.take(bench.work(1, bench.prepared.checkpoint), run="run-2")
    assert stranger.checkpoint != first.checkpoint
    with pytest.raises(Diverged, match="does not contain"):
        await bench.take(bench.work(2, stranger.checkpoint))
    assert vault(bench).read_ref(run_ref(DELIVERY, "run-1")) == first.checkpoint


async def test_a_damaged_checkpoint_is_held_not_built_upon(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    tree = vault(bench).tree_of(first.checkpoint)
    (vault(bench).path / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(Diverged, match="is damaged"):
        await bench.take(bench.work(1, bench.prepared.checkpoint))


async def test_a_repository_inside_the_worktree_is_dropped_and_the_agent_is_told(bench: Bench) -> None:
    line = next(line for line in bench.rehearsal.screenplay.lines if line.use and line.use[0].tool == "bash")
    line.use[0].input["command"] = NESTED
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    told = await asyncio.to_thread(read_transcript, vault(bench), second.checkpoint)
    assert "Removed sub/.git" in str(told[-1])
    kept = vault(bench).git.text("ls-tree", "-r", "--name-only", f"{second.checkpoint}:tree")
    assert {"kept.txt", "sub/file.txt"} <= set(kept.split())


async def test_an_answer_with_a_document_leaves_it_in_the_vault(bench: Bench) -> None:
    classified = await bench.take(bench.work(1, bench.prepared.checkpoint, Step.CLASSIFY))
    assert classified.outcome is not None
    assert classified.outcome.data == {"kind": "feature"}
    first = await bench.take(bench.work(1, classified.checkpoint, Step.PLAN))
    planned = await bench.take(bench.work(2, first.checkpoint, Step.PLAN))
    assert planned.outcome is not None
    plan = planned.outcome.artifact
    base = bench.prepared.base_commit.sha
    found = await asyncio.to_thread(
        material_texts, vault(bench), DELIVERY, {"plan": plan, "kind": "feature", "base": base, "head": base}
    )
    assert "There is no sub." in found["plan"]
    assert {name: found[name] for name in ("kind", "diff")} == {"kind": "feature", "diff": ""}


async def test_a_worker_without_a_key_says_so_and_one_without_the_workspace_too(bench: Bench) -> None:
    mute = bench.again()
    await mute.close()
    mute.model = None
    with pytest.raises(ModelRefusesUs, match="no key"):
        await bench.take(bench.work(1, bench.prepared.checkpoint), host=mute)
    assert mute.redact_blocks([{"text": "a", "n": 1}]) == [{"text": "a", "n": 1}]
    elsewhere = bench.work(1, bench.prepared.checkpoint).model_copy(update={"delivery": "another"})
    with pytest.raises(WorkspaceLost):
        await bench.take(elsewhere)


async def test_the_workers_own_secrets_are_kept_out_of_tool_results(bench: Bench) -> None:
    blocks = [{"type": "tool_result", "content": [{"type": "text", "text": "key is rehearsal!"}], "is_error": False}]
    assert "rehearsal" not in str(bench.host.redact_blocks(blocks))


async def test_the_run_of_a_turn_is_the_one_it_runs_in_never_an_input(bench: Bench) -> None:
    async def run() -> str | None:
        return activity.info().workflow_run_id

    assert await in_activity(run, run="run-7") == "run-7"
    await bench.take(bench.work(1, bench.prepared.checkpoint), run="run-7")
    assert vault(bench).read_ref(run_ref(DELIVERY, "run-7"))
    assert vault(bench).read_ref(run_ref(DELIVERY, "run-1")) is None
