"""Compilers' caches: from the base's own run to the runs of changes, and never back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perdure.adapters.checks import compiler_caches
from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.models.config.repository import SandboxGrade
from tests.needs import require
from tests.sandboxes import Bench, Files

SHOWN = 'cat "$GOCACHE/ab/compiled" "$GOCACHE/more" 2>&1'


@pytest.fixture
def seed(tmp_path: Path) -> CompilerCache:
    return CompilerCache(kept_results(Home(tmp_path), "seeds"), "base")


@pytest.mark.parametrize("archived", [1_000, 5], ids=["in memory", "on the disk"])
async def test_what_the_base_has_compiled_is_there_for_a_change_and_what_that_writes_is_gone(
    bench: Bench, files: Files, seed: CompilerCache, archived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_caches, "SEED_ARCHIVED_BYTES", archived)
    tree = files({"a": ""})
    compile_it = 'mkdir "$GOCACHE/ab" && echo base >"$GOCACHE/ab/compiled"'
    await bench.run(tree, compile_it, f"{SHOWN}; echo more >$GOCACHE/more", seed=replace(seed, is_base_run=True))
    for _ in range(2):
        report = await bench.run(tree, f"{SHOWN}; echo bad >$GOCACHE/ab/compiled; rm $GOCACHE/more", seed=seed)
        assert report.commands[0].tail.split() == ["base", "more"]
    kept = seed.store.list_entries("base")[0] / "GOCACHE"
    assert [(kept / name).read_text() for name in ("ab/compiled", "more")] == ["base\n", "more\n"]
    assert not list(bench.logs.glob("*/caches")), "a copy is left"
    where = await bench.run(tree, 'stat -c %d "$GOCACHE"', seed=seed)
    beside = int(where.commands[0].tail) == kept.stat().st_dev  # which may be in memory, too: many a machine's /tmp is
    assert beside == (archived == 5)


async def test_it_is_unpacked_by_no_program_of_the_worktree(bench: Bench, files: Files, seed: CompilerCache) -> None:
    tree = files({"a": "", ".venv/bin/tar": "#!/bin/sh\n"})
    await bench.run(tree, "echo base >$GOCACHE/compiled", seed=replace(seed, is_base_run=True))
    report = await bench.run(tree, "cat $GOCACHE/compiled", seed=seed)
    assert report.commands[0].tail.strip() == "base"


async def test_an_archive_that_cannot_be_unpacked_leaves_the_command_without_what_was_compiled(
    bench: Bench, files: Files, seed: CompilerCache
) -> None:
    tree = files({"a": ""})
    await bench.run(tree, "echo base >$GOCACHE/compiled", seed=replace(seed, is_base_run=True))
    (seed.store.list_entries("base")[0] / "GOCACHE.tar").write_bytes(b"not an archive")
    report = await bench.run(tree, "ls -A $GOCACHE && touch $GOCACHE/own", seed=seed)
    assert (report.commands[0].verdict, report.commands[0].tail.strip()) == ("passed", "")


async def test_where_no_base_has_compiled_anything_a_change_sees_no_cache(
    bench: Bench, files: Files, seed: CompilerCache
) -> None:
    tree = files({"a": ""})
    await bench.run(tree, "true", seed=replace(seed, is_base_run=True))
    report = await bench.run(tree, 'echo "[$GOCACHE]"', seed=seed)
    assert report.commands[0].tail.strip() == "[]"
    assert not seed.store.list_entries("base")


@pytest.mark.parametrize(
    "command",
    [
        "echo half >$GOCACHE/compiled; kill -9 $$",
        "ln -s /etc/passwd $GOCACHE/compiled; echo x >$GOCACHE/real",
        "cd /; rm -r /results/caches; ln -s {outside} /results/caches",
        "rm -r $GOCACHE; ln -s {outside}/GOCACHE $GOCACHE",
        "head -c 9000 /dev/zero >$GOCACHE/compiled",
    ],
    ids=["killed", "a link", "a link in the place of all", "a link in its place", "too much"],
)
async def test_only_plain_files_of_a_run_that_ended_of_itself_are_kept(
    bench: Bench, files: Files, seed: CompilerCache, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_caches, "SEED_BYTES", 8_000)
    outside = tmp_path / "outside"
    (outside / "GOCACHE").mkdir(parents=True)
    (outside / "GOCACHE" / "secret").write_text("secret")
    await bench.run(files({"a": ""}), command.format(outside=outside), seed=replace(seed, is_base_run=True))
    assert not seed.store.root.exists() or not list(seed.store.root.iterdir())
    assert (outside / "GOCACHE" / "secret").read_text() == "secret"


@pytest.mark.story
async def test_go_compiles_a_base_once_and_still_runs_each_test(
    bench: Bench, files: Files, seed: CompilerCache
) -> None:
    require("go")
    tree = files(
        {
            "go.mod": "module example.com/a\n\ngo 1.19\n",
            "a_test.go": 'package a\n\nimport "testing"\n\nfunc TestIt(t *testing.T) { t.Log("it ran") }\n',
        }
    )
    await bench.run(tree, "go test -v ./... 2>&1 | cat", seed=replace(seed, is_base_run=True))
    wanted = "grep -oE '/compile |it ran|cached'"
    report = await bench.run(tree, *(f"go test {how} ./... 2>&1 | {wanted}" for how in ("-v", "-v -x")), seed=seed)
    assert [one.tail.strip() for one in report.commands] == ["it ran", "it ran"]


async def test_a_sandbox_that_cannot_hide_it_uses_none(
    files: Files, seed: CompilerCache, tmp_path: Path, bench: Bench
) -> None:
    class Off:
        grade = SandboxGrade.OFF
        run_command = bench.sandbox.run_command

    weak = Bench(Off(), tmp_path / "weak")
    report = await weak.run(files({"a": ""}), 'test -z "$GOCACHE"', seed=replace(seed, is_base_run=True))
    assert report.commands[0].verdict == "passed"
