"""A repository without a commit: its first pull request brings the first files, onto an empty first commit of ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.models.crash import CrashPoint
from perdure.models.delivery.result import Status
from tests.cli.conftest import Cli
from tests.engine import SCREENPLAYS, Engine, finished, git, heads, pulls
from tests.engine_with_github import TOKEN
from tests.twins.github import GitHubTwin

BEGIN = (SCREENPLAYS / "begin_calc.toml").read_text()
CONFIG = """
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
            result = await finished(await engine.submit(f"{github.url}/me/calc", config=CONFIG), engine)
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
