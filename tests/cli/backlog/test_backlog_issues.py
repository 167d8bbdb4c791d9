"""`perdure backlog start --issues` on a server that answers as GitHub does: open issues become items."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import Client, ScheduleActionStartWorkflow

from perdure.adapters.forges.body import marker
from perdure.client import Backlog
from perdure.plugin import perdure_plugin
from tests.cli.conftest import Cli, Ran
from tests.cli.request.test_issue import TOKEN, env, github
from tests.engine import git
from tests.temporal_server import server
from tests.twins.github import GitHubTwin

pytestmark = pytest.mark.story

__all__ = ["env", "github", "server"]


@pytest.fixture
def there(cli: Cli, env: dict[str, str], server: str, github: GitHubTwin) -> Cli:
    """In a checkout whose origin is me/calc on the twin; its workers are elsewhere."""
    git(cli.cwd, "remote", "set-url", "origin", f"{github.url}/me/calc.git")
    return Cli(cli.home, cli.cwd, {**env, "TEMPORAL_ADDRESS": server})


async def typed(cli: Cli, *args: str) -> Ran:
    ran: Ran = await asyncio.to_thread(cli, "backlog", "start", *args)
    return ran


@pytest.mark.timeout(90)
async def test_open_issues_are_items_beside_those_of_a_file(github: GitHubTwin, there: Cli, server: str) -> None:
    numbers = [github.add_issue("me/calc", title, labels=("bug",)) for title in ("Add mul", "Add div")]
    github.add_issue("me/calc", "Done", labels=("bug",), state="closed")
    (there.cwd / "night.yaml").write_text("version: 1\nitems:\n  - {id: api, request: Add it}\n")
    ran = await typed(there, "night.yaml", "--issues", "label:bug", "--detach", "--json")
    assert ran.code == 0, ran
    id = json.loads(ran.out)["backlog_id"]
    assert id == "night"
    sent = await Backlog(await Client.connect(server, plugins=[perdure_plugin()]), id).request()
    assert sent["items"] == [
        {"id": "api", "request": "Add it"},
        *({"id": f"issue-{number}", "issue": str(number)} for number in numbers),
    ]
    assert sent["repository"] == f"{github.url}/me/calc.git"
    again = await typed(there, "night.yaml", "--issues", "label:bug", "--detach", "--json")
    assert json.loads(again.out)["attached"]
    alone = await typed(there, "--issues", "label:bug", "--land", "stack", "--detach", "--json")
    assert json.loads(alone.out)["backlog_id"] == "calc-label-bug"
    stacked = await Backlog(await Client.connect(server, plugins=[perdure_plugin()]), "calc-label-bug").request()
    assert stacked["land"] == "stack"
    assert TOKEN not in ran.out + ran.err + alone.out + alone.err


@pytest.mark.timeout(120)
async def test_the_same_issues_come_back_to_their_backlog_when_others_have_come(
    github: GitHubTwin, there: Cli, server: str
) -> None:
    """Nothing is begun twice, and the new ones are named with the command that adds them."""
    gone, stays = (github.add_issue("me/calc", title, labels=("ready",)) for title in ("Add mul", "Add div"))
    asked = ("--issues", "label:ready", "--detach")
    first = json.loads((await typed(there, *asked, "--json")).out)
    assert first["backlog_id"] == "calc-label-ready"
    github.delete_issue("me/calc", gone)
    new = github.add_issue("me/calc", "Add pow", labels=("ready",))
    again = await typed(there, *asked)
    assert again.code == 0, again
    assert "calc-label-ready is already there: nothing new was started" in again.out.splitlines()
    adds = f"perdure backlog add calc-label-ready --issue {new}"
    assert f"issue {new} has come since: {adds}" in again.out.splitlines()
    more = github.add_issue("me/calc", "Add mod", labels=("ready",))
    told = json.loads((await typed(there, *asked, "--json")).out)
    assert told == {"backlog_id": "calc-label-ready", "attached": True, "come": [new, more]}
    other = await typed(there, *asked, "--land", "stack")
    assert other.code == 2
    assert "taken by a backlog that lands as a branch, not as a stack" in other.err
    assert "--id calc-label-ready-2" in other.err
    client = await Client.connect(server, plugins=[perdure_plugin()])
    await client.get_workflow_handle("calc-label-ready").terminate()
    ended = (await typed(there, *asked, "--repo", ".")).out
    assert f"issues {new}, {more} have come since, and it has ended: for issue in {new} {more}; do" in ended
    assert "do perdure deliver --issue $issue --repo . --detach; done" in ended
    assert str(stays) in [item["issue"] for item in (await Backlog(client, "calc-label-ready").request())["items"]]


@pytest.mark.timeout(120)
async def test_an_issue_that_waits_to_be_merged_is_not_built_a_second_time(
    github: GitHubTwin, there: Cli, server: str
) -> None:
    """But the backlog that built it is come back to, with it."""
    built, other = (github.add_issue("me/calc", title, labels=("due",)) for title in ("Add mul", "Add div"))
    asked = ("--issues", "label:due", "--detach")
    assert (await typed(there, *asked, "--id", "before")).code == 0
    git(there.cwd, "commit", "--allow-empty", "-qm", "more")
    git(there.cwd, "push", "-q", str(github.path("me/calc")), "HEAD:refs/heads/topic")
    pull = github.add_pull("me/calc", "topic", body=f"Closes #{built}.\n\n{marker('x')}", author="perdure-bot")
    ran = await typed(there, *asked)
    assert ran.code == 0, ran
    assert f"#{built} is left out: #{pull} is open for it" in ran.out.splitlines()
    client = await Client.connect(server, plugins=[perdure_plugin()])
    sent = await Backlog(client, "calc-label-due").request()
    assert sent["items"] == [{"id": f"issue-{other}", "issue": str(other)}]
    for id in ("before", "calc-label-due"):
        again = await typed(there, *asked, "--id", id)
        assert f"{id} is already there: nothing new was started" in again.out, again
        assert ("is left out" in again.out) == (id != "before")
    github.delete_issue("me/calc", other)
    ran = await typed(there, *asked, "--id", "another")
    assert (ran.code, f"every open issue there is built already: #{built}" in ran.err) == (2, True), ran


@pytest.mark.timeout(90)
async def test_no_second_backlog_of_the_same_issues_is_proposed(github: GitHubTwin, there: Cli) -> None:
    github.add_issue("me/calc", "Add mul", labels=("ready",))
    asked = ("--issues", "label:ready", "--id", "mine", "--detach")
    assert (await typed(there, *asked)).code == 0
    github.add_issue("me/calc", "Add pow", labels=("ready",))
    ran = await typed(there, *asked)
    assert (ran.code, "taken by a backlog of other items" in ran.err) == (2, True)
    assert "fix: perdure backlog add mine --issue N" in ran.err
    assert "mine-2" not in ran.err


async def test_issues_that_are_not_there_are_refused_in_words(there: Cli, tmp_path: Path) -> None:
    ran = await typed(there, "--issues", "label:nobodys")
    assert (ran.code, ran.out) == (2, "")
    assert "no open issue has label 'nobodys'" in ran.err
    git(there.cwd, "remote", "set-url", "origin", str(tmp_path / "calc.git"))
    ran = await typed(there, "--issues", "label:bug")
    assert ran.code == 2
    assert "this repository has no issues that Perdure can read" in ran.err


@pytest.mark.timeout(60)
async def test_a_schedule_looks_for_the_issues_that_are_open_then(there: Cli, server: str, github: GitHubTwin) -> None:
    """Of which there is none yet."""
    asked = ("--issues", "label:bug", "--every", "weekdays 23:00", "--id", "bugs")
    made = json.loads((await typed(there, *asked, "--json")).out)
    assert made["about"] == "issues label:bug"
    seen = await (await Client.connect(server)).get_schedule_handle("bugs").describe()
    assert isinstance(seen.schedule.action, ScheduleActionStartWorkflow)
    sent = json.loads(seen.schedule.action.args[0].data)
    assert (sent["issues"], "items" in sent) == ("label:bug", False)
    assert "issues label:bug · 4 at a time" in (await typed(there, *asked)).out
    assert "names no issues" in (await typed(there, "--issues", "bug", "--every", "weekdays 23:00")).err
