"""How a command fails: three short lines, exit codes, nothing started; and which delivery is meant."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.app import BROKEN_PIPE, INTERRUPTED, failure_lines, print_failure, run_command_line
from perdure.cli.screen import PLAIN_ERRORS, as_json
from perdure.cli.session import match_id_prefix
from perdure.client.server.view import exact_id_query
from perdure.models.errors import BadInput, InvalidRequest, PerdureError, TemporalUnreachable
from perdure.render.formatting import align_columns, time_ago
from tests.cli.conftest import ROOT, Cli, Ran
from tests.cli.decision_fixtures import Desk, desk
from tests.engine import git
from tests.waiting import patient

__all__ = ["desk"]

IDS = ["calc-add-sub-1a2b", "calc-add-mul-3c4d", "durations-parse-3f9c"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PerdureError("x"), 1),
        (BadInput("x"), 2),
        (InvalidRequest("x"), 2),
        (TemporalUnreachable("x"), 3),
        (KeyboardInterrupt(), INTERRUPTED),
        (BrokenPipeError(), BROKEN_PIPE),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert print_failure(error, as_json=False, stream=io.StringIO()) == code


def test_an_empty_line_is_left_out() -> None:
    assert failure_lines(PerdureError("a", where="b", fix="c")) == ["error: a", "  where: b", "  fix: c"]
    assert failure_lines(PerdureError("a")) == ["error: a"]


def test_a_surprise_is_one_line_and_a_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    said = io.StringIO()
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("bottom\nof the barrel")
    assert print_failure(caught.value, as_json=False, stream=said) == 1
    log = tmp_path / "logs" / "cli.log"
    assert said.getvalue().splitlines() == [
        "error: this should not have happened: RuntimeError: bottom",
        f"  fix: the whole story is in {log}",
    ]
    assert "of the barrel" in log.read_text()
    assert "Traceback" in log.read_text()


def test_the_traceback_is_shown_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    said = io.StringIO()
    print_failure(BadInput("x"), as_json=False, stream=said)
    assert "BadInput" in said.getvalue()


def test_a_usage_error_is_told_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["show", "--json", "--nope"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert told["where"] == "perdure show"


def test_json_after_two_dashes_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["deliver", "--phases", "ship", "--", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_unique_beginning_names_a_delivery() -> None:
    assert match_id_prefix("dur", IDS) == "durations-parse-3f9c"
    assert match_id_prefix("calc-add-s", IDS) == "calc-add-sub-1a2b"
    assert match_id_prefix("calc-add-sub-1a2b", [*IDS, "calc-add-sub-1a2b-2"]) == "calc-add-sub-1a2b"
    assert match_id_prefix("dur", [*IDS, *IDS]) == "durations-parse-3f9c"


def test_no_id_can_break_the_query_it_is_looked_up_with() -> None:
    assert exact_id_query("calc-add") == "WorkflowId = 'calc-add'"
    assert exact_id_query("a' OR \\") == r"WorkflowId = 'a\' OR \\'"


def test_an_ambiguous_beginning_names_the_candidates() -> None:
    with pytest.raises(BadInput, match="2 deliveries begin with calc") as caught:
        match_id_prefix("calc", IDS)
    assert "calc-add-mul-3c4d, calc-add-sub-1a2b" in caught.value.where


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(BadInput) as caught:
        match_id_prefix("duration-parse-3f9c", IDS)
    assert caught.value.fix == "did you mean durations-parse-3f9c?"


def test_columns_are_as_wide_as_they_need_to_be() -> None:
    assert align_columns([("a", "b"), ("long", "c\nd")], 80) == ["a     b", "long  c d"]
    assert align_columns([("a", "x" * 100)], 30) == ["a  " + "x" * 26 + "…"]


def test_ages_are_round() -> None:
    assert [time_ago(seconds) for seconds in (5, 90, 7300, 200_000)] == ["just now", "1 min ago", "2 h ago", "2 d ago"]


def test_what_is_no_text_is_refused_and_can_be_logged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    assert run_command_line(["deliver", "caf\udce9"]) == 2
    assert r"an argument is not UTF-8 text: 'caf\xe9'" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["perdure", "show", "\udcff"])
    assert print_failure(RuntimeError("x"), as_json=False, stream=io.StringIO()) == 1
    assert r"show \udcff" in (tmp_path / "logs" / "cli.log").read_text()


@pytest.mark.parametrize("command", [["pulls", "--repo"], ["report", "--html"], ["demo", "--yes", "--keep"]])
def test_a_user_whom_nobody_knows_is_part_of_a_name(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~no body").mkdir()
    (tmp_path / "~no body" / "x").mkdir()
    (tmp_path / "~no body" / "x" / "y").touch()
    assert run_command_line([*command, "~no body/x"]) == 2, capsys.readouterr().err


def test_a_home_of_a_user_whom_nobody_knows_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", "~nobody here/x")
    assert run_command_line(["show"]) == 2
    assert "where: PERDURE_HOME ~nobody here/x" in capsys.readouterr().err


def test_a_full_disk_and_a_directory_that_is_gone_are_no_surprise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    with pytest.raises(OSError, match="No space") as full, open("/dev/full", "w") as file:
        print("x", file=file, flush=True)
    assert print_failure(full.value, as_json=False, stream=said) == 1
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as nowhere:
        Path.cwd()
    assert print_failure(nowhere.value, as_json=False, stream=said) == 2
    assert "should not have happened" not in said.getvalue()


def test_days_beyond_all_time_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["gc", "--days", "1000000000"]) == 2
    assert "--days" in capsys.readouterr().err


def test_json_stays_json_on_a_stream_that_knows_no_such_quotation_marks() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors=PLAIN_ERRORS, write_through=True)
    print_failure(BadInput("say “hi” – now"), as_json=True, stream=stream)
    stream.seek(0)
    assert json.load(stream)["error"] == "say “hi” – now"
    assert json.loads(as_json('{"a": "“"}', stream)) == {"a": "“"}


@pytest.mark.parametrize(("closed", "code"), [("<&-", 2), (">&-", 0), ("2>&-", 2)])
def test_a_closed_stream_is_empty_or_swallows_what_is_said(closed: str, code: int, tmp_path: Path) -> None:
    command = "--version" if closed == ">&-" else "say x -"
    script = f'"{sys.executable}" -m perdure.cli {command} {closed}'
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (ran.returncode, "Traceback" in ran.stderr + ran.stdout) == (code, False), ran


def refused(cli: Cli, *args: str, says: str, fix: str = "", code: int = 2, stdin: str = "", **env: str) -> Ran:
    """The command fails in the promised form and leaves no trace."""
    ran = cli(*args, stdin=stdin, **env)
    assert ran.code == code, (ran.out, ran.err)
    lines = ran.err.splitlines()
    assert re.fullmatch(r"error: .+", lines[0]), ran.err
    assert [line.partition(":")[0] for line in lines[1:]] in (["  where", "  fix"], ["  where"], ["  fix"]), ran.err
    assert re.search(says, lines[0]), ran.err
    assert re.search(fix, lines[-1]), ran.err
    assert not ran.out
    assert not cli.home.exists() or not list(cli.home.iterdir()), "something was left behind"
    return ran


@pytest.fixture
def nowhere(tmp_path: Path) -> Cli:
    """In a directory that is no repository: for what is refused before one is looked at."""
    (tmp_path / "nowhere").mkdir()
    return Cli(tmp_path / "home", tmp_path / "nowhere", {"ANTHROPIC_API_KEY": "not-a-key"})


@pytest.mark.parametrize("command", ["doctor", "deliver Add", "up --detach"])
def test_where_git_is_missing_it_is_named_and_nothing_is_started(cli: Cli, tmp_path: Path, command: str) -> None:
    process = cli.start(*command.split(), PATH=str(tmp_path))
    out, err = process.communicate(timeout=patient(60))
    fix = "install git, or put its directory on the PATH"
    assert (process.returncode, out) == (2, "")
    assert err.splitlines() == ["error: git cannot be run", f"  where: PATH={tmp_path}", f"  fix: {fix}"]


def test_a_directory_that_is_no_repository(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    refused(cli, "deliver", "x", "--repo", str(tmp_path / "plain"), says="not a git repository", fix="git init")


def test_a_path_that_does_not_exist(cli: Cli, tmp_path: Path) -> None:
    refused(cli, "deliver", "x", "--repo", str(tmp_path / "absent"), says="there is no")


def test_an_origin_that_cannot_be_reached(cli: Cli, origin: Path) -> None:
    origin.rename(origin.with_name("moved.git"))
    refused(cli, "deliver", "x", says="origin of this repository cannot be reached", fix="git ls-remote")


def test_a_repository_without_a_commit_whose_checkout_has_files(cli: Cli, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty")], check=True, timeout=60)
    (tmp_path / "empty" / "mine.py").write_text("x = 1\n")
    refused(
        cli, "deliver", "x", "--repo", str(tmp_path / "empty"), says="1 uncommitted file", fix="git commit -m first"
    )


def test_an_unknown_base_branch_names_the_nearest(cli: Cli) -> None:
    refused(cli, "deliver", "x", "--base", "mian", says="no branch 'mian'", fix="did you mean main")


def test_an_unknown_branch_to_work_on_names_the_nearest(cli: Cli, origin: Path) -> None:
    git(origin, "branch", "topic", "main")
    refused(cli, "deliver", "x", "--branch", "topik", says="no branch 'topik'", fix="did you mean --branch topic")


@pytest.mark.parametrize(
    ("repository", "says"),
    [
        ("ext::sh -c 'touch owned'", "ext:: names a program"),
        ("--upload-pack=touch owned", "starts with a dash"),
        ("ssh://-oProxyCommand=touch/x", "starts with a dash"),
        ("https://me:secret@localhost/x.git", "carries a password"),
    ],
)
def test_a_repository_that_would_run_a_program_or_leak_a_secret(cli: Cli, repository: str, says: str) -> None:
    ran = refused(cli, "deliver", "x", f"--repo={repository}", says=says)
    assert not (cli.cwd / "owned").exists()
    assert "secret" not in ran.err


@pytest.mark.parametrize("option", ["--base", "--branch"])
def test_a_branch_name_with_a_leading_dash(cli: Cli, option: str) -> None:
    refused(cli, "deliver", "x", f"{option}=--output=owned", says="no branch")
    assert not (cli.cwd / "owned").exists()


@pytest.mark.parametrize("id", ["-x", "../x", "Ünder", "a" * 81, ""])
def test_an_id_that_cannot_be_a_name(nowhere: Cli, id: str) -> None:
    refused(nowhere, "deliver", "x", f"--id={id}", says="cannot be a delivery id", fix="--id ")


def test_no_request(nowhere: Cli) -> None:
    refused(nowhere, "deliver", says="no request")


def test_a_request_that_is_empty(nowhere: Cli) -> None:
    refused(nowhere, "deliver", " \n ", says="request is empty")
    refused(nowhere, "deliver", "--request", "-", stdin="\n", says="request is empty")


def test_a_request_given_twice(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", "--request", "y", says="given twice")


def test_a_request_over_64_kib(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "--request", "-", stdin="x" * (64 * 1024 + 1), says="longer than 64 KiB")
    refused(nowhere, "deliver", "ä" * (33 * 1024), says="longer than 64 KiB")


def test_a_request_of_a_backlog_is_read_whole(nowhere: Cli) -> None:
    too_long = "x" * (64 * 1024 + 1)
    refused(
        nowhere,
        "backlog",
        "start",
        "--request",
        "-",
        stdin=too_long,
        says="request: is 65537 bytes",
        fix="",
    )


def test_no_key_and_no_rehearsal(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", says="no key", fix="ANTHROPIC_API_KEY.*perdure demo", ANTHROPIC_API_KEY="")


def test_an_unknown_phase_names_the_nearest(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", "--phases", "plan,biuld", says="unknown phase 'biuld'", fix="did you mean build")


@pytest.mark.parametrize("phases", ["ship", "test", "plan,review", ","])
def test_phases_that_cannot_stand_alone(nowhere: Cli, phases: str) -> None:
    refused(nowhere, "deliver", "x", "--phases", phases, says="needs something to work on|no phase is selected")


def test_configured_phases_that_cannot_stand_alone(cli: Cli, edit_base: Callable[[str, str], None]) -> None:
    edit_base("perdure.toml", 'version = 1\n[delivery]\nphases = ["ship"]\n')
    refused(cli, "deliver", "x", says="ship needs something to work on")


def test_a_bad_perdure_toml_on_the_base_branch(cli: Cli, edit_base: Callable[[str, str], None]) -> None:
    edit_base("perdure.toml", "version = 1\n[limits]\ntset_fixes = 2\n")
    ran = refused(cli, "deliver", "x", says=r"unknown key tset_fixes \(did you mean test_fixes\?\)")
    assert "perdure.toml on main:3 [limits] tset_fixes" in ran.err


def test_a_bad_file_given_with_config(nowhere: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("version = 1\n[limits]\ntest_fixes = 99\n")
    ran = refused(nowhere, "deliver", "x", "--config", str(file), says="test_fixes is 99, allowed is 0 to 10")
    assert f"{file}:3 [limits] test_fixes" in ran.err
    file.write_text("version = \n")
    refused(nowhere, "deliver", "x", "--config", str(file), says="not valid TOML")
    refused(nowhere, "deliver", "x", "--config", str(tmp_path / "absent.toml"), says="cannot be read")


def test_a_bad_variable(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", PERDURE_BUDGET_USD="lots", says="PERDURE_BUDGET_USD=lots")


def test_words_without_quotes_are_told_to_be_put_in_quotes(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "Fix", "the", "bug", says="the bug", fix='put the words in quotes: perdure deliver "…"')
    refused(nowhere, "say", "calc-1", "mind", "the", "sign", says="the sign", fix='quotes: perdure say ID "…"')
    refused(nowhere, "show", "calc-1", "calc-2", says="calc-2", fix="see perdure show --help")


@pytest.mark.parametrize(("option", "value"), [("--budget", "inf"), ("--model", "")])
def test_a_value_that_the_request_cannot_take_names_its_option(cli: Cli, option: str, value: str) -> None:
    ran = refused(cli, "deliver", "x", option, value, says="Input should|at least", fix="see perdure deliver --help")
    assert f"  where: {option}" in ran.err


def test_a_repository_whose_path_is_too_long_names_its_option(nowhere: Cli, tmp_path: Path) -> None:
    repository = tmp_path.joinpath(*["d" * 200] * 11)
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    ran = refused(nowhere, "deliver", "x", "--repo", str(repository), says=r"is \d+ bytes, at most 2048 fit")
    assert "  where: --repo\n" in ran.err


def test_a_budget_that_is_nothing(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", "--budget", "-1", says="--budget")


@pytest.mark.parametrize(("count", "says"), [("0", "greater than or equal to 1"), ("100", "less than or equal to 5")])
def test_attempts_at_a_plan_are_one_to_five(
    cli: Cli, edit_base: Callable[[str, str], None], count: str, says: str
) -> None:
    refused(cli, "deliver", "x", "--attempts", count, says=f"'--attempts'.*{says}")
    edit_base("perdure.toml", f"version = 1\n[delivery]\nattempts = {count}\n")
    refused(cli, "deliver", "x", says=f"attempts is {count}, allowed is 1 to 5", fix="set attempts to 1 to 5")


def test_an_unknown_option_and_an_unknown_command_name_the_nearest(nowhere: Cli) -> None:
    refused(nowhere, "deliver", "x", "--modl", "y", says="--modl .*--model", fix="perdure deliver --help")
    refused(nowhere, "delivr", says="'delivr'.*'deliver'", fix="perdure --help")


def test_a_home_that_is_not_writable(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = Cli(tmp_path / "file" / "home", cli.cwd, cli.env)
    refused(blocked, "deliver", "x", says="PERDURE_HOME is not writable", fix="PERDURE_HOME")


def test_a_damaged_database_says_how_to_set_it_aside(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "temporal.db").write_bytes(b"not a database" * 1000)
    ran = cli("deliver", "x")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 3
    assert "mv " in ran.err
    assert "lost are the list and the history of deliveries" in ran.err
    assert (cli.home / "temporal.db").exists()


def test_a_port_that_is_taken(nowhere: Cli) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(nowhere, "server", "start", "--port", str(port), says=f"port {port} is taken", fix="leave --port out")


def test_windows_says_wsl2(nowhere: Cli) -> None:
    """As far as it can be shown elsewhere: without any of the modules that Windows does not have."""
    script = (
        "import sys, typer; sys.platform = 'win32'\n"
        "for name in ('fcntl', 'termios', 'tty', 'resource', 'pwd', 'grp'): sys.modules[name] = None\n"
        "from perdure.cli.app import run_command_line; sys.exit(run_command_line(['deliver', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=nowhere.cwd, env=nowhere.environment(), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: Perdure does not run on Windows itself\n  fix: use WSL2")


def test_an_unreachable_temporal_server_is_exit_3(cli: Cli) -> None:
    away = "127.0.0.1:1"
    refused(cli, "deliver", "x", says="Connection refused$", fix="TEMPORAL_ADDRESS", code=3, TEMPORAL_ADDRESS=away)
    refused(cli, "show", "x", says="Temporal", fix="TEMPORAL_ADDRESS", code=3, TEMPORAL_ADDRESS=away)


@pytest.mark.parametrize(
    "command", [["show"], ["list"], ["watch"], ["cancel", "x"], ["logs"], ["server", "status"], ["address"]]
)
def test_a_server_that_does_not_run_is_exit_3_and_is_not_started(nowhere: Cli, command: list[str]) -> None:
    refused(nowhere, *command, says="not running", fix="perdure up --detach", code=3)


def test_for_a_program_an_error_is_one_object(nowhere: Cli) -> None:
    ran = nowhere("deliver", "x", "--phases", "ship", "--json")
    assert ran.code == 2
    assert not ran.out
    told = json.loads(ran.err)
    assert told.keys() == {"error", "where", "fix", "exit_code"}
    assert told["exit_code"] == 2


def test_the_key_is_not_needed_here_when_the_workers_are_elsewhere(cli: Cli) -> None:
    ran = cli("deliver", "x", TEMPORAL_ADDRESS="127.0.0.1:1", ANTHROPIC_API_KEY="")
    assert (ran.code, "key" in ran.err) == (3, False)


@pytest.mark.timeout(120)
async def test_what_waits_is_on_top_and_the_newest_by_start_is_meant_where_none_is_named(desk: Desk) -> None:
    async with desk.worker():
        for id in ("older-one", "newer-one"):
            await desk.submit(id)
            await desk.asked(id)
        await desk("approve", "newer-one")
        await desk.result("newer-one")

        async def listed() -> bool:
            found = {one["delivery_id"]: one for one in json.loads((await desk("list", "--json")).out)}
            return bool(found["newer-one"]["closed"] and found["older-one"]["asked"])

        await desk.until(listed)
        lines = (await desk("list")).out.splitlines()
        top, _, below = "\n".join(lines).partition("\n\n")
        heading, waiting, hint = top.splitlines()
        assert heading.split()[:2] == ["title", "delivery"]
        assert "  older-one  " in waiting
        assert hint.startswith("perdure ")
        assert "  newer-one  " in below.splitlines()[1]
        assert "older-one" not in below
        for command in (("show",), ("watch",), ("show", "@last")):
            assert "Completed" in (await desk(*command)).out, command
        assert "newer-one has changed nothing yet" in (await desk("diff")).err
        desk.scene.log = "── the log\n"
        assert (await desk("logs")).out == "── the log\n"
        assert "newer-one has ended" in await desk.refused("hold")
        await desk("cancel", "older-one")
