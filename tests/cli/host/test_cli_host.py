"""Help, `doctor`, `config`, `init`, `agents` and completion, by the real executable; and where no worker answers."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.adapters.sandbox.usage import gigabytes
from perdure.adapters.system.home import Home
from perdure.cli.app import run_command_line
from perdure.cli.host import doctor
from perdure.cli.look.follower import WATCH_LOST_S
from perdure.cli.look.watch import DeliveryWatcher
from perdure.local.connect import NO_WORKER, WORKER_RESTARTS, WORKER_STARTING, adapt_no_worker_error, no_worker_reason
from perdure.local.places import Places
from perdure.local.server import find_server
from perdure.models.errors import BadInput, NoWorker
from perdure.models.limits import WATCH_SILENCE_S
from tests.adapters.agents.preset_fixtures import preset, program
from tests.cli.conftest import Cli
from tests.engine import git
from tests.temporal_server import joined

COMMANDS = (
    *("demo", "init", "deliver", "run", "watch", "show", "list", "top", "diff", "logs", "events", "turns", "report"),
    *("compare", "verify", "pulls", "page", "ui", "backlog", "schedules"),
    *("approve", "reject", "answer", "budget", "say", "hold", "resume", "rewind", "fork", "retry", "cancel"),
    *("up", "down", "doctor", "agents", "gc", "config"),
)
ADVANCED = ("server", "worker", "address", "temporal", "rehearse")


def shown(help: str) -> set[str]:
    """The commands that a page of help names."""
    rows = [line.removeprefix("│ ") for line in help.splitlines() if line.startswith("│ ")]
    return {row.split(" ")[0] for row in rows} - {
        "",
        "--version",
        "--install-completion",
        "--show-completion",
        "--help",
        "--help-advanced",
    }


def test_help_names_every_command(cli: Cli) -> None:
    ran = cli("--help")
    assert (ran.code, shown(ran.out)) == (0, set(COMMANDS))
    assert not cli.home.exists()


def test_what_services_and_tests_are_made_of_is_on_a_page_of_its_own_and_still_works(cli: Cli) -> None:
    ran = cli("--help-advanced")
    assert (ran.code, shown(ran.out)) == (0, set(ADVANCED))
    assert all(cli(command, "--help").code == 0 for command in ADVANCED)
    assert cli(_PERDURE_COMPLETE="complete_bash", COMP_WORDS="perdure rehe", COMP_CWORD="1").out.split() == ["rehearse"]


@pytest.mark.parametrize("old", ["edit-plan", "treasury", "status"])
def test_a_command_that_is_not_there_is_refused_and_a_likely_one_named(cli: Cli, old: str) -> None:
    ran = cli(old)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: no such command '{old}'")
    assert ("Did you mean 'show'?" in ran.err) == (old == "status")


def test_help_loads_nothing_heavy(cli: Cli) -> None:
    loaded = cli.modules("--help")
    assert "perdure.cli.commands.start" in loaded
    assert not loaded & {"anthropic", "git", "temporalio", "pydantic", "aiohttp", "asyncio", "perdure.client"}


def test_a_group_without_a_command_shows_its_help(cli: Cli) -> None:
    ran = cli("server")
    assert ran.code == 2
    assert "start" in ran.out + ran.err
    assert "error" not in ran.err


def test_the_shell_completes_commands(cli: Cli) -> None:
    ran = cli(_PERDURE_COMPLETE="complete_bash", COMP_WORDS="perdure del", COMP_CWORD="1")
    assert ran.out.split() == ["deliver"]


def test_a_terminal_that_knows_no_marks_gets_letters_that_look_alike(cli: Cli) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # of a Python that begins with them
    command = [sys.executable, "-m", "perdure.cli", "doctor"]
    ran = subprocess.run(command, cwd=cli.cwd, env=cli.environment(**plain), capture_output=True, timeout=60)
    first = ran.stdout.decode("ascii").splitlines()[0]
    assert first.startswith("v git")
    assert "?" not in first


def test_version(cli: Cli) -> None:
    ran = cli("--version")
    assert (ran.code, ran.out.startswith("perdure ")) == (0, True)


def test_a_reader_that_goes_away_is_no_error(cli: Cli) -> None:
    script = f"{sys.executable} -m perdure.cli config | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", script], cwd=cli.cwd, env=cli.environment(), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode in (0, 141)
    assert not ran.stderr


def test_doctor_says_what_is_missing_and_what_to_do(cli: Cli) -> None:
    ran = cli("doctor", "--json", ANTHROPIC_API_KEY="", PERDURE_SANBOX="off")
    assert ran.code == 1
    found = {finding["name"]: finding for finding in json.loads(ran.out)}
    assert found["git"]["mark"] == "✓"
    assert found["key"]["mark"] == "✗"
    assert "export ANTHROPIC_API_KEY" in found["key"]["fix"]
    assert "did you mean PERDURE_SANDBOX" in found["settings"]["text"]
    assert found["Temporal"]["mark"] == "✓"
    assert not cli.home.exists(), "looking changes nothing"


def test_doctor_never_shows_a_key(cli: Cli) -> None:
    ran = cli("doctor")
    assert "ANTHROPIC_API_KEY set" in ran.out
    assert "not-a-key" not in ran.out + ran.err


def test_doctor_has_no_tick_for_a_models_address_where_nothing_listens(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        address = f"http://me:secret-of-mine@127.0.0.1:{port}/v1"
        [heard] = [
            one for one in json.loads(cli("doctor", "--json", ANTHROPIC_BASE_URL=address).out) if one["name"] == "key"
        ]
    assert heard["mark"] == doctor.OK
    closed = cli("doctor", "--json", ANTHROPIC_BASE_URL=address)
    [key] = [one for one in json.loads(closed.out) if one["name"] == "key"]
    assert (closed.code, key["mark"]) == (1, doctor.MISSING)
    assert f"no model answers at http://127.0.0.1:{port}: Connection refused" in key["text"]
    assert "ANTHROPIC_BASE_URL" in key["fix"]
    assert "secret-of-mine" not in closed.out


def test_doctor_outside_a_repository_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    ran = Cli(cli.home, tmp_path / "plain", cli.env)("doctor")
    assert "! repository here: this is not a git repository" in ran.out


def test_doctor_reports_a_home_that_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = Cli(tmp_path / "file" / "home", cli.cwd, cli.env)("doctor")
    assert ran.code == 1
    assert "✗ home" in ran.out
    assert "PERDURE_HOME is not writable" in ran.out


def test_doctor_leaves_no_directory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "a" / "b" / "home"))
    assert doctor.check_home()[0].mark == doctor.OK
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_how_large_the_home_is_and_from_a_share_of_the_disk_on_what_makes_it_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    (tmp_path / "file").write_bytes(b"x" * 200_000_000)
    (tmp_path / "second name").hardlink_to(tmp_path / "file")
    small = doctor.check_home()[0]
    assert (small.mark, small.fix) == (doctor.OK, "")
    assert ": 0.2 GB, 0." in small.text
    assert f" of the disk; its limit {gigabytes(shutil.disk_usage(tmp_path).total / 5)}; " in small.text
    (tmp_path / "perdure").mkdir()
    (tmp_path / "perdure" / "config.toml").write_text("[home]\ngigabytes = 0.1\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    large = doctor.check_home()[0]
    assert (large.mark, "perdure gc" in large.fix) == (doctor.NOTE, True)


def test_config_says_where_each_setting_comes_from(
    cli: Cli, edit_base: Callable[[str, str], None], tmp_path: Path
) -> None:
    edit_base("perdure.toml", "version = 1\n[limits]\ntest_fixes = 2\nbudget_usd = 1000\n")
    git(cli.cwd, "fetch", "-q")
    ran = cli("config", "--origin", "--json", PERDURE_REVIEW_FIXES="1")
    assert ran.code == 0, ran.err
    shown = json.loads(ran.out)
    assert shown["limits.test_fixes"] == {"value": 2, "origin": "perdure.toml on main"}
    assert shown["limits.budget_usd"] == {
        "value": 100.0,
        "origin": "perdure.toml on main (lowered to the host's limit)",
    }
    assert shown["limits.review_fixes"] == {"value": 1, "origin": "PERDURE_REVIEW_FIXES"}
    assert shown["limits.turns_per_step"]["origin"] == "default"
    own = tmp_path / "own.toml"
    own.write_text("version = 1\n[limits]\ntest_fixes = 3\n")
    told = cli("config", "--origin", "--config", str(own))
    assert any(line.split() == ["limits.test_fixes", "3", "--config"] for line in told.out.splitlines())


def test_a_partial_clones_perdure_toml_that_was_never_fetched_is_no_mistake(cli: Cli, tmp_path: Path) -> None:
    git(cli.cwd, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{cli.cwd}", "partial.git")
    ran = cli("config", "--repo", str(tmp_path / "partial.git"))
    assert (ran.code, "git mv" in ran.err) == (0, False), ran.err


def test_init_writes_a_file_that_was_tried_and_keeps_nothing_else(cli: Cli) -> None:
    (cli.cwd / "perdure.toml").unlink()
    before = set(cli.cwd.iterdir())
    ran = cli("init", "--dry-run")
    assert ran.out.startswith("# How Perdure works")
    assert set(cli.cwd.iterdir()) == before

    ran = cli("init")
    assert ran.code == 0, (ran.out, ran.err)
    assert "✓ test" in ran.out
    assert "git commit && git push, then:" in ran.out  # a delivery begins with what its origin has
    assert set(cli.cwd.iterdir()) - before == {cli.cwd / "perdure.toml"}
    assert not list((cli.home / "scratch").iterdir())

    again = cli("init")
    assert (again.code, "there already" in again.err) == (2, True)


@pytest.mark.parametrize("force", [False, True])
def test_init_never_writes_through_a_link(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, victim = tmp_path / "r", tmp_path / "victim"
    git(tmp_path, "init", "-q", str(repository))
    (repository / "perdure.toml").symlink_to(victim)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a link that a stranger has committed")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERDURE_SANDBOX", "off")
    assert run_command_line(["init", "--repo", str(repository), *["--force"][: int(force)]]) == (0 if force else 2)
    assert not victim.exists()
    assert (repository / "perdure.toml").is_symlink() is not force


def test_init_with_red_tests_says_so(cli: Cli) -> None:
    (cli.cwd / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    git(cli.cwd, "commit", "-qam", "break it")
    ran = cli("init", "--force")
    assert ran.code == 1
    assert "tests are red before anything was changed" in ran.out
    assert "AssertionError" in ran.out.partition("red before")[2]  # the command's own last lines
    assert 'perdure deliver "Make the tests green"' in ran.out


VERSION_BACKEND = """\
import subprocess
import zipfile

DESCRIBED = subprocess.check_output(["git", "describe", "--tags"], text=True).strip()
VERSION = DESCRIBED.replace("-", "+", 1).replace("-", ".")


def build_editable(directory, config_settings=None, metadata_directory=None):
    subprocess.run(["git", "config", "core.hooksPath", ".husky"], check=True)
    name = f"demo-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        info = f"demo-{VERSION}.dist-info"
        wheel.writestr("demo_version.py", f"VERSION = {VERSION!r}\\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: demo\\nVersion: {VERSION}\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
"""A build that asks git for its version, as setuptools-scm does, and sets hooks, as husky does; nothing is fetched."""


@pytest.mark.parametrize("shallow", [False, True])
def test_init_runs_a_setup_that_asks_git_for_its_version_as_a_delivery_does(
    cli: Cli, tmp_path: Path, shallow: bool
) -> None:
    here, project = tmp_path / "scm", '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    here.mkdir()
    git(here, "init", "-q")
    (here / "pyproject.toml").write_text(f'{project}[project]\nname = "demo"\ndynamic = ["version"]\n')
    (here / "backend.py").write_text(VERSION_BACKEND)
    test = "import unittest, demo_version\n\nclass T(unittest.TestCase):\n    def test_it(self):\n"
    (here / "test_version.py").write_text(f'{test}        assert demo_version.VERSION.startswith("1.2")\n')
    git(here, "add", "-A")
    git(here, "commit", "-qm", "first")
    git(here, "tag", "1.2")
    git(here, "commit", "-q", "--allow-empty", "-m", "second")
    if shallow:
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{here}", "clone")
        ran = cli("init", "--repo", str(tmp_path / "clone"))
        assert "! this checkout is shallow: older commits and their tags are missing" in ran.out
        assert ran.err.startswith("error: setup failed: exit code 1")
        return
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "✓ test       1 green" in ran.out
    assert "hooksPath" not in (here / ".git/config").read_text()


def test_init_of_a_monorepo_tries_each_part_in_its_own_directory_and_names_submodules(cli: Cli) -> None:
    for name in ("calc.py", "perdure.toml"):
        (cli.cwd / name).unlink(missing_ok=True)
    git(cli.cwd, "rm", "-rq", "--cached", ".")
    for path in cli.cwd.iterdir():
        if path.name != ".git":
            subprocess.run(["rm", "-rf", str(path)], check=True, timeout=60)
    (cli.cwd / "my tools" / "tests").mkdir(parents=True)
    check = "import unittest\n\nclass T(unittest.TestCase):\n    def test_here(self):\n        open('here')\n"
    (cli.cwd / "my tools" / "tests" / "test_here.py").write_text(check)
    (cli.cwd / "my tools" / "here").write_text("")
    (cli.cwd / "web").mkdir()
    (cli.cwd / "web" / "Makefile").write_text("test:\n\ttest -f Makefile\n")
    git(cli.cwd, "add", "-A")
    git(cli.cwd, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib/shared")
    git(cli.cwd, "commit", "-qm", "two parts")
    ran = cli("init")
    assert ran.code == 0, (ran.out, ran.err)
    assert "✓ test" in ran.out
    assert "! submodules lib/shared: empty in a delivery" in ran.out
    assert "git submodule update --init --recursive" in ran.out
    written = tomllib.loads((cli.cwd / "perdure.toml").read_text())
    assert {(test["directory"], test["name"]) for test in written["test"]} == {
        ("my tools", "my tools: unittest"),
        ("web", "web: make test"),
    }


def test_init_looks_for_no_tests_inside_a_submodule(cli: Cli, tmp_path: Path) -> None:
    """Their files are there in the checkout, and not in a delivery: such tests would be red for ever."""
    here = tmp_path / "with a part of others"
    (here / "shared").mkdir(parents=True)
    (here / "shared" / "Makefile").write_text("test:\n\ttrue\n")
    git(here, "init", "-q")
    git(here, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},shared")
    git(here, "commit", "-qm", "first")
    ran = cli("init", "--repo", str(here), "--dry-run")
    assert ran.code == 0, ran.err
    assert "shared" not in ran.out


def test_where_init_finds_no_commit_it_names_commands_that_make_one(cli: Cli, tmp_path: Path) -> None:
    here = tmp_path / "new"
    here.mkdir()
    for what in ("this is not a git repository", "this repository has no commit yet"):
        ran = cli("init", "--repo", str(here))
        assert ran.code == 2
        assert ran.err.startswith(f"error: {what}\n")
        command = ran.err.rpartition("fix: ")[2]
        if "not a git" in what:
            git(here, "init", "-q")
        else:
            config = ("-c", "user.name=x", "-c", "user.email=x@x")
            assert command.strip() == "git add -A && git commit --allow-empty -m first"
            git(here, "add", "-A")
            git(here, *config, "commit", "-q", "--allow-empty", "-m", "first")
    assert "git commit, then:" in cli("init", "--repo", str(here)).out  # there is nowhere to push to


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("PERDURE_SLOTS", "x", "PERDURE_SLOTS=x"),
        ("PERDURE_WORKER_ROLE", "publisher", "a publisher needs a queue of its own"),
        ("TEMPORAL_ADDRESS", "127.0.0.1:1", "Temporal cannot be reached"),
    ],
)
def test_a_worker_that_cannot_begin_says_why_without_a_traceback(
    cli: Cli, variable: str, value: str, says: str
) -> None:
    ran = cli("worker", **{variable: value})
    assert ran.code == 1
    assert f"error: {says}" in ran.err
    assert "  fix: " in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("command", [["pulls", "7"], ["rehearse", "absent.toml"]])
def test_what_does_not_exist_is_told_in_the_same_form(cli: Cli, command: list[str]) -> None:
    ran = cli(*command)
    assert ran.code in (1, 2)
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_a_home_whose_supervisor_lives_needs_no_worker_from_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    watcher = DeliveryWatcher(None, None, reporter=object())  # type: ignore[arg-type]
    error = NoWorker("no worker answers", where="d", consequence="the work goes on then")
    assert no_worker_reason() == watcher._silence_reason(None, WATCH_SILENCE_S + 1) == NO_WORKER
    assert adapt_no_worker_error(error).fix == "perdure up --detach starts one; the work goes on then"
    with Places(Home(tmp_path)).supervisor_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert no_worker_reason() == WORKER_STARTING
        assert adapt_no_worker_error(error).fix == f"{WORKER_RESTARTS}; the work goes on then"
        assert adapt_no_worker_error(NoWorker("no worker answers")).fix == WORKER_RESTARTS
        assert adapt_no_worker_error(other := BadInput("no", fix="perdure up --detach")) is other
        assert watcher._silence_reason(None, WATCH_SILENCE_S + 1) == "", "a takeover takes no longer than that"
        assert watcher._silence_reason(None, WATCH_LOST_S + 1) == WORKER_STARTING
        monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
        elsewhere = "no worker is running: perdure worker starts one"
        assert no_worker_reason() == elsewhere, "those workers are others"
    assert no_worker_reason() == watcher._silence_reason(None, WATCH_SILENCE_S + 1) == elsewhere
    assert adapt_no_worker_error(NoWorker("no worker answers")).fix == "perdure worker starts one"


def able(cli: Cli, tmp_path: Path, **env: str) -> dict[str, str]:
    """Variables of a host that has two presets of its own, one of them installed, and one that is wrong."""
    own, programs = tmp_path / "config" / "perdure" / "agents", tmp_path / "bin"
    own.mkdir(parents=True)
    program(programs, "here", "echo here 3.2.1")
    preset(own, "here", "here")
    preset(own, "gone", "gone-program")
    (own / "wrong.toml").write_text("wire = 1\n")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": f"{programs}:{os.environ['PATH']}", **env}


def test_agents_are_listed_with_what_each_can_do(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path)
    ran = cli("agents", "--json", **env)
    found = {one["name"]: one for one in json.loads(ran.out)}
    assert ran.code == 0
    assert next(iter(found)) == "built-in"
    assert {"claude-code", "codex", "here", "gone", "wrong"} < set(found)
    assert (found["here"]["state"], found["here"]["version"]) == ("installed, 3.2.1", "3.2.1")
    assert found["here"]["abilities"] == "resume, answers asked, reads only"
    assert (found["gone"]["state"], found["gone"]["fix"]) == (
        "gone-program is not installed, or not on PATH",
        "get it",
    )
    assert found["wrong"]["state"].startswith("wrong: ")
    assert len({tuple(one) for one in found.values()}) == 1, "the same fields in the same order"
    lines = cli("agents", **env).out.splitlines()
    assert [line.split()[0] for line in lines[: len(found)]] == list(found)
    assert "gone: get it" in lines


def test_doctor_names_the_agents_that_are_here_and_those_that_settings_name_in_vain(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path, PERDURE_AGENT="gone")
    found = {
        finding["text"]: finding
        for finding in json.loads(cli("doctor", "--json", **env).out)
        if finding["name"] == "agents"
    }
    assert found["here 3.2.1"]["mark"] == "✓"
    gone = found["gone: gone-program is not installed, or not on PATH"]
    assert (gone["mark"], gone["fix"]) == ("✗", "get it")
    assert [one["mark"] for text, one in found.items() if text.startswith("wrong: ")] == ["!"]


def test_doctor_says_that_nobody_has_the_name_in_perdure_agent(cli: Cli, tmp_path: Path) -> None:
    env = able(cli, tmp_path, PERDURE_AGENT="clade-code")
    found = [one for one in json.loads(cli("doctor", "--json", **env).out) if one["name"] == "agents"]
    assert (found[0]["mark"], found[0]["text"]) == ("✗", "no agent is called 'clade-code'")


async def test_programs_are_told_where_the_server_listens(cli: Cli) -> None:
    async with joined(Home(cli.home)):
        server = await find_server(Home(cli.home))
        assert server is not None
        ran = cli("address")
        assert (ran.code, ran.out, ran.err) == (0, f"{server.address}\n", "")
    elsewhere = cli("address", TEMPORAL_ADDRESS="temporal.example.com:7233")
    assert (elsewhere.code, elsewhere.out) == (0, "temporal.example.com:7233\n")
