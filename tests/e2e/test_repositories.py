"""Repositories that are large, or have no commit yet."""

from __future__ import annotations

import asyncio
import filecmp
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from perdure.adapters.git.checkouts import LARGE_CHECKOUT_FILES, CheckoutPool
from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.client import Submission
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import Status
from tests.cli.conftest import Cli
from tests.engine import BUILT, CALC, HAPPY, SCREENPLAYS, Engine, finished, git, heads, make_target, pulls, until
from tests.engine_with_github import TOKEN
from tests.twins.github import GitHubTwin

CONFIG = 'version = 1\n[setup]\ncommands = []\n[[test]]\nname = "unit"\ncommand = "python3 -m unittest -q"\n'

MARKING = """
import os, pathlib, unittest

class Marks(unittest.TestCase):
    def test_is_the_first_here(self):
        found = [name for name in ("seen", "many/1/seen") if os.path.exists(name)]
        found += os.listxattr("many/1") + os.listxattr(".")
        found += [path.name for path in pathlib.Path("many").rglob("*.txt") if path.read_text() != "x\\n"]
        self.assertEqual(found, [])
        for name in ("seen", "many/1/seen", "many/1/1.txt"):
            pathlib.Path(name).write_text("y\\n")
        os.chmod("many/2", 0o700)
        for directory in ("many/1", "."):
            try:
                os.setxattr(directory, "user.seen", b"1")
            except OSError:
                pass
"""

LINES = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "bash", input = { command = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py; echo z > many/3/left; echo z > left" } }]

[[line]]
step = "implement"
say = "Add sub"
"""  # noqa: E501


async def test_deliveries_one_after_another_and_beside_each_other_use_the_same_files_and_each_finds_them_clean(
    tmp_path: Path,
) -> None:
    many = {f"many/{number % 20}/{number}.txt": "x\n" for number in range(LARGE_CHECKOUT_FILES)}
    origin = make_target(tmp_path / "calc.git", {**CALC, **many, "tests/test_marks.py": MARKING})
    asked = {"phases": ["build", "test", "ship"], "config": CONFIG}
    async with Engine.open(tmp_path, LINES) as engine:
        engine.worker()
        (kept,) = await _delivered(engine, origin, ["one"], asked)
        inodes = {path.stat().st_ino for path in kept}
        again = await _delivered(engine, origin, ["two", "three", "four"], asked)
        assert inodes & {path.stat().st_ino for path in again[0]}, "they went from hand to hand"
        for name in ("one", "two", "three", "four"):
            assert not (engine.home.workspace(name) / "clean").exists()
            assert not engine.home.tree(name).exists()


@pytest.mark.timeout(240)
async def test_what_a_killed_worker_was_at_work_in_is_no_other_deliverys_to_begin_with(tmp_path: Path) -> None:
    many = {f"many/{number % 20}/{number}.txt": "x\n" for number in range(LARGE_CHECKOUT_FILES)}
    origin = make_target(tmp_path / "calc.git", {**CALC, **many})
    points = (CrashPoint.DURING_PREPARE, CrashPoint.DURING_TESTS, CrashPoint.DURING_CANARIES)
    async with Engine.open(tmp_path, LINES, env={"PERDURE_CRASH_AT": ",".join(points)}) as engine:
        engine.kept()
        await _delivered(engine, origin, ["one"], {"phases": ["build", "test", "ship"], "config": CONFIG})
        assert sorted(path.stem for path in engine.home.crashes.iterdir()) == sorted(points), "each point was come by"
        vault = Vault.open_or_create(engine.home, str(origin))
        _, base = vault.fetch()
        fresh = CheckoutPool.for_vault(Home(tmp_path / "none"), vault)
        fresh.check_out(base, tmp_path / "fresh")
        kept = len(list((engine.home.root / "checkouts").glob("[!.]*")))
        assert kept > 0
        for number in range(kept):
            CheckoutPool.for_vault(engine.home, vault).check_out(base, tmp_path / f"{number}")
            differing = filecmp.dircmp(tmp_path / "fresh", tmp_path / f"{number}", ignore=[], hide=[])
            assert _differs(differing) == [], "it is what a fresh one would be"
        assert list((engine.home.root / "checkouts").glob("[!.]*")) == []


def _differs(found: filecmp.dircmp[str]) -> list[str]:
    below = [name for one in found.subdirs.values() for name in _differs(one)]
    return [*found.left_only, *found.right_only, *found.diff_files, *found.funny_files, *below]


async def _delivered(engine: Engine, origin: Path, names: list[str], asked: dict[str, object]) -> list[list[Path]]:
    """Deliver them at once; the directories of files that are kept then."""
    submitted = await asyncio.gather(*(engine.submit(origin, id=name, **asked) for name in names))
    results = await asyncio.gather(*(finished(one, engine, timeout=240) for one in submitted))
    for result in results:
        assert result.status == "draft", result
        assert result.tests.status == "green", result.tests
    return [list((engine.home.root / "checkouts").glob("*/tree"))]


BEGIN = (SCREENPLAYS / "begin_calc.toml").read_text()
EMPTY_CONFIG = """
version = 1
[setup]
commands = []
[[test]]
name = "red as on the base"
command = "sh ./check.sh"
[[test]]
name = "not there on the base"
command = "./check.sh; test $? != 127 || exit 127"
"""
"""A file that the change brings: as long as it is red its exit code is that of a shell which does not find it."""

BRANCH = "perdure/calc-sub"


def nothing(at: Path) -> Path:
    git(at.parent, "init", "-q", "--bare", "--initial-branch=trunk", at.name)
    return at


@pytest.mark.timeout(120)
async def test_it_ends_in_a_tested_pull_request_although_a_worker_dies_behind_the_first_commit(
    tmp_path: Path, ports: int
) -> None:
    order = tmp_path / "order"
    async with GitHubTwin(tmp_path / "github", token=TOKEN) as github:
        github.add_repository("me/calc", source=nothing(tmp_path / "empty.git"))
        bare = tmp_path / "github" / "me" / "calc.git"
        (bare / "hooks").mkdir(exist_ok=True)
        (bare / "hooks" / "update").write_text(f'#!/bin/sh\necho "$1" >> {order}\n')
        (bare / "hooks" / "update").chmod(0o755)
        given = {"PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": TOKEN}
        async with Engine.open(tmp_path, BEGIN, ports=ports, env=given) as engine:
            engine.kept(PERDURE_CRASH_AT=CrashPoint.AFTER_FIRST_COMMIT)
            result = await finished(await engine.submit(f"{github.url}/me/calc", config=EMPTY_CONFIG), engine)
            assert result.status is Status.DELIVERED, (result.message, engine.worker_log()[-3000:])
        assert result.receipt.worker_deaths == 1
        assert (result.base, result.base_sha) == ("trunk", FIRST_COMMIT)
        tested = [step for step in result.steps if step.step == "run_tests"]
        assert [step.status for step in tested] == ["failed", "done"]
        assert tested[-1].summary.endswith(" green · not asked: there was nothing before this change")
        (pull,) = github.pulls("me/calc")
        assert (pull["base"]["sha"], pull["head"]["ref"]) == (FIRST_COMMIT, BRANCH)
        assert f"at `{FIRST_COMMIT[:12]}`, an empty commit that Perdure began the repository with" in pull["body"]
        assert github.violations == []
    assert git(bare, "show", f"{BRANCH}:calc.py").endswith("return a + b")
    pushed = [ref.removeprefix("refs/heads/") for ref in order.read_text().split()]
    assert pushed == ["trunk", "perdure-artifacts", BRANCH], "the first to arrive is the default branch"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_without_a_test_command_it_is_a_draft_and_every_claim_about_it_holds(tmp_path: Path, ports: int) -> None:
    origin = nothing(tmp_path / "calc.git")
    async with Engine.open(tmp_path, BEGIN, ports=ports) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin), engine)
        assert result.status is Status.DRAFT, (result.message, engine.worker_log()[-3000:])
        assert heads(origin) == {"trunk": FIRST_COMMIT, BRANCH: result.head_sha}
        assert git(origin, "ls-tree", "-r", "trunk") == ""
        (pull,) = pulls(origin)
        assert (pull["base"], pull["head"], pull["draft"]) == ("trunk", BRANCH, True)
        assert "not tested: the repository has no test command" in git(origin, "show", "refs/pull/1/record:body.md")
        ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), "verify", "calc-sub", "--json")
        claims = json.loads(ran.out)["claims"]
        assert [claim for claim in claims if claim["mark"] == "contradicted"] == [], ran.err


@pytest.mark.timeout(120)
async def test_no_pull_request_brings_back_what_the_base_dropped_while_it_was_built(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    kept = git(origin, "rev-parse", "main")
    dropped = git(origin, "commit-tree", "-p", kept, "-m", "dropped", "main^{tree}")
    git(origin, "update-ref", "refs/heads/main", dropped)
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, gates=["pull_request"], **BUILT)
        await until(lambda: _waits_at_gate(submitted))
        git(origin, "update-ref", "refs/heads/main", kept)
        await submitted.delivery.approve()
        result = await finished(submitted, engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, "forge_refused"), result
        assert "main was rewritten meanwhile: 1 commit that this was built on is not in it any more" in result.message
        assert (heads(origin), pulls(origin)) == ({"main": kept}, [])


@pytest.mark.timeout(120)
async def test_a_retry_on_a_base_that_was_rewritten_is_refused_before_anything_is_paid_for(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    kept = git(origin, "rev-parse", "main")
    dropped = git(origin, "commit-tree", "-p", kept, "-m", "dropped", "main^{tree}")
    git(origin, "update-ref", "refs/heads/main", dropped)
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, gates=["plan"])
        await until(lambda: _waits_at_gate(submitted))
        await submitted.delivery.cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        git(origin, "update-ref", "refs/heads/main", kept)
        paid = engine.model_calls()
        await submitted.delivery.retry()
        result = await finished(submitted, engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, "forge_refused"), result
        assert "main was rewritten meanwhile: 1 commit that this was built on is not in it any more" in result.message
        assert "or put the old branch back, then: perdure retry calc-sub" in result.message
        assert engine.model_calls() == paid
        git(origin, "update-ref", "refs/heads/main", dropped)
        await submitted.delivery.retry()
        await until(lambda: _waits_at_gate(submitted))
        await submitted.delivery.approve()
        assert (await finished(submitted, engine)).status is Status.DELIVERED


async def _waits_at_gate(submitted: Submission) -> bool:
    return (await submitted.delivery.describe()).pending_decision is not None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [("--depth=1",), ("--filter=blob:none",)])
async def test_a_target_that_is_not_whole_ends_before_anything_is_paid_for(
    tmp_path: Path, ports: int, options: tuple[str, ...]
) -> None:
    whole, target = make_target(tmp_path / "whole.git"), tmp_path / "calc.git"
    git(whole, "update-ref", "refs/heads/main", git(whole, "commit-tree", "-p", "main", "-m", "second", "main^{tree}"))
    git(whole, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", *options, f"file://{whole}", str(target))
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        result = await finished(await engine.submit(target, **BUILT), engine)
        assert (result.status, result.reason, engine.model_calls()) == (Status.NOT_DELIVERED, "forge_refused", 0)
        assert f"git -C {target} fetch" in result.message
