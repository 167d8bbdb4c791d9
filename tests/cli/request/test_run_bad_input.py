"""What `perdure run` refuses: in three lines, with nothing started and nothing written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.validation import check_request
from perdure.models.errors import BadInput
from tests.cli.conftest import Cli
from tests.cli.request.test_issue import env, github, here
from tests.cli.test_cli_bad_input import nowhere, refused
from tests.engine import git
from tests.twins.github import GitHubTwin

__all__ = ["env", "github", "here", "nowhere"]


@pytest.fixture
def topic(origin: Path) -> str:
    """A branch one commit ahead of main."""
    made = git(origin, "commit-tree", "-p", "main", "-m", "hers", "main^{tree}")
    git(origin, "update-ref", "refs/heads/topic", made)
    return "topic"


def test_a_phase_that_is_none(nowhere: Cli) -> None:
    refused(nowhere, "run", "tset", says="unknown phase 'tset'", fix="did you mean perdure run test")


def test_landing_is_no_phase_that_runs_alone(nowhere: Cli) -> None:
    ran = refused(nowhere, "run", "land", says="unknown phase 'land'", fix="known|did you mean")
    assert "land" not in ran.err.splitlines()[-1]


def test_a_phase_that_is_missing(nowhere: Cli) -> None:
    refused(nowhere, "run", says="PHASE")


def test_what_does_not_go_together(nowhere: Cli) -> None:
    refused(nowhere, "run", "ship", "--branch", "b", "--fix", says="--fix does not go with ship", fix="run test --fix")
    refused(nowhere, "run", "test", says="no branch was named", fix="run test --branch")


def test_a_review_without_anything_to_compare_with(nowhere: Cli, tmp_path: Path) -> None:
    review = ("run", "review", "--branch", "topic")
    refused(nowhere, *review, says="no request was given: a review compares", fix="--plan FILE")
    refused(nowhere, *review, "--plan", str(tmp_path / "absent.md"), says="plan cannot be read", fix="perdure run plan")
    refused(nowhere, *review, "--request", "-", says="request is empty", stdin="\n")


def test_no_key_where_a_model_would_be_asked_and_none_where_not(nowhere: Cli, cli: Cli, topic: str) -> None:
    for asked in (("plan", "--request", "x"), ("test", "--branch", topic, "--fix")):
        refused(nowhere, "run", *asked, says="there is no key", fix="perdure demo", ANTHROPIC_API_KEY="")
    keyless = {"ANTHROPIC_API_KEY": "", "PERDURE_BUDGET_USD": ""}
    ran = cli("run", "test", "--branch", "absent", **keyless)
    assert "there is no branch 'absent'" in ran.err, "looked at without a key"


@pytest.mark.parametrize("phase", ["test", "plan"])
def test_a_branch_that_is_not_there_names_the_nearest(cli: Cli, topic: str, phase: str) -> None:
    asked = ("--request", "x") if phase == "plan" else ()
    refused(cli, "run", phase, "--branch", "topik", *asked, says="no branch 'topik'", fix="did you mean --branch topic")


def test_a_branch_that_is_the_base(cli: Cli, topic: str) -> None:
    refused(cli, "run", "test", "--branch", "main", says="main is the base itself", fix="name another branch")
    built = ("run", "build", "--request", "x", "--branch", topic, "--base", topic)
    refused(cli, *built, says="topic is the base itself", fix="--base NAME")


@pytest.mark.parametrize("phase", ["review", "ship"])
def test_a_branch_with_nothing_on_it(cli: Cli, origin: Path, phase: str) -> None:
    git(origin, "branch", "empty", "main")
    asked = ("--request", "x") if phase == "review" else ()
    refused(cli, "run", phase, "--branch", "empty", *asked, says="empty has no commit that main has not", fix="push")


def test_an_issue_of_a_repository_without_issues(cli: Cli) -> None:
    refused(cli, "run", "plan", "--issue", "12", says="no issues that Perdure can read")


@pytest.mark.parametrize("wanted", [{"phases": "build", "push": True}, {"phases": "ship"}, {"phases": "test"}])
async def test_what_is_pushed_to_github_needs_a_token_and_what_is_not_needs_none(
    env: dict[str, str], here: Path, github: GitHubTwin, wanted: dict[str, Any]
) -> None:
    there = here.parent / "github" / "me" / "calc.git"
    git(there, "update-ref", "refs/heads/topic", git(there, "commit-tree", "-p", "main", "-m", "hers", "main^{tree}"))
    asked = DeliverOptions(request="x", branch="topic", fix=False, **wanted)
    nobody = env | {"PERDURE_GITHUB_TOKEN": ""}
    if wanted == {"phases": "test"}:
        assert (await asyncio.to_thread(check_request, asked, nobody)).request.push is False
        return
    with pytest.raises(BadInput, match="there is no token") as error:
        await asyncio.to_thread(check_request, asked, nobody)
    assert error.value.where == "PERDURE_GITHUB_TOKEN"
    assert (await asyncio.to_thread(check_request, asked, env)).request.branch == "topic"
