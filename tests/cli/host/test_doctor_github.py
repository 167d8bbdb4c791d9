"""`perdure doctor` on GitHub, browser and who is told: what is missing and how to get it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.adapters.forges.base import AccessReport
from perdure.adapters.system.files import try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.cli.host.remote_checks import _call_within
from perdure.local.access import fingerprint, notify_variables
from perdure.local.places import Places, SupervisorRecord
from tests import needs
from tests.cli.conftest import Cli, Ran
from tests.engine import git, make_target
from tests.twins.github import GitHubTwin

TOKEN = "ghp_" + "t0psecret" * 4
NOWHERE = "http://127.0.0.1:9"
"""Nothing listens on the port of `discard`."""


PROPOSED = '[git]\nbranch = "{kind}/{slug}-{id}"\n'


@dataclass(frozen=True)
class Here:
    """In a checkout whose origin is me/calc on the twin."""

    cli: Cli
    github: GitHubTwin

    async def run(self, *args: str, **env: str) -> Ran:
        given = {"PERDURE_GITHUB_URL": self.github.url, "PERDURE_GITHUB_TOKEN": TOKEN, **env}
        ran = await asyncio.to_thread(self.cli, *args, **given)
        assert TOKEN not in ran.out + ran.err
        return ran

    async def doctor(self, **env: str) -> list[dict[str, str]]:
        """What it says about GitHub."""
        ran = await self.run("doctor", "--json", **env)
        found = [finding for finding in json.loads(ran.out) if finding["name"] == "GitHub"]
        assert (ran.code == 0) is not any(finding["mark"] == "✗" for finding in json.loads(ran.out))
        return found


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    origin = make_target(tmp_path / "calc.git")
    checkout = tmp_path / "here"
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    async with GitHubTwin(tmp_path / "github", token=TOKEN) as twin:
        twin.add_repository("me/calc", source=origin)
        git(checkout, "remote", "set-url", "origin", f"{twin.url}/me/calc.git")
        yield Here(Cli(tmp_path / "home", checkout, {"ANTHROPIC_API_KEY": "not-a-key"}), twin)
        assert twin.violations == []


async def test_a_token_that_can_publish_is_fine_and_named_by_nothing_but_what_it_may(here: Here) -> None:
    (found,) = await here.doctor()
    assert found["mark"] == "✓"
    assert found["text"] == "the token may push to me/calc and open pull requests into main"


async def test_a_protected_base_is_a_note_and_no_obstacle(here: Here) -> None:
    here.github.protect("me/calc", "main")
    fine, note = await here.doctor()
    assert (fine["mark"], note["mark"]) == ("✓", "!")
    assert "main is protected" in note["text"]


async def test_a_ruleset_that_would_refuse_the_push_is_named_before_any_delivery(here: Here, tmp_path: Path) -> None:
    number = here.github.add_ruleset("me/calc", "perdure/*", rules=[{"type": "creation"}], bypass=("ada",))
    (found,) = await here.doctor()
    assert found["mark"] == "✗"
    assert "a rule of me/calc (creation) would refuse the push of perdure/calc-" in found["text"]
    assert "let the token's account bypass the ruleset, or set [git] branch" in found["fix"]
    asked = [call for call in here.github.calls if f"rulesets/{number}" in str(call)]
    assert asked, "nobody has asked if the account may bypass it"

    (here.cli.cwd / "perdure.toml").write_text((here.cli.cwd / "perdure.toml").read_text() + PROPOSED)
    (found,) = await here.doctor()
    assert found["mark"] == "✗", "what is not committed to the base does not count"
    git(here.cli.cwd, "commit", "-qam", "Propose by kind")
    git(here.cli.cwd, "push", "-q", str(tmp_path / "github" / "me" / "calc.git"), "HEAD:main")
    git(here.cli.cwd, "fetch", "-q", str(tmp_path / "github" / "me" / "calc.git"))
    (found,) = await here.doctor()
    assert found["mark"] == "✓"
    here.github.add_ruleset("me/calc", "bug/*", rules=[{"type": "required_signatures"}])
    fine, *notes = await here.doctor()
    assert [fine["mark"], *(note["mark"] for note in notes)] == ["✓", "!", "!"]
    for note, name in zip(notes, ("bug/a-request-calc-", "bug/an-issue-calc-issue-1"), strict=True):
        assert f"would refuse the push of {name}" in note["text"]


async def test_a_github_that_is_away_in_the_middle_of_its_rules_is_one_line(here: Here) -> None:
    here.github.faults.add("repos/get-branch-rules", "bad_gateway")
    (found,) = await here.doctor()
    assert (found["mark"], "could not be asked" in found["text"]) == ("!", True)


async def test_without_a_token_it_says_what_to_grant(here: Here) -> None:
    (found,) = await here.doctor(PERDURE_GITHUB_TOKEN="")
    assert found["mark"] == "✗"
    assert "there is no token" in found["text"]
    for needed in ("repo", "Contents", "Pull requests", "Issues", "PERDURE_GITHUB_TOKEN"):
        assert needed in found["fix"]


@pytest.mark.parametrize(
    ("scopes", "role", "words"),
    [(("read:user",), "write", "scope"), (("repo",), "read", "may not push"), (None, "", "no repository")],
)
async def test_what_the_token_lacks_is_named(here: Here, scopes: tuple[str, ...] | None, role: str, words: str) -> None:
    weak = "ghp_" + "weakling0" * 4
    if scopes is None:
        here.github.add_repository("me/hidden", private=True)
        git(here.cli.cwd, "remote", "set-url", "origin", f"{here.github.url}/me/hidden.git")
    here.github.add_token(weak, login="eve", scopes=scopes or ("repo",), permissions={"me/calc": role} if role else {})
    (found,) = await here.doctor(PERDURE_GITHUB_TOKEN=weak)
    assert found["mark"] == "✗"
    assert words in found["text"]
    assert found["fix"]
    assert weak not in str(found)


async def test_a_permission_that_a_fine_grained_token_lacks_is_named_as_its_settings_name_it(here: Here) -> None:
    fine = "github_pat_" + "readonly0" * 4
    grants = {"contents": "write", "pull_requests": "read", "issues": "write"}
    here.github.add_token(fine, permissions={"me/calc": "write"}, kind="fine-grained", grants=grants)
    (found,) = await here.doctor(PERDURE_GITHUB_TOKEN=fine)
    assert (found["mark"], "Pull requests: write" in found["text"]) == ("✗", True)
    assert fine not in str(found)


async def test_an_app_is_named_and_whether_it_is_installed_there(here: Here, tmp_path: Path) -> None:
    key = tmp_path / "app.pem"
    app = {"PERDURE_GITHUB_TOKEN": "", "PERDURE_GITHUB_APP_ID": "1234", "PERDURE_GITHUB_APP_KEY": str(key)}
    key.write_text(here.github.add_app(1234, repositories=("me/calc",)))
    (found,) = await here.doctor(**app)
    assert (found["mark"], found["text"].startswith("App 1234 may push to me/calc")) == ("✓", True)
    key.write_text(here.github.add_app(1234, repositories=("me/other",)))
    (found,) = await here.doctor(**app)
    assert found["mark"] == "✗"
    assert "App 1234: " in found["text"]
    assert "is not installed on me/calc" in found["text"]


async def test_a_token_that_was_revoked_is_told_from_one_that_may_too_little(here: Here) -> None:
    (found,) = await here.doctor(PERDURE_GITHUB_TOKEN="ghp_" + "revoked00" * 4)
    assert found["mark"] == "✗"
    assert "does not accept the token" in found["text"]
    assert "PERDURE_GITHUB_TOKEN" in found["text"]


async def test_an_archived_repository_is_named(here: Here) -> None:
    here.github.archive("me/calc")
    (found,) = await here.doctor()
    assert (found["mark"], "archived" in found["text"]) == ("✗", True)


async def test_a_github_that_is_away_could_not_be_asked_and_nothing_is_wrong_here(here: Here) -> None:
    here.github.down = True
    (found,) = await here.doctor()
    assert (found["mark"], "could not be asked" in found["text"]) == ("!", True)
    here.github.down = False
    git(here.cli.cwd, "remote", "set-url", "origin", f"{NOWHERE}/me/calc.git")
    (found,) = await here.doctor(PERDURE_GITHUB_URL=NOWHERE)
    assert (found["mark"], "could not be asked" in found["text"]) == ("!", True)


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    asked, never = threading.Event(), threading.Event()

    def ask() -> AccessReport:
        asked.set()
        never.wait(30)
        return AccessReport("me/calc")

    with pytest.raises(TimeoutError):
        _call_within(0.1, ask)
    assert asked.is_set()
    never.set()
    assert _call_within(30, ask).repository == "me/calc"


async def test_beside_a_publisher_no_token_is_needed_and_one_that_can_write_is_too_much(here: Here) -> None:
    queue = {"PERDURE_PUBLISHER_QUEUE": "publish"}
    (none,) = await here.doctor(PERDURE_GITHUB_TOKEN="", **queue)
    assert (none["mark"], "the publisher of PERDURE_PUBLISHER_QUEUE=publish" in none["text"]) == ("✓", True)
    fine, much = await here.doctor(**queue)
    assert (fine["mark"], much["mark"]) == ("✓", "!")
    assert "leaves that to the publisher" in much["text"]
    reader = "ghp_" + "readonly0" * 4
    here.github.add_token(reader, login="reader", scopes=("repo",), permissions={"me/calc": "read"})
    (little,) = await here.doctor(PERDURE_GITHUB_TOKEN=reader, **queue)
    assert (little["mark"], "cannot publish, the publisher's does" in little["text"]) == ("✓", True)


async def test_the_publisher_itself_needs_the_token_and_no_key(here: Here) -> None:
    role = {"PERDURE_PUBLISHER_QUEUE": "publish", "PERDURE_WORKER_ROLE": "publisher"}
    (found,) = await here.doctor(**role)
    assert found["mark"] == "✓"
    (found,) = await here.doctor(PERDURE_GITHUB_TOKEN="", **role)
    assert found["mark"] == "✗"
    ran = await here.run("doctor", "--json", ANTHROPIC_API_KEY="", **role)
    (key,) = [finding for finding in json.loads(ran.out) if finding["name"] == "key"]
    assert key["mark"] == "✓"


@pytest.mark.story
@pytest.mark.long
async def test_a_worker_that_was_started_before_the_token_was_set_is_named(here: Here) -> None:
    """The worker of a home that is up keeps the environment of its start."""
    up = await here.run("up", "--detach", PERDURE_GITHUB_TOKEN="")
    assert up.code == 0, up.err
    try:
        fine, stale = await here.doctor()
        assert (fine["mark"], stale["mark"]) == ("✓", "✗")
        assert "was started without the token" in stale["text"]
        assert "perdure down" in stale["fix"]
        assert (await here.run("down")).code == 0
        again = await here.run("up", "--detach")
        assert again.code == 0, again.err
        assert [finding["mark"] for finding in await here.doctor()] == ["✓"]
    finally:
        assert (await here.run("down")).code == 0


async def test_a_malformed_address_of_github_is_refused_by_the_variable_s_name(here: Here) -> None:
    ran = await here.run("doctor", PERDURE_GITHUB_URL="ftp://ghe")
    assert ran.code == 1
    assert "PERDURE_GITHUB_URL is not right" in ran.out


@pytest.mark.parametrize(("command", "page"), [((), "pulls"), (("7",), "pull/7")])
async def test_pulls_names_the_page_without_asking_for_it(here: Here, command: tuple[str, ...], page: str) -> None:
    before = len(here.github.calls)
    for options in ((), ("--repo", "me/calc"), ("--repo", f"{here.github.url}/me/calc")):
        ran = await here.run("pulls", *command, *options, PERDURE_GITHUB_TOKEN="")
        assert ran.code == 2
        assert ran.err.splitlines()[:2] == [
            "error: the pull requests of this repository are on GitHub",
            f"  where: {here.github.url}/me/calc/{page}",
        ]
    assert len(here.github.calls) == before


def test_pulls_of_a_bare_clone_are_its_own(tmp_path: Path, cli: Cli) -> None:
    bare = tmp_path / "mirror.git"
    git(tmp_path, "clone", "-q", "--bare", str(cli.cwd), str(bare))
    git(bare, "remote", "set-url", "origin", "https://github.com/me/calc")
    ran = cli("pulls", "--repo", str(bare))
    assert (ran.code, ran.out) == (0, "no pull request yet\n"), ran.err


def test_help_does_not_load_what_doctor_needs(cli: Cli) -> None:
    loaded = cli.modules("doctor", "--help")
    assert "perdure.cli.commands.host" in loaded
    assert not loaded & {"github", "requests", "perdure.cli.host.doctor", "perdure.adapters.forges.select"}


def browsers(cli: Cli, **env: str) -> list[dict[str, str]]:
    ran = cli("doctor", "--json", **env)
    return [finding for finding in json.loads(ran.out) if finding["name"] == "browser"]


def without_chromium(root: Path) -> str:
    """A PATH that has git, and nothing that could be a browser."""
    directory = root / "bin"
    directory.mkdir()
    for name in ("git", "env", "bwrap", "sh", "bash"):
        found = next((f"{at}/{name}" for at in os.environ["PATH"].split(":") if os.path.exists(f"{at}/{name}")), "")
        if found:
            (directory / name).symlink_to(found)
    return str(directory)


def test_a_browser_is_looked_for_where_app_is_set(cli: Cli, tmp_path: Path) -> None:
    assert browsers(cli) == []
    settings = cli.cwd / "perdure.toml"
    settings.write_text(settings.read_text() + '\n[app]\nstart = "true"\n')
    (finding,) = browsers(cli)
    if missing_programs := needs.missing("chromium"):
        assert finding["mark"] == "!", missing_programs
    else:
        assert (finding["mark"], finding["text"].rpartition(", ")[2]) in (("✓", "for [app]"), ("!", "for [app]"))
    (missing,) = browsers(cli, PATH=without_chromium(tmp_path))
    assert missing["mark"] == "!"
    assert "no screenshots" in missing["text"]
    assert "install" in missing["fix"]


def test_a_settings_file_that_is_malformed_is_reported_with_its_place_and_looks_for_no_browser(cli: Cli) -> None:
    (cli.cwd / "perdure.toml").write_text('[app]\nstarts = "true"\n')
    ran = cli("doctor", "--json")
    findings = json.loads(ran.out)
    (finding,) = [finding for finding in findings if finding["name"] == "settings"]
    assert finding["mark"] == "✗"
    assert "perdure.toml" in finding["text"]
    assert "start" in finding["fix"]
    assert "browser" not in {finding["name"] for finding in findings}
    assert ran.code == 1


SLACK = "https://hooks.slack.com/services/T0/B0/secret-part"


@pytest.mark.parametrize(
    ("env", "mark", "text"),
    [
        ({}, None, ""),
        ({"PERDURE_WEBHOOK_URL": SLACK}, "✓", "hooks.slack.com (waiting, question, budget, reminder, ended)"),
        ({"PERDURE_WEBHOOK_URL": "slack.com/secret-part"}, "✗", "this is not an http or https address"),
        ({"PERDURE_WEBHOOK_URL": SLACK, "PERDURE_WEBHOOK_SECRET": "secret-part"}, "✗", "a secret of 11 bytes"),
    ],
)
def test_doctor_names_who_is_told_by_host_alone(cli: Cli, env: dict[str, str], mark: str | None, text: str) -> None:
    ran = cli("doctor", "--json", **env)
    found = [finding for finding in json.loads(ran.out) if finding["name"] == "notify"]
    assert [finding["mark"] for finding in found] == ([mark] if mark else [])
    assert all(finding["text"].startswith(text) for finding in found)
    assert "secret-part" not in ran.out + ran.err


def test_doctor_says_who_is_told_in_the_clear_and_how_to_try_it(cli: Cli) -> None:
    urls = "http://127.0.0.1:9/x http://10.0.0.7/secret-part HTTPS://a.example/"
    (found,) = [
        one for one in json.loads(cli("doctor", "--json", PERDURE_WEBHOOK_URL=urls).out) if one["name"] == "notify"
    ]
    assert found["fix"].splitlines() == [
        "perdure doctor --notify sends each a test",
        "not signed: set PERDURE_WEBHOOK_SECRET if a receiver checks that; chats do not",
        "not encrypted on its way to 10.0.0.7: write https, unless that network is yours",
    ]


def test_a_test_that_nobody_can_send_says_what_to_start(cli: Cli) -> None:
    ran = cli("doctor", "--notify", PERDURE_WEBHOOK_URL=SLACK)
    assert ran.code == 1
    assert ran.out.startswith("✗ notify ")
    assert "perdure up --detach" in ran.out
    assert not cli.home.exists() or not any(cli.home.glob("server.json")), "it starts nothing"


@pytest.mark.parametrize(("theirs", "notes"), [({}, 1), ({"PERDURE_WEBHOOK_URL": SLACK}, 0)])
def test_doctor_says_when_the_worker_that_runs_tells_somebody_else(
    cli: Cli, theirs: dict[str, str], notes: int
) -> None:
    places, now = Places(Home(cli.home)), datetime.now(UTC)
    known = fingerprint(theirs, now.isoformat(), notify_variables())
    record = SupervisorRecord(pid=os.getpid(), worker_pid=os.getpid(), restarts=0, started_at=now, notify_access=known)
    write_whole(places.supervisor_record, record.model_dump_json().encode())
    lock = try_lock(places.supervisor_lock)
    assert lock is not None
    try:
        ran = cli("doctor", "--json", PERDURE_WEBHOOK_URL=SLACK)
    finally:
        os.close(lock)
    found = [finding for finding in json.loads(ran.out) if finding["name"] == "notify"]
    assert [finding["text"] for finding in found if finding["mark"] == "!"] == [
        "the worker that runs was started with other addresses or another secret than yours"
    ] * notes
