"""How a command fails: forms and exit codes; and which delivery an id means."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.app import BROKEN_PIPE, INTERRUPTED, failure_lines, print_failure, run_command_line
from perdure.cli.screen import PLAIN_ERRORS, as_json
from perdure.cli.session import exact_id_query, match_id_prefix
from perdure.models.errors import BadInput, InvalidRequest, PerdureError, TemporalUnreachable
from perdure.render.formatting import align_columns, time_ago
from tests.cli.conftest import ROOT

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


def test_windows_says_wsl2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert run_command_line(["list"]) == 2
    assert "WSL2" in capsys.readouterr().err


def test_a_unique_beginning_names_a_delivery() -> None:
    assert match_id_prefix("dur", IDS) == "durations-parse-3f9c"
    assert match_id_prefix("calc-add-s", IDS) == "calc-add-sub-1a2b"
    assert match_id_prefix("calc-add-sub-1a2b", [*IDS, "calc-add-sub-1a2b-2"]) == "calc-add-sub-1a2b"
    assert match_id_prefix("dur", [*IDS, *IDS]) == "durations-parse-3f9c"


def test_no_id_can_break_the_query_it_is_looked_up_with() -> None:
    assert exact_id_query("calc-add") == "WorkflowId = 'calc-add'"
    assert [exact_id_query(text) for text in ("a'", "a\\")] == ["", ""]


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
