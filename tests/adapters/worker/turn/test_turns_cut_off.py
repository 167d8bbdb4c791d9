"""Whatever cuts a turn off (a death, a takeover, a lost worktree) leaves nothing behind, and it is taken again."""

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
from turn_fixtures import DELIVERY, Bench, vault, working

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.files import read_json_lines
from perdure.models.errors import Superseded, WorkCutOff
from perdure.models.ids import run_ref


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
    replies = bench.host.home.workspace(DELIVERY) / "replies"
    calls = len(bench.rehearsal.calls)
    for path in replies.iterdir():  # the reply that was bought, with a command that ends
        path.write_text(path.read_text().replace("; touch started; sleep 60", ""))
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
    await bench.take(bench.work(2, first.checkpoint))
    synced: Counter[str] = Counter()
    for trace in traces.iterdir():
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        argv = next(event["argv"] for event in events if event["event"] == "start")
        told = [event for event in events if event.get("category") == "fsync" and "hardware-flush" in str(event)]
        did = {"add", "write-tree", "update-ref"}.intersection(argv)
        synced.update({name: int(event.get("value") or event["count"]) for event in told for name in did})
    assert synced["add"] >= 1, "the content of the file that was changed"
    assert synced["write-tree"] >= 1, "the tree that holds it"
    assert synced["update-ref"] >= 1, "the ref: from here the turn has happened"


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
