"""How the suite runs: failures once more, missing programs named, signals heard, long tests shared out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.costs import shares
from tests.needs import NO_GROUP, missing, summary
from tests.processes import alive
from tests.waiting import until

ROOT = Path(__file__).parents[1]
TESTS = """
from pathlib import Path

def fails_once(name):
    runs = Path(name)
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert len(runs.read_text()) > 1

def test_a_port_is_free():
    fails_once("port")

def test_no_token_is_in_the_log():
    fails_once("log")
"""


@pytest.mark.parametrize(("chosen", "code"), [("port", 0), ("token", 1), ("port or token", 1)])
def test_a_failed_test_about_secrets_is_not_run_again_and_another_is(tmp_path: Path, chosen: str, code: int) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    first = [sys.executable, "-m", "pytest", "-q", "-k", chosen, "test_it.py"]
    assert subprocess.run(first, cwd=tmp_path, env=env, capture_output=True, timeout=60).returncode == 1
    again = [sys.executable, "-m", "tests.again"]
    ran = subprocess.run(again, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, ran.stdout
    if "token" in chosen:
        assert (tmp_path / "log").read_text() == "x", ran.stdout
        assert "not run again: test_it.py::test_no_token_is_in_the_log" in ran.stdout
    if "port" in chosen:
        assert (tmp_path / "port").read_text() == "xx"


def test_one_line_names_what_is_missing_how_many_tests_that_concerns_and_what_to_paste() -> None:
    assert summary(["Skipped: NEEDS chromium", "NEEDS node npm", "NEEDS node", "only root may mount a small disk"]) == (
        "LEFT OUT, tests that need a program: chromium (1), node (2), npm (1); "
        "to run them: sudo apt-get install -y chromium nodejs npm"
    )
    assert summary(["no keys here"]) == ""
    assert summary(["NEEDS claude"]).endswith("claude (1); to run them: make agents")
    assert summary([f"Skipped: {NO_GROUP}"] * 2).startswith(
        "LEFT OUT, tests of limits that the kernel holds (2); to run"
    )


def test_a_test_whose_program_is_not_here_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert missing("node", "npm") == "NEEDS node npm"
    marked = "tests/adapters/sandbox/test_sandbox_toolchain.py::test_node_tests_run_inside"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", marked]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout
    assert "LEFT OUT, tests that need a program: node (1)" in ran.stdout


IN_THE_BACKGROUND = """
import signal, subprocess, sys
ignored = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT]
for number in ignored:
    signal.signal(number, signal.SIG_IGN)
from tests.processes import as_from_a_terminal
as_from_a_terminal()
for number in ignored:
    signal.raise_signal(number)
heard = "import signal; print([signal.getsignal(n) is not signal.SIG_IGN for n in (1, 2, 3)])"
print(subprocess.run([sys.executable, "-c", heard], capture_output=True, text=True).stdout)
"""


def test_what_is_started_hears_the_terminal_though_the_suite_was_started_deaf_and_stays_so() -> None:
    command = [sys.executable, "-c", IN_THE_BACKGROUND]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["[True,", "True,", "True]"]), done


STARTS_A_SERVER = """
import time
from pathlib import Path
from perdure.adapters.system.home import Home
from tests.temporal_server import start_server

def test_it(tmp_path):
    Path("pid").write_text(str(start_server(Home(tmp_path / "home")).pid))
    time.sleep(600)
"""


async def test_a_killed_suite_leaves_no_temporal_server_behind(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STARTS_A_SERVER)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "made")]
    suite = subprocess.Popen([*command, "test_it.py"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    try:
        await until(lambda: pid.exists() and pid.read_text())
        server = psutil.Process(int(pid.read_text()))
        assert alive(server)
    finally:
        suite.kill()
        suite.wait()
    await until(lambda: not alive(server))


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 9))
def test_every_test_is_run_once(ranks: list[int], workers: int) -> None:
    assert sorted(shares(ranks, workers)) == list(range(len(ranks)))


def test_each_workers_piece_begins_with_its_part_of_the_long_ones_and_ends_with_neighbours() -> None:
    ranks = [2, 0, 2, 1, 2, 2, 0, 2, 1, 2, 2]
    order = shares(ranks, 2)
    assert [ranks[at] for at in order] == [0, 1, 2, 2, 2, 0, 1, 2, 2, 2, 2], "five, then six: as worksteal cuts them"
    assert order == [1, 3, 0, 2, 4, 6, 8, 5, 7, 9, 10]


def test_alone_the_long_ones_are_first() -> None:
    assert shares([2, 1, 0, 2], 1) == [2, 1, 0, 3]
