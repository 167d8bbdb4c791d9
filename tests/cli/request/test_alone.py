"""`perdure run` takes one phase with its options, and refuses others in three lines, with nothing started."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.cli.commands.start import DeliverOptions, RunOptions
from perdure.cli.request.single_phase import parse_phase, to_deliver_options
from perdure.cli.request.validation import check_request, needs_model
from perdure.models.delivery.steps import Plan, plan_title
from perdure.models.errors import BadInput
from perdure.models.limits import REQUEST_BYTES
from perdure.models.phases import Phase
from tests.cli.conftest import Cli
from tests.cli.request.test_issue import env, github, here
from tests.cli.test_cli_failures import nowhere, refused
from tests.engine import git
from tests.twins.github import GitHubTwin

__all__ = ["env", "github", "here", "nowhere"]

PLAN = Plan(title="Add sub", problem="p", solution="s", relevant_files=[], tasks=[], validation=[])


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.md"
    file.write_text("\n# Add sub\n\nBeside add.\n")
    return file


def typed(**options: Any) -> RunOptions:
    """The options of `perdure run PHASE` as they are typed; the phase is given beside them."""
    return RunOptions(phase="", **options)


def refused_of_alone(phase: Phase, options: RunOptions) -> BadInput:
    with pytest.raises(BadInput) as error:
        to_deliver_options(phase, options)
    assert error.value.fix
    return error.value


@pytest.mark.parametrize(("name", "near"), [("tset", "test"), ("reviwe", "review"), ("shipp", "ship")])
def test_an_unknown_phase_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(BadInput, match=f"unknown phase '{name}'") as error:
        parse_phase(name)
    assert error.value.fix == f"did you mean perdure run {near}?"


def test_an_unknown_phase_like_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(BadInput) as error:
        parse_phase("everything!")
    assert all(phase in error.value.fix for phase in Phase if phase is not Phase.LAND)


@pytest.mark.parametrize(
    ("phase", "options", "phases", "fix", "push", "model"),
    [
        (Phase.PLAN, typed(request="x"), "plan", True, False, True),
        (Phase.BUILD, typed(request="x"), "build", True, True, True),
        (Phase.TEST, typed(branch="b"), "test", False, False, False),
        (Phase.TEST, typed(branch="b", fix=True), "test", True, True, True),
        (Phase.REVIEW, typed(branch="b", request="x"), "review", False, False, True),
        (Phase.REVIEW, typed(branch="b", request="x", fix=True), "test,review", True, True, True),
        (Phase.SHIP, typed(branch="b"), "ship", True, False, False),
    ],
)
def test_each_phase_fixes_pushes_and_pays_as_it_says(
    phase: Phase, options: RunOptions, phases: str, fix: bool, push: bool, model: bool
) -> None:
    asked = to_deliver_options(phase, options)
    assert (asked.phases, asked.fix, asked.push) == (phases, fix, push)
    assert needs_model(tuple(Phase(name) for name in phases.split(",")), fix=asked.fix) is model


@pytest.mark.parametrize("phase", [Phase.PLAN, Phase.BUILD, Phase.SHIP])
def test_what_finds_nothing_cannot_fix_anything(phase: Phase) -> None:
    error = refused_of_alone(phase, typed(request="x", branch="b", fix=True))
    assert (error.what, error.where) == (f"--fix does not go with {phase}", "--fix")


def test_planning_makes_a_plan_and_takes_none(plan: Path) -> None:
    assert "perdure run build --plan" in refused_of_alone(Phase.PLAN, typed(request="x", plan=plan)).fix


@pytest.mark.parametrize("phase", [Phase.TEST, Phase.REVIEW, Phase.SHIP])
def test_what_looks_at_something_needs_a_branch(phase: Phase) -> None:
    assert f"perdure run {phase} --branch" in refused_of_alone(phase, typed(request="x")).fix


@pytest.mark.parametrize("words", [None, "", " \n"])
@pytest.mark.parametrize("phase", [Phase.PLAN, Phase.BUILD, Phase.REVIEW])
def test_without_words_it_is_said_where_they_may_come_from(phase: Phase, words: str | None) -> None:
    error = refused_of_alone(phase, typed(request=words, branch="b"))
    assert error.what.startswith("no request was given" if words is None else "the request is empty")
    assert "--issue 12" in error.fix
    assert ("--plan FILE" in error.fix) is (phase is not Phase.PLAN)


@pytest.mark.parametrize("phase", [Phase.TEST, Phase.SHIP])
def test_testing_and_publishing_need_no_words(phase: Phase) -> None:
    assert to_deliver_options(phase, typed(branch="b")).request is None
    assert to_deliver_options(phase, typed(branch="b", request="  ")).request is None
    asked = to_deliver_options(phase, typed(branch="b", request="Add sub", label=["team-a"]))
    assert (asked.request, asked.label) == ("Add sub", ["team-a"])


def test_a_plan_is_enough_to_build_and_to_review(plan: Path) -> None:
    built = to_deliver_options(Phase.BUILD, typed(plan=plan))
    assert (built.request, built.plan) == ("Add sub", plan.read_text())
    reviewed = to_deliver_options(Phase.REVIEW, typed(plan=plan, branch="b"))
    assert (reviewed.request, reviewed.plan) == (None, plan.read_text())
    assert to_deliver_options(Phase.BUILD, typed(plan=plan, request="Only sub")).request == "Only sub"
    assert to_deliver_options(Phase.BUILD, typed(plan=plan, issue="12")).request is None


def test_a_request_of_one_dash_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"Add sub\n")))
    assert to_deliver_options(Phase.PLAN, typed(request="-")).request == "Add sub\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x" * (REQUEST_BYTES + 1))))
    assert "longer than 64 KiB" in refused_of_alone(Phase.PLAN, typed(request="-")).what


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n\t\n", "the plan is empty"),
        (b"", "the plan is empty"),
        (b"x" * (REQUEST_BYTES + 1), "cannot be read: it is longer than 64 KiB"),
        ("plän".encode("latin-1"), "cannot be read: it is not UTF-8"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path, content: bytes | None, what: str) -> None:
    file = tmp_path / "mine.md"
    if content is not None:
        file.write_bytes(content)
    error = refused_of_alone(Phase.REVIEW, typed(branch="b", plan=file))
    assert what in error.what
    assert error.where == f"--plan {file}"


def test_a_plan_that_is_a_directory_or_without_end_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused_of_alone(Phase.BUILD, typed(plan=tmp_path)).what
    assert "longer than 64 KiB" in refused_of_alone(Phase.BUILD, typed(plan=Path("/dev/zero"))).what


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (PLAN.model_dump_json(), "Add sub"),
        ("\n---\n## Add sub\nmore", "Add sub"),
        ("Add sub", "Add sub"),
        ("---", "Carry out the plan"),
        ("# " + "x" * 500, "x" * 199 + "…"),
        (json.dumps({"title": 1}), '{"title": 1}'),
    ],
)
def test_a_plan_is_called_by_its_title_or_its_first_words(text: str, title: str) -> None:
    assert plan_title(text) == title


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
