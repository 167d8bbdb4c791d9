"""A backlog that cannot be: refused with file, line and item before anything is started."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli

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
