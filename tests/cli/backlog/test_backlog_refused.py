"""Backlogs at the command line: refused by file, line and item; handed in again; their items by name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.cli.backlog.start import check_backlog, read_backlog_file
from perdure.cli.commands.backlog import BacklogOptions
from perdure.cli.request.validation import check_key
from perdure.client.yaml_files import BACKLOG_BYTES, parse_backlog_file
from perdure.models.errors import BadInput, InvalidRequest
from tests.cli.conftest import Cli, Ran
from tests.cli.decision_fixtures import Desk, desk
from tests.engine import make_target
from tests.temporal_server import server

__all__ = ["desk", "server"]

HEAD = "version: 1\nitems:\n"
API = "  - id: api\n    request: Add it\n"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (
            HEAD + "  - id: a\n    request: x\n    depends_on: [b]\n  - id: b\n    request: y\n    depends_on: [a]\n",
            ":5",
            " → ",
        ),
        (HEAD + API + "  - id: b\n    request: x\n    depends_on: [apu]\n", ':7 item "b"', "did you mean api?"),
        ("window: 23:00-07:00 Mars/Base\n" + HEAD + API, ":1", "no time zone Mars/Base"),
        (HEAD + API + API, ':5 item "api"', "api is the id of item 1, too"),
        (HEAD + API + "    reqest: x\n", ':5 item "api"', "reqest: unknown field (did you mean request?)"),
        (HEAD + API + "    touches: [../x]\n", ':5 item "api"', "touches"),
        (HEAD + API + "    check: [' ']\n", ':5 item "api"', "check.0: is blank: write a command"),
        (HEAD + "  - id: api\n    request: ' '\n", 'item "api"', "request: is empty"),
        ("window: 07:00-07:00\n" + HEAD + API, ":1", "never opens"),
        (HEAD + "".join(f"  - id: i{n}\n    request: x\n" for n in range(1001)), ":2", "at most 1000 fit"),
        (HEAD + API + "    id: b\n", ":5", "id: is given twice"),
        ("parallel: 0\n" + HEAD + API, ":1", "parallel"),
        (HEAD + "  - id: A B\n    request: x\n", ":3", "is no id"),
        (HEAD + API + "    decompose: later\n", ":5", "decompose: Input should be 'ask' or 'go'"),
        (HEAD + API + "    decompose: ask\n    check: [make]\n", ":6", "check: an item that is decomposed"),
        (HEAD + API + "    attempts: 6\n", ':5 item "api"', "attempts: Input should be less than or equal to 5"),
        ("version: 1\n", ":1", "items"),
        (HEAD + '  - id: "a\\n"\n    request: x\n', ':3 item "a"', "is no id"),
        ("branch: a b\n" + HEAD + API, ":1", "branch: 'a b' cannot be a branch's name"),
        ("branch: --x\n" + HEAD + API, ":1", "branch: '--x' cannot be a branch's name"),
        ("branch: HEAD\n" + HEAD + API, ":1", "branch: 'HEAD' cannot be a branch's name"),
        ("branch: a..b\n" + HEAD + API, ":1", "branch: 'a..b' cannot be a branch's name"),
        ("branch: main\n" + HEAD + API, ":1", "branch: main is the base branch: nobody lands there"),
        ("branch: main/x\n" + HEAD + API, ":1", "has a branch main, so that main/x cannot exist beside it"),
        ("config: nonsense\n" + HEAD + API, ":1", "config: "),
        ("config: 'version = 1\n\n  [limit]'\n" + HEAD + API, ":1", "did you mean limits?"),
        ("issues: label:bug\n" + HEAD + API, ":1", "issues: this repository has no issues that Perdure can read"),
        (HEAD + API + "  - issue: 14\n", ":5 item #2", "issue: this repository has no issues"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_line(cli: Cli, text: str, where: str, what: str) -> None:
    (cli.cwd / "night.yaml").write_text(text)
    ran = cli("backlog", "start", "night.yaml")
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert len(lines) <= 3
    assert what in lines[0], ran.err
    assert f"night.yaml{where}" in lines[1] or where in lines[1], ran.err
    assert not (cli.home / "server").exists()


@pytest.mark.parametrize(
    ("args", "what", "where"),
    [
        ((), "no items were given", "FILE"),
        (("gone.yaml",), "cannot be read", "gone.yaml"),
        (("night.yaml", "--window", "at night"), "are no hours", "--window"),
        (("night.yaml", "--window", "23:00-07:00 Europe/Berln"), "did you mean Europe/Berlin?", "--window"),
        (("night.yaml", "--parallel", "0"), "parallel", "--parallel"),
        (
            ("night.yaml", "--attempts", "0"),
            "invalid value for '--attempts': Input should be greater",
            "perdure backlog start",
        ),
        (("night.yaml", "--land", "pile"), "land: Input should be 'branch' or 'stack'", "--land"),
        (("night.yaml", "--id", "A B"), "cannot be a delivery id", "--id"),
        (("night.yaml", "--gate", "lunch"), "there is no gate", "--gate"),
        (("night.yaml", "--issues", "bug"), "names no issues", "--issues"),
        (("--request", " "), "request: is empty", "--request"),
        (("night.yaml", "--request", "Do it"), "a request and items were given", "--request and night.yaml"),
        (("--issues", "label:bug", "--request", "Do it"), "a request and items were given", "--request and --issues"),
        (("night.yaml", "--yes"), "nothing to approve", "--yes"),
        (("--request", "x" * 70_000), "request: is 70000 bytes", "--request"),
    ],
)
def test_what_is_wrong_in_an_option_is_told_with_its_name(
    cli: Cli, args: tuple[str, ...], what: str, where: str
) -> None:
    (cli.cwd / "night.yaml").write_text(HEAD + API)
    ran = cli("backlog", "start", *args)
    assert ran.code == 2
    assert what in ran.err
    assert f"where: {where}" in ran.err


@pytest.mark.parametrize(
    ("said", "args", "where"), [("", ("--gate", "plan"), "--gate"), ("gates: [plan]\n", (), "night.yaml:1")]
)
def test_a_gate_that_never_comes_names_the_settings_that_select_its_phase(
    cli: Cli, said: str, args: tuple[str, ...], where: str
) -> None:
    settings = "config: |\n  version = 1\n  [delivery]\n  phases = ['build', 'test', 'review', 'ship']\n"
    (cli.cwd / "night.yaml").write_text(said + settings + HEAD + API)
    ran = cli("backlog", "start", "night.yaml", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: gates: nothing would wait at plan: phase plan is not selected",
        f"  where: {where}",
        "  fix: select it in [delivery] phases (night.yaml: config), or leave the gate out",
    ]


NIGHT = """\
version: 1
repository: .
window: 23:00-07:00
items:
  - id: api
    request: Add GET /durations
    depends_on: [no]

  - issue: 14
  - id: page
    request: |
      Show the durations
      on the start page
"""


def test_yaml_and_json_say_the_same() -> None:
    found = parse_backlog_file(NIGHT, "night.yaml").raw
    assert found["window"] == "23:00-07:00"
    assert found["items"][0]["depends_on"] == ["no"]
    assert found["items"][1] == {"issue": 14}
    for indent in (None, 2, "\t"):
        assert parse_backlog_file(json.dumps(found, indent=indent), "night.json").raw == found
    odd = {"a": "\U0001f600 \t \\ud83d / \x7f", "b": 'C:\\u0041 "x"'}
    assert parse_backlog_file(json.dumps(odd), "x").raw == odd
    assert parse_backlog_file('{"a": "x\\/y"}', "x").raw == {"a": "x/y"}


@pytest.mark.parametrize(
    ("said", "what", "where"),
    [
        ("items.0.depends_on: api, page, api", "depends_on: api, page, api", 'night.yaml:7 item "api"'),
        ("items.1.reqest: unknown field", "reqest: unknown field", "night.yaml:9 item #2"),
        ("items.2.request: is empty", "request: is empty", 'night.yaml:11 item "page"'),
        ("items.2: is twice", "is twice", 'night.yaml:10 item "page"'),
        ("window: never opens", "window: never opens", "night.yaml:3"),
        ("base: required field", "base: required field", "night.yaml:1"),
        ("a cycle: api, page", "a cycle: api, page", "night.yaml:1"),
        ("items.99.id: gone", "id: gone", "night.yaml:4 item #100"),
    ],
)
def test_what_is_refused_is_told_with_file_line_and_item(said: str, what: str, where: str) -> None:
    error = parse_backlog_file(NIGHT, "night.yaml").locate_error(InvalidRequest(said))
    assert (error.what, error.where) == (what, where)
    assert error.fix


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("items:\n  - id: a\n    id: b\n", "x:3", "id: is given twice"),
        ('{"items": [],\n "items": []}', "x:2", "items: is given twice"),
        ('{"items": [\n', "x:2", "not YAML"),
        ("- id: a\n", "x:1", "a backlog has fields"),
        ("", "x:1", "a backlog has fields"),
        ("a: &b 1\n", "x:1", "&names"),
    ],
)
def test_what_is_no_backlog_at_all_is_refused_with_its_line(text: str, where: str, what: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_backlog_file(text, "x")
    assert what in error.value.what
    assert error.value.where == where


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    large, odd = tmp_path / "large.yaml", tmp_path / "odd.yaml"
    large.write_text("#" * (BACKLOG_BYTES + 1))
    odd.write_bytes(b"a: \xff\n")
    for path in (large, odd, tmp_path / "gone.yaml", tmp_path):
        with pytest.raises(BadInput, match="cannot be read") as error:
            read_backlog_file(str(path))
        assert error.value.where == str(path)


def test_an_agent_that_an_option_names_counts_instead_of_the_files(tmp_path: Path) -> None:
    make_target(tmp_path / "calc.git")
    (tmp_path / "night.yaml").write_text("version: 1\nagent: codex\nitems:\n  - id: api\n    request: Add it\n")
    asked = {"file": str(tmp_path / "night.yaml"), "repo": str(tmp_path / "calc.git")}
    keys = {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    assert check_backlog(BacklogOptions(**asked), keys).request.agent == "codex"
    assert check_backlog(BacklogOptions(**asked, agent="claude-code"), keys).request.agent == "claude-code"


@pytest.mark.parametrize(
    ("agent", "has", "where"),
    [
        ("codex", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        ("gemini", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        ("claude-code", "OPENAI_API_KEY", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("built-in", "OPENAI_API_KEY", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
    ],
)
def test_the_key_that_is_needed_is_that_of_the_agent(agent: str, has: str, where: str) -> None:
    with pytest.raises(BadInput, match=f"there is no key for the model of {agent}") as error:
        check_key({has: "none"}, agent)
    assert error.value.where == where
    check_key({where.partition(" ")[0]: "none"}, agent)
    with pytest.raises(BadInput, match=r"no agent is called 'codecs' on this host .did you mean codex"):
        check_key({has: "none"}, "codecs")


def test_an_address_alone_is_no_key_and_any_will_do_where_it_needs_none() -> None:
    with pytest.raises(BadInput, match="there is no key for the model") as error:
        check_key({"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"})
    assert "export ANTHROPIC_API_KEY=… (where ANTHROPIC_BASE_URL needs none, any will do)" in str(error.value.fix)
    check_key({"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "none"})


def test_settings_that_stand_in_the_file_count_and_are_named(tmp_path: Path) -> None:
    make_target(tmp_path / "calc.git", {"perdure.toml": "version = 1\n[limits]\ntest_fixes = 3\n"})
    night, mine = tmp_path / "night.yaml", tmp_path / "mine.toml"
    items = "items:\n  - id: api\n    request: Add it\n"
    night.write_text("version: 1\nconfig: |\n  version = 1\n  [limits]\n  test_fixes = 1\n" + items)
    mine.write_text("version = 1\n[limits]\ntest_fixes = 2\n")
    for config, named, fixes in ((None, f"{night}: config", 1), (mine, f"{mine} (--config)", 2)):
        asked = BacklogOptions(file=str(night), repo=str(tmp_path / "calc.git"), config=config)
        taken = check_backlog(asked, {"ANTHROPIC_API_KEY": "none"}).stand_in
        assert taken.repository_config is not None
        assert (taken.file, taken.repository_config.limits.test_fixes) == (named, fixes)


NIGHT_OF_ATTACHED = """\
version: 1
parallel: 2
window: 23:00-07:00
items:
  - id: api
    request: Add it
"""


@pytest.mark.timeout(120)
async def test_options_of_a_backlog_that_is_there_are_named_as_not_counted(cli: Cli, server: str) -> None:
    there = Cli(cli.home, cli.cwd, {**cli.env, "TEMPORAL_ADDRESS": server})
    (cli.cwd / "night.yaml").write_text(NIGHT_OF_ATTACHED)

    async def typed(*args: str) -> Ran:
        ran: Ran = await asyncio.to_thread(there, "backlog", "start", "night.yaml", "--id", "win", "--detach", *args)
        assert ran.code == 0, ran
        return ran

    assert "2 at a time · begins 23:00-07:00" in (await typed()).out
    again = await typed("--parallel", "8", "--window", "00:00-23:59", "--budget", "5", "--gate", "plan")
    assert "2 at a time · begins 23:00-07:00" in again.out, "that of the one which is there"
    assert (
        "parallel 8 (it has 2), budget $5.00 (it has none), window 00:00-23:59 (it has 23:00-07:00), "
        "gate plan (it has none) did not count"
    ) in again.out.splitlines()
    same = await typed("--json")
    assert json.loads(same.out) == {"backlog_id": "win", "attached": True}
    assert "did not count" not in same.err


ID = "night/docs"


@pytest.mark.timeout(120)
async def test_what_waits_in_a_backlog_is_looked_at_and_decided_like_any_delivery(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit(ID)
        asked = await desk.asked(ID)
        assert f"perdure approve {ID}" in (await desk("show", ID)).out
        assert ID in (await desk("list", "--waiting")).out
        assert "no delivery night" not in (await desk("show", "night/d")).out
        assert (await desk("approve", ID, "--print")).out.splitlines()[0].startswith(f"# The plan of {ID}")
        for command in (("say", ID, "mind the old format"), ("hold", ID), ("resume", ID), ("budget", ID, "--add", "1")):
            assert (await desk(*command, "--json")).out
        for command in (("logs", ID), ("diff", ID), ("report", ID)):
            await desk(*command)
        await desk("reject", ID, "--note", "with types, please")
        desk.scene.replans.set()
        again = await desk.asked(ID, not_of=asked.target)
        assert f"next     perdure watch {ID}" in (await desk("approve", ID, "--of", again.target)).out
        assert json.loads((await desk("watch", ID, "--json")).out)["delivery_id"] == ID
