"""`perdure init` tries what it proposes: what fails is replaced or left out, and why tests are red is said."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from perdure.cli.host.red_reasons import explain_red
from perdure.models.checks.report import CommandResult, TestCase
from tests.cli.conftest import Cli
from tests.engine import git

UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"


def repository(where: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
        (where / name).chmod(0o755 if text.startswith("#!") else 0o644)
    git(where, "init", "-q")
    git(where, "add", "-A")
    git(where, "commit", "-qm", "first")
    return where


def test_what_maintainers_wrote_for_another_system_is_left_out_and_a_command_that_runs_is_found(
    cli: Cli, tmp_path: Path
) -> None:
    tox = "[testenv]\ndeps = absent @ file:///absent\ncommands = python run_tests.py --all\n"
    here = repository(
        tmp_path / "r",
        {"tox.ini": tox, "run_tests.py": "raise SystemExit('needs a display')\n", "tests/test_x.py": UNITTEST},
    )
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "! left out   .venv/bin/python -m pip install" in ran.out
    assert "run_tests.py --all: exit code 1; instead: .venv/bin/python -m unittest discover -s tests" in ran.out
    written = tomllib.loads((here / "perdure.toml").read_text())
    assert written["setup"]["commands"] == ["python3 -m venv .venv"]
    assert [test["command"] for test in written["test"]] == [".venv/bin/python -m unittest discover -s tests"]


def test_tests_outside_of_the_test_side_are_written_down_and_pointers_are_named(cli: Cli, tmp_path: Path) -> None:
    loading = "import unittest\nimport calc.suite\n\ndef load_tests(loader, tests, pattern):\n"
    here = repository(
        tmp_path / "r",
        {
            "calc/__init__.py": "import json\n",
            "calc/suite.py": UNITTEST,
            "tests/test_all.py": f"{loading}    return loader.loadTestsFromModule(calc.suite)\n",
            "tests/__init__.py": "",
            ".gitattributes": "*.bin filter=lfs\n",
            "a.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        },
    )
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "! files      git-lfs pointers, for filters are not run: a.bin" in ran.out
    assert tomllib.loads((here / "perdure.toml").read_text())["tests"]["side"] == ["calc/suite.py"]


def test_init_says_which_variable_is_missing(cli: Cli, tmp_path: Path) -> None:
    test = UNITTEST.replace("pass", "import os; os.environ['SHOP_DATABASE']")
    ran = cli("init", "--repo", str(repository(tmp_path / "r", {"tests/test_x.py": test})))
    assert ran.code == 1
    assert 'why   SHOP_DATABASE is not set: write "SHOP_DATABASE=… python3 -m unittest' in ran.out


def test_init_says_that_the_commit_itself_is_red(cli: Cli, tmp_path: Path) -> None:
    test = UNITTEST.replace("pass", "self.fail()")
    ran = cli("init", "--repo", str(repository(tmp_path / "r", {"tests/test_x.py": test})))
    assert "why   it is red where setup ran, with network, too: HEAD itself is red" in ran.out


@pytest.mark.parametrize(
    ("output", "green_with_network", "says"),
    [
        ("Ran 0 tests in 0.0s\n\nNO TESTS RAN", False, "no test ran"),
        ("django...ImproperlyConfigured: Set the DATABASE_URL environment variable", False, "DATABASE_URL is not set"),
        ("run.sh: line 3: API_TOKEN: unbound variable", False, "API_TOKEN is not set"),
        ("Error: missing environment variable `PORT_A`", False, "PORT_A is not set"),
        ("  File os.py\n    value = os.environ[key]\nKeyError: 'SHOP_X'", False, "SHOP_X is not set"),
        (
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            True,
            "and with network they pass (socket",
        ),
        ("Error: getaddrinfo EAI_AGAIN example.org", False, "with network they are red too"),
        ("fails offline in its own words", True, "with network they pass: let"),
        ("for a in getaddrinfo(b):\nurlopen error: Name or service not known", False, "network (urlopen error: Name"),
        ("AssertionError: 1 != 2\nTHE END is required", False, "HEAD itself is red"),
    ],
)
def test_the_reason_fits_what_was_printed(output: str, green_with_network: bool, says: str) -> None:
    case = TestCase(name="t", outcome="failed", message=output)
    result = CommandResult(name="unit", command="make test", verdict="failed", reason="exit code 1")
    if "TESTS RAN" in output:
        result = result.model_copy(update={"tail": output})
    else:
        result = result.model_copy(update={"cases": (case,)})
    assert says in explain_red(result, green_with_network, green_with_network)


def test_a_command_that_passes_where_setup_ran_is_not_said_to_need_the_network() -> None:
    result = CommandResult(name="unit", command="make test", verdict="failed", reason="exit code 1")
    assert explain_red(result, True, False).startswith("it passes where setup ran")


def test_a_runner_that_fails_when_it_is_asked_for_a_report_is_not_asked(cli: Cli, tmp_path: Path) -> None:
    workflow = "jobs:\n t:\n  steps:\n  - run: ./tools/bats test\n"
    files = {
        ".github/workflows/a.yml": workflow,
        "tools/bats": "#!/bin/sh\n[ $# = 1 ]  # an old one knows no --tap\n",
        "test/a.bats": "\n",
    }
    ran = cli("init", "--repo", str(repository(tmp_path / "r", files)))
    assert ran.code == 0, (ran.out, ran.err)
    written = tomllib.loads((tmp_path / "r" / "perdure.toml").read_text())
    assert [(test["command"], test["report"]) for test in written["test"]] == [("./tools/bats test", "exit")]


def test_files_that_tests_build_beside_themselves_may_be_written_in_a_delivery_too(cli: Cli, tmp_path: Path) -> None:
    makefile = ".PHONY: test\ntest:\n\tcp test/check.sh test/built\n\tsh test/built\n"
    here = repository(tmp_path / "r", {"Makefile": makefile, "test/check.sh": "exit 0\n"})
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "instead: writes = ['test/built']" in ran.out
    assert tomllib.loads((here / "perdure.toml").read_text())["test"][0]["writes"] == ["test/built"]


def test_files_that_tests_write_and_need_not_stay_read_only(cli: Cli, tmp_path: Path) -> None:
    makefile = ".PHONY: test\ntest:\n\t-echo 1 > test/log\n\tsh test/check.sh\n"
    here = repository(tmp_path / "r", {"Makefile": makefile, "test/check.sh": "exit 0\n"})
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "writes" not in ran.out


LOCKED_WITH = {
    "poetry": (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = ["mydep"]\n'
        '[tool.poetry]\npackages = [{include = "app"}]\n[tool.poetry.dependencies]\nmydep = {path = "MYDEP"}\n'
        '[tool.poetry.group.test.dependencies]\nmytool = {path = "MYTOOL"}\n'
        '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n',
        "poetry lock",
    ),
    "pdm[locked]": (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        'dependencies = ["mydep @ file:///${PROJECT_ROOT}/MYDEP"]\n'
        '[dependency-groups]\ntest = ["mytool @ file:///${PROJECT_ROOT}/MYTOOL"]\n'
        '[build-system]\nrequires = ["pdm-backend"]\nbuild-backend = "pdm.backend"\n',
        "pdm lock -G test",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("program", LOCKED_WITH)
def test_what_a_real_lock_names_is_installed_with_the_groups_for_tests(cli: Cli, tmp_path: Path, program: str) -> None:
    tools, here = tmp_path / "tools", tmp_path / "r"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "pip", "install", "-q", program], check=True)
    pyproject, lock = LOCKED_WITH[program]
    for name in ("mydep", "mytool"):
        source = tmp_path / name
        source.mkdir()
        (source / f"{name}.py").write_text("TEN = 10\n")
        (source / "setup.py").write_text(f"import setuptools\nsetuptools.setup(name='{name}', py_modules=['{name}'])\n")
        build = [tools / "bin" / "pip", "wheel", "-q", "--no-deps", "-w", here / "wheels", source]
        subprocess.run(build, check=True)
        pyproject = pyproject.replace(name.upper(), f"wheels/{name}-0.0.0-py3-none-any.whl")
    files = {
        "pyproject.toml": pyproject,
        "app/__init__.py": "from mydep import TEN\n\ndef add(a):\n    return a + TEN\n",
        "tests/test_app.py": "import app, mytool\n\ndef test_add():\n    assert app.add(1) == 1 + mytool.TEN\n",
    }
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    program_name, *arguments = lock.split()
    subprocess.run([tools / "bin" / program_name, *arguments], cwd=here, check=True)
    repository(here, {".gitignore": ".venv\n.pdm-python\n__pycache__\n"})
    ran = cli("init", "--repo", str(here))
    assert ran.code == 0, (ran.out, ran.err)
    assert "✓ test       1 green" in ran.out
