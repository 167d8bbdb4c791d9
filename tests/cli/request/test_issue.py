"""`perdure deliver` can be pointed at an issue, a repository without a commit, a checkout of anything."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.adapters.forges.base import HostedForge, Proposal
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.issue import parse_issue_name
from perdure.cli.request.repository import read_working_tree_config
from perdure.cli.request.submit import base_line
from perdure.cli.request.validation import CheckedRequest, check_request
from perdure.client import Perdure
from perdure.models.config.repository import CONFIG_FILE
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.plugin import perdure_plugin
from tests.cli.conftest import Cli, Ran
from tests.engine import git
from tests.temporal_server import server
from tests.twins.github import GitHubTwin

__all__ = ["server"]

TOKEN = "ghp_" + "t0psecret" * 4


@pytest.fixture
async def github(tmp_path: Path, origin: Path) -> AsyncIterator[GitHubTwin]:
    """With me/calc, whose issue 1 is open, 2 closed and 3 locked."""
    async with GitHubTwin(tmp_path / "github", token=TOKEN) as twin:
        twin.add_repository("me/calc", source=origin)
        for title, state, locked in (("Add sub", "open", False), ("Old", "closed", False), ("Heated", "open", True)):
            twin.add_issue("me/calc", title, "There is add.", author="ada", state=state, locked=locked)
        yield twin
        assert twin.violations == []


@pytest.fixture
def env(github: GitHubTwin) -> dict[str, str]:
    return {"PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": TOKEN, "ANTHROPIC_API_KEY": "not-a-key"}


@pytest.fixture
def here(github: GitHubTwin, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a checkout whose origin is me/calc on the twin."""
    checkout = tmp_path / "here"
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    git(checkout, "remote", "set-url", "origin", f"{github.url}/me/calc.git")
    monkeypatch.chdir(checkout)
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    return checkout


async def taken(env: dict[str, str], **asked: str | None) -> CheckedRequest:
    return await asyncio.to_thread(check_request, DeliverOptions(**asked), env)


async def refused(env: dict[str, str], **asked: str | None) -> PerdureError:
    with pytest.raises((BadInput, InvalidRequest)) as error:
        await taken(env, **asked)
    assert error.value.exit_code == 2
    assert error.value.what
    assert error.value.where
    assert error.value.fix
    return error.value


@pytest.mark.parametrize("way", ["1", "#1", "URL"])
async def test_an_issue_is_named_by_number_hash_or_address(
    github: GitHubTwin, env: dict[str, str], here: Path, way: str
) -> None:
    named = way.replace("URL", f"{github.url}/me/calc/issues/1")
    found = await taken(env, issue=named)
    assert (found.request.issue, found.request.request) == ("1", "")
    assert found.work.issue_label == '#1 "Add sub"'
    assert found.target.checkout == here


@pytest.mark.parametrize(
    ("text", "words"),
    [("#1", ""), ("fix #1 please", "fix #1 please"), ("#1 and #1 again", "#1 and #1 again"), ("URL", "")],
)
async def test_an_issue_is_named_in_the_text(
    github: GitHubTwin, env: dict[str, str], here: Path, text: str, words: str
) -> None:
    found = await taken(env, text=text.replace("URL", f"{github.url}/me/calc/issues/1"))
    assert (found.request.issue, found.request.request) == ("1", words)


async def test_words_go_along_with_an_issue_and_may_name_others(env: dict[str, str], here: Path) -> None:
    found = await taken(env, issue="1", text="unlike #2 and #3")
    assert (found.request.issue, found.request.request) == ("1", "unlike #2 and #3")
    error = await refused(env, text="unlike #2 and #3")
    assert error.what == "the request names 2 issues: #2, #3"
    assert "--issue 2" in error.fix


async def test_a_text_without_an_issue_stays_a_text(github: GitHubTwin, env: dict[str, str], here: Path) -> None:
    found = await taken(env, text="make other/repo#1 green, colour #12ab")
    assert (found.request.issue, found.work.issue_label) == (None, "")
    assert [path for _, path, *_ in github.calls if "/issues/" in path] == []


async def test_in_a_local_repository_a_number_is_a_word_and_an_issue_refused(
    env: dict[str, str], origin: Path, here: Path
) -> None:
    local = str(origin)
    found = await taken(env, text="fix #1 and #2", repo=local)
    assert (found.request.issue, found.request.request) == (None, "fix #1 and #2")
    assert (await refused(env, issue="1", repo=local)).what == "this repository has no issues that Perdure can read"


async def test_an_address_brings_its_repository_unless_we_are_in_it(
    github: GitHubTwin, env: dict[str, str], here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{github.url}/ME/Calc/issues/1"
    assert (await taken(env, issue=address)).target.checkout == here
    monkeypatch.chdir(tmp_path)
    found = await taken(env, issue=address)
    assert found.target.checkout is None
    assert found.request.repository == f"{github.url}/ME/Calc"


async def test_an_address_of_another_repository_than_the_one_named_is_refused(
    github: GitHubTwin, env: dict[str, str], here: Path
) -> None:
    error = await refused(env, issue=f"{github.url}/you/calc/issues/1", repo=".")
    assert error.what == "issue 1 is one of another repository"
    assert f"--repo {github.url}/you/calc" in error.fix


@pytest.mark.parametrize(("number", "says"), [("2", "closed"), ("3", "locked"), ("99", "no issue|not exist|no such")])
async def test_an_issue_that_cannot_be_delivered_is_known_at_once(
    env: dict[str, str], here: Path, number: str, says: str
) -> None:
    refusal = (await taken(env, issue=number)).work.refusal
    assert refusal is not None
    assert re.search(says, refusal.what)
    assert (refusal.exit_code, bool(refusal.where), bool(refusal.fix)) == (2, True, True)


async def test_a_number_in_the_text_that_is_no_issue_is_told_how_to_be_words(env: dict[str, str], here: Path) -> None:
    refusal = (await taken(env, text="like #2")).work.refusal
    assert refusal is not None
    assert refusal.where == "#2 in TEXT, which is taken for the issue to deliver"
    assert refusal.fix == "name the issue, --issue N, or write 2 without the #"


async def test_a_pull_request_is_no_issue(github: GitHubTwin, env: dict[str, str], here: Path) -> None:
    git(here, "commit", "--allow-empty", "-qm", "more")
    git(here, "push", "-q", str(github.path("me/calc")), "HEAD:refs/heads/topic")
    forge = Forges.from_environment(dict(env)).forge(f"{github.url}/me/calc")
    assert isinstance(forge, HostedForge)
    head = git(here, "rev-parse", "HEAD")
    proposal = Proposal(delivery="d", title="t", body="b", head="topic", head_sha=head, base="main")
    opened = await asyncio.to_thread(forge.open_or_update_pull, proposal)
    refusal = (await taken(env, issue=str(opened.pull_request.number))).work.refusal
    assert refusal is not None
    assert "pull request" in refusal.what


async def test_without_a_token_a_pull_request_is_refused_and_a_plan_is_not(env: dict[str, str], here: Path) -> None:
    nobody = env | {"PERDURE_GITHUB_TOKEN": ""}
    error = await refused(nobody, issue="1")
    assert error.what.startswith("there is no token for 127.0.0.1")
    assert error.where == "PERDURE_GITHUB_TOKEN"
    assert "scope repo, or Contents, Issues and Pull requests: Read and write" in error.fix
    assert (await refused(nobody, text="Add sub")).what == error.what
    found = await taken(nobody, issue="1", phases="plan")
    assert found.work.issue_label == "#1"


@pytest.mark.parametrize("installed", [("me/calc",), ()])
async def test_an_app_reads_the_issue_where_it_is_installed_and_is_refused_in_words_where_not(
    github: GitHubTwin, env: dict[str, str], here: Path, tmp_path: Path, installed: tuple[str, ...]
) -> None:
    (tmp_path / "app.pem").write_text(github.add_app(77, repositories=installed))
    app = {"PERDURE_GITHUB_APP_ID": "77", "PERDURE_GITHUB_APP_KEY": str(tmp_path / "app.pem")}
    env = env | {"PERDURE_GITHUB_TOKEN": ""} | app
    if installed:
        assert (await taken(env, issue="1")).work.issue_label == '#1 "Add sub"'
    else:
        assert "not installed on me/calc" in (await refused(env, issue="1")).what


async def test_a_publisher_of_its_own_holds_the_token(env: dict[str, str], here: Path) -> None:
    nobody = env | {"PERDURE_GITHUB_TOKEN": "", "PERDURE_PUBLISHER_QUEUE": "perdure-publisher"}
    assert (await taken(nobody, issue="1")).request.issue == "1"


async def test_workers_elsewhere_read_what_cannot_be_read_here(
    env: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    found = await taken(env | {"PERDURE_GITHUB_TOKEN": ""}, issue="99")
    assert (found.request.issue, found.work.issue_label) == ("99", "#99")


async def test_a_github_that_is_away_keeps_nobody_from_submitting(
    github: GitHubTwin, env: dict[str, str], here: Path
) -> None:
    github.faults.add("issues/get", "bad_gateway")
    assert (await taken(env, issue="1")).work.issue_label == "#1"
    assert (await taken(env, issue="1")).work.issue_label == '#1 "Add sub"'


@pytest.mark.parametrize("option", ["next", "0", "", "#", "https://github.com/me/calc/pull/1", "1,2"])
def test_what_names_no_issue_is_refused(option: str) -> None:
    with pytest.raises(BadInput, match="names no issue") as error:
        parse_issue_name(option, None)
    assert "--issue 12" in error.value.fix


async def test_the_command_ends_with_three_lines_and_nothing_is_left_behind(
    cli: Cli, env: dict[str, str], github: GitHubTwin
) -> None:
    ran = await run(Cli(cli.home, cli.cwd, env), "deliver", "--issue", f"{github.url}/me/calc/issues/2")
    assert (ran.code, ran.out) == (2, "")
    assert [line.partition(":")[0].strip() for line in ran.err.splitlines()] == ["error", "where", "fix"]
    assert "closed" in ran.err
    assert not cli.home.exists() or not list(cli.home.iterdir())
    assert TOKEN not in ran.err


async def test_the_header_names_the_issue_and_the_same_issue_comes_back_to_its_delivery(
    cli: Cli, env: dict[str, str], github: GitHubTwin, server: str, here: Path
) -> None:
    there = Cli(cli.home, here, env | {"TEMPORAL_ADDRESS": server})
    ran = await run(there, "deliver", "#1", "--detach")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].endswith("· calc-issue-1")
    assert '\n  issue         #1 "Add sub"\n' in ran.out
    assert "calc-issue-1 is recorded; no worker has taken it yet: it begins when one runs" in ran.out + ran.err
    again = await run(there, "deliver", "--issue", "1", "only the parser", "--detach")
    assert "calc-issue-1 is already there: nothing new was started" in again.out + again.err
    client = await Client.connect(server, plugins=[perdure_plugin()])
    handle = client.get_workflow_handle("calc-issue-1")
    assert await (await handle.describe()).static_summary() == r"\#1"
    await handle.terminate()


async def test_a_closed_issue_still_leads_to_the_delivery_that_closed_it(
    cli: Cli, env: dict[str, str], github: GitHubTwin, server: str, here: Path
) -> None:
    there = Cli(cli.home, here, env | {"TEMPORAL_ADDRESS": server})
    refused = await run(there, "deliver", "#2", "--detach")
    assert (refused.code, refused.out) == (2, "")
    client = await Client.connect(server, plugins=[perdure_plugin()])
    begun = await Perdure(client).submit({"repository": f"{github.url}/me/calc", "issue": 2})
    ran = await run(there, "deliver", "#2", "--detach")
    assert (ran.code, "calc-issue-2 is already there" in ran.out + ran.err) == (0, True)
    await client.get_workflow_handle(begun.delivery.id).terminate()


async def run(cli: Cli, *args: str) -> Ran:
    return await asyncio.to_thread(cli, *args)


KEY = {"ANTHROPIC_API_KEY": "not-a-key"}


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--initial-branch=trunk", "mine")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "mine"


def test_it_says_which_branch_will_be_begun_and_that_no_settings_are_there(empty: Path) -> None:
    taken = check_request(DeliverOptions(text="Write a calculator"), KEY)
    assert (taken.base, taken.base_sha) == ("trunk", FIRST_COMMIT)
    assert base_line(taken) == "empty: trunk begins with an empty commit, pushed before the delivery's branch"
    assert taken.file == "no perdure.toml: the repository is empty"
    assert git(empty, "for-each-ref") == ""


def test_what_was_not_committed_is_to_be_committed_first(empty: Path) -> None:
    (empty / "perdure.toml").write_text("version = 1\n")
    with pytest.raises(BadInput, match="1 uncommitted file") as refused:
        check_request(DeliverOptions(text="Write a calculator"), KEY)
    assert refused.value.fix.endswith("git add -A && git commit -m first")


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_settings_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / CONFIG_FILE).symlink_to("pipe")
    assert read_working_tree_config(tmp_path) is None
