"""`perdure backlog start --issues` on a server that answers as GitHub does: open issues become items."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import Client, ScheduleActionStartWorkflow

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
        *({"id": f"issue-{number}", "issue": number} for number in numbers),
    ]
    assert sent["repository"] == f"{github.url}/me/calc.git"
    again = await typed(there, "night.yaml", "--issues", "label:bug", "--detach", "--json")
    assert json.loads(again.out)["attached"]
    alone = await typed(there, "--issues", "label:bug", "--land", "stack", "--detach", "--json")
    assert json.loads(alone.out)["backlog_id"] == "calc-label-bug"
    stacked = await Backlog(await Client.connect(server, plugins=[perdure_plugin()]), "calc-label-bug").request()
    assert stacked["land"] == "stack"
    assert TOKEN not in ran.out + ran.err + alone.out + alone.err


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
