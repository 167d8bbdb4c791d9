"""Whatever cuts a turn off leaves nothing behind: a turn commits or never happened, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio import activity
from turn_fixtures import DELIVERY, Bench, in_activity, vault, working

from perdure.adapters.git.checkpoint import read_transcript
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.files import read_json_lines
from perdure.adapters.worker.lease import Leases
from perdure.adapters.worker.turn.delivery_text import delivery_text
from perdure.adapters.worker.turn.materials import material_texts
from perdure.models.delivery.turn import Ending, VaultReadInput
from perdure.models.errors import BadInput, Diverged, ModelRefusesUs, Superseded, WorkCutOff, WorkspaceLost
from perdure.models.ids import run_ref
from perdure.models.phases import Step
from tests.power_cut import Disk


async def test_a_reply_that_was_received_is_not_paid_for_again_by_the_attempt_that_goes_on(bench: Bench) -> None:
    work = bench.work(1, bench.prepared.checkpoint)
    await bench.take(work)
    # As a worker leaves it that died with the reply on disk, before it was settled and before its tools.
    vault(bench).git.execute("update-ref", run_ref(DELIVERY, "run-1"), bench.prepared.checkpoint)
    log = bench.host.home.workspace(DELIVERY) / "spend.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    assert [next(iter(line)) for line in read_json_lines(log)] == ["intent", "settled"]
    log.write_bytes(lines[0])
    calls = len(bench.rehearsal.calls)
    assert bench.host.spend_log(DELIVERY).total_spend().at_risk_usd > 0
    result = await bench.take(work)
    assert not result.adopted
    assert len(bench.rehearsal.calls) == calls
    assert result.spend.usd == result.usage.cost_usd
    assert result.spend.at_risk_usd == 0
    assert bench.host.spend_log(DELIVERY).count_repeats() == (0, 0)


async def test_what_a_cut_off_turn_left_in_the_worktree_is_gone_when_it_is_taken_again(bench: Bench) -> None:
    tree = bench.host.home.tree(DELIVERY)
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    async with Leases(bench.host.home).acquire(DELIVERY):  # of a worker that was killed in the turn
        (tree / "calc.py").write_text("garbage")
        (tree / "left.txt").write_text("garbage")
    await bench.take(bench.work(2, first.checkpoint))
    assert "def add" in (tree / "calc.py").read_text()
    assert not (tree / "left.txt").exists()


async def test_a_lost_worktree_is_rebuilt_from_the_checkpoint(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    shutil.rmtree(bench.host.home.tree(DELIVERY))
    second = await bench.take(bench.work(2, first.checkpoint))
    assert "def sub" in vault(bench).git.text("show", f"{second.checkpoint}:tree/calc.py")


async def test_a_sandbox_that_is_killed_or_a_worktree_that_vanishes_is_an_attempt_that_never_happened(
    bench: Bench,
) -> None:
    line = next(line for line in bench.rehearsal.screenplay.lines if line.use and line.use[0].tool == "bash")
    command = str(line.use[0].input["command"])
    line.use[0].input["command"] = f"{command}; touch started; sleep 60"
    tree = bench.host.home.tree(DELIVERY)
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    work = bench.work(2, first.checkpoint)

    async def cut_off(how: Callable[[], object]) -> None:
        (tree / "started").unlink(missing_ok=True)
        turn = asyncio.create_task(bench.take(work))
        while not (tree / "started").exists():
            assert not turn.done(), turn
            await asyncio.sleep(0.02)
        how()
        with pytest.raises(WorkCutOff):
            await turn
        assert vault(bench).read_ref(run_ref(DELIVERY, "run-1")) == first.checkpoint

    def kill() -> None:
        for process in psutil.Process().children():
            if "bwrap" in process.name():
                process.kill()

    def vanish() -> None:
        shutil.rmtree(tree)
        tree.mkdir()  # as a tool would that writes a file into what is not there any more
        kill()

    await cut_off(kill)
    await cut_off(vanish)
    line.use[0].input["command"] = command
    replies = bench.host.home.workspace(DELIVERY) / "replies.jsonl"
    calls = len(bench.rehearsal.calls)
    # the reply that was bought, with a command that ends
    replies.write_text(replies.read_text().replace("; touch started; sleep 60", ""))
    second = await bench.take(work)
    assert len(bench.rehearsal.calls) == calls, "the reply was bought once"
    kept = vault(bench).git.text("ls-tree", "-r", "--name-only", f"{second.checkpoint}:tree").split()
    assert "started" not in kept
    assert {"calc.py", "perdure.toml"} <= set(kept)


WRITES = """
[[line]]
step = "implement"
use = [{ tool = "write", input = { path = "new/file.txt", content = "x" } }]
"""


async def test_a_worktree_that_vanishes_before_a_tool_writes_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    async with working(tmp_path, WRITES) as bench:
        work = bench.work(1, bench.prepared.checkpoint)
        model = bench.host.require_model()
        ask = model.ask

        async def ask_and_lose(*args: Any, **more: Any) -> Any:
            reply = await ask(*args, **more)
            shutil.rmtree(bench.host.home.tree(DELIVERY))
            return reply

        model.ask = ask_and_lose  # type: ignore[method-assign]
        with pytest.raises(WorkCutOff, match="is gone"):
            await bench.take(work)
        turn = await bench.take(work)
        kept = vault(bench).git.text("ls-tree", "-r", "--name-only", f"{turn.checkpoint}:tree").split()
        assert {"calc.py", "new/file.txt"} <= set(kept)


async def test_an_overtaken_attempt_writes_nothing(bench: Bench) -> None:
    """A worker that slept through its tools wakes when another one has taken the workspace over."""
    line = next(line for line in bench.rehearsal.screenplay.lines if line.use and line.use[0].tool == "bash")
    line.use[0].input["command"] = "touch started; until [ -e go ]; do sleep 0.05; done"
    tree, generation = bench.host.home.tree(DELIVERY), bench.host.home.workspace(DELIVERY) / "generation"
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    asleep = asyncio.create_task(bench.take(bench.work(2, first.checkpoint)))
    while not (tree / "started").exists():
        assert not asleep.done(), asleep
        await asyncio.sleep(0.02)
    generation.write_text(str(int(generation.read_text()) + 1))
    (tree / "go").touch()
    with pytest.raises(Superseded):
        await asleep
    assert vault(bench).read_ref(run_ref(DELIVERY, "run-1")) == first.checkpoint


def git_that(does: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every git of ours is started by a script that does this first."""
    real, script = shutil.which("git"), root / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n{does}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


async def test_an_attempt_that_is_overtaken_while_it_takes_its_snapshot_does_not_move_the_ref(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    generation = bench.host.home.workspace(DELIVERY) / "generation"
    overtaken = f'case " $* " in *" add --all "*) echo 99 >{generation};; esac'
    git_that(overtaken, tmp_path, monkeypatch)
    with pytest.raises(Superseded):
        await bench.take(bench.work(2, first.checkpoint))
    assert generation.read_text() == "99\n", "nobody took a snapshot"
    assert vault(bench).read_ref(run_ref(DELIVERY, "run-1")) == first.checkpoint


async def test_every_git_that_writes_a_checkpoint_syncs_what_it_wrote(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    traces = tmp_path / "traces"
    traces.mkdir()
    git_that(f"export GIT_TRACE2_EVENT={traces}", tmp_path, monkeypatch)
    disk = Disk(monkeypatch)
    await bench.take(bench.work(2, first.checkpoint))
    synced: Counter[str] = Counter()
    for trace in traces.iterdir():
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        argv = next(event["argv"] for event in events if event["event"] == "start")
        told = [event for event in events if event.get("category") == "fsync" and "hardware-flush" in str(event)]
        did = {"add", "write-tree"}.intersection(argv)
        synced.update({name: int(event.get("value") or event["count"]) for event in told for name in did})
    assert synced["add"] >= 1, "the content of the file that was changed"
    assert synced["write-tree"] >= 1, "the tree that holds it"
    (ref,) = (vault(bench).path / f"refs/perdure/{DELIVERY}").iterdir()
    assert disk.keeps_content(ref), "the ref: from here the turn has happened"


async def test_a_directory_somebody_may_still_write_to_is_left_for_a_new_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.adapters.worker import lease as leases

    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    monkeypatch.setattr(leases, "LEASE_PROOF_S", 0.3)
    stuck = leases.try_lock(bench.host.home.workspace(DELIVERY) / f"lease-{DELIVERY}")
    assert stuck is not None
    second = await bench.take(bench.work(2, first.checkpoint))
    tree = Workspace.open(bench.host.home, DELIVERY).path
    assert tree.name == f"{DELIVERY}~1"
    assert "def sub" in (tree / "calc.py").read_text()
    assert "def sub" not in (bench.host.home.tree(DELIVERY) / "calc.py").read_text()
    assert second.outcome is None


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


async def test_a_ref_that_a_power_cut_has_put_back_follows_what_the_server_knows(bench: Bench) -> None:
    first = await bench.take(bench.work(1, bench.prepared.checkpoint))
    second = await bench.take(bench.work(2, first.checkpoint))
    ref = run_ref(DELIVERY, "run-1")
    vault(bench).move_ref(ref, bench.prepared.checkpoint, second.checkpoint)
    third = await bench.take(bench.work(3, second.checkpoint))
    assert vault(bench).read_ref(ref) == third.checkpoint
    assert vault(bench).is_ancestor(second.checkpoint, third.checkpoint)


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
