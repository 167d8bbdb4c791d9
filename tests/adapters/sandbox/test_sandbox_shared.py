"""Directories that setup made, in clean checkouts, in each grade."""

from __future__ import annotations

import pytest


async def test_tools_may_keep_something_below_node_modules_that_is_gone_with_the_command(full, run, worktree, tmp_path):
    """vitest 1 and 2 end red where they cannot write to `.vite`, ava where it cannot write to `.cache`."""
    (tmp_path / "clean").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for modules in ("node_modules", "packages/web/node_modules"):
        (worktree / modules / ".cache/fetched").mkdir(parents=True)
        (worktree / modules / ".cache/fetched/browser").write_text("as setup left it\n")
        (worktree / modules / ".vite-temp").symlink_to(tmp_path / "elsewhere")
        script = f"""cd {modules}; mkdir -p .vite/vitest .cache/ava && touch .vite/vitest/results .cache/ava/made
        cat .cache/fetched/browser; echo bent > .cache/fetched/browser; touch bent .vite-temp/bent; ls -A"""
        for source in (None, tmp_path / "clean"):
            finished, said = await run(full, script, source=source, shared=("node_modules", modules))
            assert finished.exit_code == 0, said
            assert "as setup left it" in said
        assert (worktree / modules / ".cache/fetched/browser").read_text() == "as setup left it\n"
        assert not (worktree / modules / "bent").exists()
        assert [one.name for one in (worktree / modules).glob(".[cv]*e/*")] == ["fetched"]
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.needs("node")
async def test_a_clean_checkout_has_what_setup_made_in_every_grade(any_grade, run, worktree, tmp_path):
    clean = tmp_path / "clean"
    (clean / "packages").mkdir(parents=True)
    for modules in ("node_modules", "packages/web/node_modules"):
        (worktree / modules / "dep").mkdir(parents=True)
        (worktree / modules / "dep/index.js").write_text(f"module.exports = '{modules}'")
    (worktree / ".venv/bin").mkdir(parents=True)
    (worktree / ".venv/bin/tool").write_text("#!/bin/sh\necho ran\n")
    (worktree / ".venv/bin/tool").chmod(0o755)
    script = """node -p "require('dep')"; cd packages/web; node -p "require('dep')"; cd ../..; .venv/bin/tool
    mkdir node_modules/.vite/vitest && echo kept; touch node_modules/bent"""
    made = (".venv", "node_modules", "packages/web/node_modules")
    finished, said = await run(any_grade, script, source=clean, shared=made)
    assert said.startswith("node_modules\npackages/web/node_modules\nran\nkept\n"), said
    if any_grade.grade != "off":
        assert finished.exit_code != 0
        assert not (worktree / "node_modules/bent").exists()
    finished, said = await run(any_grade, ".venv/bin/tool", source=clean, shared=made)  # as the next command has it
    assert (finished.exit_code, said) == (0, "ran\n")


async def test_no_link_of_a_checkout_leads_out_of_it(off, run, worktree, tmp_path):
    clean, outside = tmp_path / "clean", tmp_path / "outside"
    clean.mkdir()
    outside.mkdir()
    (clean / "packages").symlink_to(outside)
    (worktree / "packages/node_modules/dep").mkdir(parents=True)
    (worktree / "own").symlink_to(outside)
    finished, _ = await run(off, "ls packages/node_modules/dep", source=clean, shared=("packages/node_modules", "own"))
    assert finished.exit_code == 0
    assert not list(outside.iterdir())
    assert not (clean / "own").exists()
