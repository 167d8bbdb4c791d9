"""Phases alone, on branches that people made: what is mended is pushed once, and never over anybody's commits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.models.errors import InvalidRequest
from tests.engine import CALC, FIXES, Engine, finished, git, heads, make_target, pulls, until
from tests.engine_with_github import BUILD, CONFIG, engine_with_github
from tests.waiting import patient

RED = "def add(a, b):\n    return a - b\n"

DOCUMENTS = """
[[line]]
step = "document"
turn = 1
contains = ["+def sub(a, b):"]
use = [{ tool = "write", input = { path = "README.md", content = "add and sub\\n" } }]
[[line]]
step = "document"
say = "Name sub in the README\\n\\nNothing else was wrong."
"""


def push_commit(origin: Path, branch: str, message: str, text: str = RED) -> str:
    """Somebody's commit on a new branch of the remote."""
    work = origin.with_name(f"{origin.name}-work")
    git(work, "switch", "-qc", branch, "main")
    (work / "calc.py").write_text(text)
    git(work, "commit", "-qam", message)
    git(work, "push", "-q", str(origin), branch)
    return heads(origin)[branch]


async def ended(engine: Engine, origin: Path, id: str, **asked: Any) -> Any:
    submitted = await engine.perdure.submit({"repository": str(origin), **asked}, id=id)
    return await finished(submitted, engine, timeout=100)


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_fixes_reach_somebodys_branch_once_though_the_worker_dies_behind_the_push(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    began = push_commit(origin, "topic", "Break add")
    main = heads(origin)["main"]
    async with Engine.open(tmp_path, FIXES, ports=ports, measured=True) as engine:
        engine.kept(PERDURE_CRASH_AT="after-push")
        red = await ended(engine, origin, "red", branch="topic", phases=["test"], fix=False)
        assert (red.status, red.reason, red.message) == (
            "not_delivered",
            "tests_red",
            "tests are red: 1 of 1 fails: test_adds",
        )
        async with asyncio.timeout(patient(60)):
            again = await (await engine.perdure.delivery("red").retry()).result()
        assert (again.status, again.reason) == ("not_delivered", "tests_red")
        assert (engine.model_calls(), heads(origin)["topic"]) == (0, began), "it only reports"

        fixed = await ended(engine, origin, "fixed", branch="topic", phases=["test"], push=True)
        assert (fixed.status, fixed.message) == ("completed", "1 commit pushed to topic"), engine.worker_log()[-3000:]
        assert [record.step for record in fixed.steps][-1] == "push_branch"
        assert fixed.receipt.worker_deaths == 1
        assert heads(origin) == {"main": main, "topic": fixed.head_sha}
        assert git(origin, "log", "--format=%s", f"{began}..topic") == "fix: let add add again"
        assert (fixed.tests.status, fixed.tests.tree_sha) == ("green", git(origin, "rev-parse", "topic^{tree}"))
        assert pulls(origin) == []

        push_commit(
            origin, "hers", "Multiply numbers", RED.replace("-", "+") + "\n\ndef mul(a, b):\n    return a * b\n"
        )
        for id in ("ship", "ship-again"):
            shipped = await ended(engine, origin, id, branch="hers", phases=["ship"])
            assert (shipped.status, shipped.pull_request.number) == ("draft", 1)
        (pull,) = pulls(origin)
        assert (pull["head"], pull["title"]) == ("hers", "chore: multiply numbers")
        first = git(origin, "show", "refs/pull/1/record:body.md").splitlines()[0]
        assert "not tested" in first
        assert "not reviewed" in first


@pytest.mark.timeout(180)
async def test_a_branch_that_moves_is_not_touched_and_what_is_built_gets_its_own_branch_and_documents(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    began = push_commit(origin, "topic", "Break add")
    git(origin, "branch", "empty", "main")
    async with Engine.open(tmp_path, FIXES + DOCUMENTS, ports=ports, measured=True) as engine:
        engine.worker()
        config = "version = 1\n[delivery]\ndocument = true\n[setup]\ncommands = []\n[[test]]\nname = 'unit'\n"
        config += "command = 'python3 -m unittest -q'\n"
        asked = {"request": "Add sub", "phases": ["build"], "push": True, "config": config}
        built = await ended(engine, origin, "built", **asked)
        assert (built.status, built.message) == ("completed", "2 commits pushed to perdure/built")
        assert [record.step for record in built.steps] == [
            *("prepare", "implement", "commit", "document", "commit", "push_branch")
        ]
        assert git(origin, "log", "--format=%s", "main..perdure/built").splitlines() == [
            "docs: name sub in the README",
            "chore: add sub",
        ]
        assert git(origin, "show", "perdure/built:README.md") == "add and sub"

        with pytest.raises(InvalidRequest, match="main is the base itself"):
            await ended(engine, origin, "base", branch="main", phases=["test"])
        with pytest.raises(InvalidRequest, match="empty has no commit that main has not"):
            await ended(engine, origin, "nothing", branch="empty", phases=["ship"])

        hook = origin / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        theirs = git(origin, "commit-tree", "-p", began, "-m", "theirs", f"{began}^{{tree}}")
        hook.write_text(f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/topic {theirs}\n")
        hook.chmod(0o755)
        moved = await ended(engine, origin, "moved", branch="topic", phases=["test"], push=True)
        assert (moved.status, moved.reason) == ("not_delivered", "forge_refused")
        assert f"topic has moved meanwhile: it is at {theirs[:7]}" in moved.message
        assert "begins from the branch as it is now" in moved.message
        assert heads(origin)["topic"] == theirs


@pytest.mark.timeout(120)
async def test_on_github_the_publisher_pushes_and_opens_and_tells_nothing(tmp_path: Path, ports: int) -> None:
    queue = {"PERDURE_PUBLISHER_QUEUE": "publish"}
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.engine.worker(**queue, PERDURE_GITHUB_TOKEN="")
        world.engine.worker(**queue, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="")
        submitted = await world.submit(phases=["build"], push=True, config=CONFIG)
        result = await finished(submitted, world.engine, timeout=90)
        assert (result.status, result.message) == ("completed", "1 commit pushed to perdure/calc-issue-1")
        assert heads(world.bare)["perdure/calc-issue-1"] == result.head_sha
        assert world.github.pulls("me/calc") == []
        assert [one["user"]["login"] for one in world.github.comments("me/calc", world.issue)] == ["bob"]
        assert world.github.violations == []


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_worker_that_dies_while_setup_runs_on_the_base_first_leaves_the_branch_its_own_files(
    tmp_path: Path, ports: int
) -> None:
    """The worktree is the base's then, and its setup may be half done."""
    origin = make_target(tmp_path / "calc.git", {**CALC, "pkg/data.txt": "base\n"})
    work = origin.with_name(f"{origin.name}-work")
    git(work, "switch", "-qc", "topic", "main")
    (work / "pkg/data.txt").write_text("topic\n")
    git(work, "commit", "-qam", "More")
    git(work, "push", "-q", str(origin), "topic")
    config = "version = 1\n[setup]\ncommands = ['mkdir -p .venv && sleep 3 && touch .venv/made']\n"
    config += "[[test]]\nname = 'data'\ncommand = 'grep -q topic pkg/data.txt && test -e .venv/made'\n"
    async with Engine.open(tmp_path, FIXES, ports=ports, measured=True) as engine:
        engine.worker()
        asked = {"id": "one", "branch": "topic", "phases": ["test"], "config": config}
        submitted = await engine.submit(origin, **asked)
        await until((engine.home.tree("one") / ".venv").exists)
        base_text = (engine.home.tree("one") / "pkg/data.txt").read_text()
        engine.kill_workers()
        engine.worker()
        result = await finished(submitted, engine, timeout=100)
        if not list((engine.home.root / "environments").glob("*/entry.json")):
            pytest.skip("ONLY BUBBLEWRAP KEEPS WHAT SETUP MADE")
        assert base_text == "base\n", "setup ran on the base first"
        assert (result.status, result.tests.status) == ("completed", "green"), result.message
        assert len(list((engine.home.root / "environments").glob("*/entry.json"))) == 1
