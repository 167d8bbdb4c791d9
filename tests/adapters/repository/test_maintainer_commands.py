"""The commands that maintainers wrote for their own tests decide how a repository is tested: in shapes of real
repositories."""

from __future__ import annotations

import os

import pytest

from perdure.adapters.repository.config import load_repository_config, render_config
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.detect.commands import DetectedCommands
from tests.sandboxes import Files

UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"
PYTEST = "def test_a():\n    pass\n"
SETUP = {"setup.py": "from setuptools import setup\nsetup(name='x')\n"}
PIP = ".venv/bin/python -m pip install --disable-pip-version-check"


def commands(found: DetectedCommands) -> list[str]:
    return [test.command for test in found.tests]


def test_an_application_of_django_is_tested_as_tox_tests_it(files: Files) -> None:
    tox = (
        "[tox]\nenvlist =\n    flake8\n    py{39,310,311,312,313,314}-dj52\n    py{312,313}-djmain\n"
        "[testenv]\ndeps =\n    dj52: Django>=5.2,<5.3\n    djmain: https://example.org/main.tar.gz\n    coverage\n"
        "setenv =\n    PYTHONWARNINGS=all\ncommands =\n"
        "    coverage run -m django test --settings=tests.settings {posargs}\n    coverage report\n"
        "[testenv:flake8]\ndeps = flake8\ncommands = flake8\n"
    )
    found = detect_commands(files({**SETUP, "tox.ini": tox, "tests/test_x.py": UNITTEST, "tests/__init__.py": ""}))
    assert commands(found) == ["PYTHONWARNINGS=all .venv/bin/python -m django test --settings=tests.settings"]
    assert found.setup[-1] == f"{PIP} 'Django>=5.2,<5.3' coverage"
    assert found.optional == found.setup[-1:]
    assert found.alternatives == {"django": (".venv/bin/python -m unittest discover -s tests -t .",)}


def test_a_script_that_tox_runs_is_what_is_tested_where_its_data_is_in_tests(files: Files) -> None:
    tox = (
        "[testenv]\ndeps = coverage\ncommands =\n    coverage run --source={toxinidir}/x {toxinidir}/test_spec.py\n"
        "    coverage report -m\n[testenv:py32]\ncommands = python {toxinidir}/test_spec.py\n"
    )
    script = f"{UNITTEST}\nif __name__ == '__main__':\n    unittest.main()\n"
    root = files({**SETUP, "tox.ini": tox, "test_spec.py": script, "tests/data.json": "{}"})
    found = detect_commands(root)
    assert commands(found) == [".venv/bin/python -m unittest test_spec.py"]
    assert found.alternatives["unittest"][0] == ".venv/bin/python test_spec.py"
    (root / "tox.ini").unlink()
    assert commands(detect_commands(root)) == [".venv/bin/python -m unittest discover"]
    travis = "language: python\nmatrix:\n  include:\n  - script:\n    - tox\nscript:\n- python ./test_spec.py -v\n"
    files({".travis.yml": travis})
    assert commands(detect_commands(root)) == [".venv/bin/python test_spec.py -v"]


def test_every_script_that_a_workflow_runs_as_a_test_is_tried_with_what_it_installs(files: Files) -> None:
    job = (
        "  {0}:\n    runs-on: ubuntu-latest\n    steps:\n      - uses: actions/checkout@v4\n      - run: |\n"
        "          python -m pip install --upgrade pip\n          pip install -r tools/{0}/requirements.txt\n"
        "      - name: Test\n        run: ./tools/{0}/test/run.py\n"
    )
    workflow = "on: [push]\njobs:\n" + "".join(job.format(name) for name in ("lint", "generation"))
    root = files(
        {
            ".github/workflows/tests.yml": workflow,
            ".github/workflows/broken.yml": "on: [push\n",
            "package.json": '{"private": true, "devDependencies": {"harness": "1"}}',
            "test/built-ins/a.js": "",
            **{
                f"tools/{name}/{file}": ""
                for name in ("lint", "generation")
                for file in ("requirements.txt", "test/run.py")
            },
        }
    )
    found = detect_commands(root)
    assert commands(found) == [f".venv/bin/python tools/{name}/test/run.py" for name in ("lint", "generation")]
    assert found.setup[:2] == (
        "python3 -m venv .venv",
        f"{PIP} -r tools/lint/requirements.txt -r tools/generation/requirements.txt",
    )
    assert found.left_out == ("JavaScript (npm): no test of it was found",)


@pytest.mark.parametrize("script", ["npm test --workspaces --if-present", "pnpm -r test", "yarn workspaces run test"])
def test_a_script_that_runs_those_of_all_packages_is_a_command_for_each_of_them(files: Files, script: str) -> None:
    root = files(
        {
            "package.json": f'{{"scripts": {{"test": "{script}"}}, "workspaces": ["packages/*"]}}',
            "packages/a/package.json": '{"scripts": {"test": "jest"}}',
            "packages/b/package.json": '{"scripts": {"test": "vitest run"}}',
            "packages/c/package.json": "{}",
        }
    )
    assert [(test.directory, test.command) for test in detect_commands(root).tests] == [
        ("packages/a", "npm test"),
        ("packages/b", "npm test"),
    ]


def test_each_side_of_a_monorepo_is_tested_or_named(files: Files) -> None:
    root = files(
        {
            "Cargo.toml": "[workspace]\nmembers = ['crates/*']\n",
            "package.json": '{"private": true, "packageManager": "pnpm@9.1.0", "scripts": {"build": "tsc -b"}}',
            "pnpm-lock.yaml": "lockfileVersion: '9.0'\n",
            "pnpm-workspace.yaml": "packages:\n  - 'packages/*'\n  - '!packages/old'\n  - '/'\n  - '../up'\n",
            "packages/core/package.json": '{"scripts": {"test": "vitest run"}}',
            "packages/types/package.json": '{"scripts": {"build": "tsc"}}',
            "packages/old/package.json": '{"scripts": {"test": "vitest run"}}',
            "packages/core/node_modules/x/package.json": '{"scripts": {"test": "false"}}',
            "tool/go.mod": "module x\n",
            "pyproject.toml": "[tool.ruff]\n",
        }
    )
    found = detect_commands(root)
    assert [(test.directory, test.command) for test in found.tests] == [
        ("packages/core", "pnpm test"),
        ("", "cargo test"),
    ]
    assert found.setup == ("pnpm install --frozen-lockfile", "cargo fetch")
    assert found.left_out == ("tool (go): has tests of its own", "Python (python): no test of it was found")
    assert load_repository_config(render_config(found), "perdure.toml").test == found.tests


def test_a_side_that_is_only_set_up_at_the_top_is_tested_below(files: Files) -> None:
    root = files(
        {
            "package.json": '{"private": true}',
            "web/package.json": '{"scripts": {"test": "node --test"}}',
            "go.mod": "module x\n",
        }
    )
    found = detect_commands(root)
    assert [(test.directory, test.command) for test in found.tests] == [("", "go test ./..."), ("web", "npm test")]


@pytest.mark.parametrize(
    ("there", "install"),
    [
        ({"yarn.lock": "# yarn lockfile v1\n\na@1:\n"}, "yarn install --frozen-lockfile"),
        ({"yarn.lock": "# This file is generated\n\n__metadata:\n  version: 8\n"}, "yarn install --immutable"),
        ({"bun.lock": "{}"}, "bun install --frozen-lockfile"),
    ],
)
def test_the_option_that_keeps_a_lock_is_that_of_its_manager(files: Files, there: dict[str, str], install: str) -> None:
    package = '{"scripts": {"test": "jest"}, "devDependencies": {"jest": "29"}}'
    assert detect_commands(files({"package.json": package, **there})).setup == (install,)


def test_a_package_json_with_a_byte_order_mark_is_read(files: Files) -> None:
    root = files({"package.json": '\ufeff{"scripts": {"test": "mocha"}}', "Cargo.toml": "\ufeff[package]\nname='x'\n"})
    assert commands(detect_commands(root)) == ["npm test", "cargo test"]


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ({"test": "xo && ava && tsd"}, ["npx xo", "npx ava", "npx tsd"]),
        (
            {"test": "npm run lint && npm run unit", "lint": "eslint .", "unit": "mocha 'a b'"},
            ["npx eslint .", "npx mocha 'a b'"],
        ),
        ({"test": "tsc && node --test"}, ["npm test"]),
        ({"test": "eslint --fix . && ava"}, ["npm test"]),
        ({"test": "xo && ava", "pretest": "tsc"}, ["npm test"]),
        ({"test": "npm run test && ava"}, ["npm test"]),
        ({"test:unit": "ava", "build": "tsc"}, ["npm run test:unit"]),
    ],
)
def test_checks_that_do_not_need_each_other_are_commands_of_their_own(
    files: Files, scripts: dict[str, str], expected: list[str]
) -> None:
    import json

    found = detect_commands(files({"package.json": json.dumps({"scripts": scripts})}))
    assert commands(found) == expected
    assert load_repository_config(render_config(found), "perdure.toml").test == found.tests


@pytest.mark.parametrize(
    ("there", "last"),
    [
        ({"poetry.lock": 'name = "pytest"'}, ".venv/poetry/bin/poetry install --no-interaction --with test"),
        ({"Pipfile": "", "Pipfile.lock": '{"develop": {"pytest": {}}}'}, ".venv/pipenv/bin/pipenv sync --dev"),
        ({"pdm.lock": ""}, f"{PIP} pytest"),
    ],
)
def test_locks_of_other_managers_are_installed_in_an_environment_of_the_worktree(
    files: Files, there: dict[str, str], last: str
) -> None:
    pyproject = (
        '[project]\nname = "x"\n[tool.poetry.group.docs.dependencies]\nsphinx = "^8"\n'
        '[tool.poetry.group.test]\noptional = true\n[tool.poetry.group.test.dependencies]\npytest = "^8"\n'
    )
    found = detect_commands(files({"pyproject.toml": pyproject, "tests/test_x.py": PYTEST, **there}))
    assert found.setup[0] == "python3 -m venv .venv"
    assert found.setup[-1] == last
    assert commands(found) == [".venv/bin/python -m pytest -q"]


def test_a_site_of_django_is_tested_by_its_manage_py(files: Files) -> None:
    manage = "import os\nfrom django.core.management import execute_from_command_line\n"
    root = files({"manage.py": manage, "requirements.txt": "django\n", "polls/tests.py": UNITTEST})
    assert commands(detect_commands(root)) == [".venv/bin/python manage.py test"]


SCRIPT, PATHS, GUESS, WORKFLOW = "run_tests.py", "-m pytest -q tests", "-s tests", ".github/workflows/a.yaml"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("noxfile.py", "import nox\n@nox.session\ndef t(session):\n    session.install('-e', '.[x]', 'attrs')\n"
         "    session.run('python', 'run_tests.py', *session.posargs)\n", SCRIPT),
        ("pyproject.toml", "[tool.hatch.envs.a.scripts]\nx = 'ruff'\ntest = ['python run_tests.py {args}']\n", SCRIPT),
        ("pyproject.toml", '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\ncommands=python run_tests.py\n"""', SCRIPT),
        ("pyproject.toml", '[tool.tox.env_run_base]\ncommands = [["python", "run_tests.py", {x = "y"}]]', SCRIPT),
        ("pyproject.toml", "[tool.pdm.scripts]\ntest = {cmd = 'python run_tests.py'}\n", SCRIPT),
        ("Makefile", "PYTHON ?= python3\ntest: build\n\t@$(PYTHON) run_tests.py $(ARGS)\n", SCRIPT),
        ("justfile", "test *args:\n    python run_tests.py {{args}}\n", SCRIPT),
        ("CONTRIBUTING.md", "# Tests\n\n```console\n$ pip install x\n$ python run_tests.py\n```\n", SCRIPT),
        (".pre-commit-config.yaml", "repos:\n- hooks:\n  - id: t\n    entry: python run_tests.py\n", SCRIPT),
        (".gitlab-ci.yml", "t:\n  script:\n    - python run_tests.py\n", SCRIPT),
        (".circleci/config.yml", "jobs:\n  t:\n    steps:\n    - run:\n        command: python run_tests.py\n", SCRIPT),
        ("tox.ini", "[testenv]\ncommands = pytest tests --cov=x --basetemp={envtmpdir} {posargs:-n2}\n", PATHS),
        (WORKFLOW, "jobs:\n t:\n  steps:\n  - run: python ${{ m.x }} run_tests.py\n  - run: pytest tests\n", PATHS),
        (WORKFLOW, "jobs:\n t:\n  steps:\n  - run: python run_tests.py\n    working-directory: sub\n", GUESS),
        ("tox.ini", "[testenv]\ncommands = cd docs && python run_tests.py\n", GUESS),
        ("tox.ini", "[testenv]\ncommands =\n    mypy .\n    python absent/test_x.py\n", GUESS),
    ],
)  # fmt: skip
def test_each_place_where_maintainers_write_is_read(files: Files, name: str, text: str, command: str) -> None:
    found = detect_commands(files({"run_tests.py": "", "tests/test_x.py": UNITTEST, name: text}))
    assert commands(found)[0].endswith(command)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (WORKFLOW, "jobs:\n t:\n  steps:\n  - run: python run_tests.py\n    working-directory: ./sub\n"),
        (
            WORKFLOW,
            "jobs:\n t:\n  steps:\n  - run: |\n      cd docs; make test\n      cd ../sub\n      python run_tests.py\n",
        ),
        (".travis.yml", "script:\n- cd sub\n- python run_tests.py\n"),
    ],
)
def test_what_is_run_in_a_directory_below_is_the_test_of_that_directory(files: Files, name: str, text: str) -> None:
    found = detect_commands(files({name: text, "sub/run_tests.py": "", "sub/setup.py": "", "other/a.py": ""}))
    assert [(test.directory, test.command.split()[-1]) for test in found.tests] == [("sub", "run_tests.py")]


@pytest.mark.parametrize(
    ("there", "command"),
    [
        ({"phpunit.xml.dist": ""}, "vendor/bin/phpunit"),
        ({"spec/spec_helper.rb": ""}, "rspec"),
        ({"t/a.t": "print 1;"}, "prove -lr t"),
        ({"spec/a_spec.lua": "", WORKFLOW: "jobs:\n t:\n  steps:\n  - run: busted --coverage\n"}, "busted"),
        ({"CMakeLists.txt": "enable_testing()\n"}, "cmake -B build && cmake --build build && ctest --test-dir build"),
        ({"justfile": "test:\n    ./all.sh\n"}, "just test"),
        ({"Makefile": "check:\n\t./all.sh\n"}, "make check"),
        (
            {".github/workflows/a.yml": "jobs:\n t:\n  steps:\n  - run: ./run-tests.sh\n", "run-tests.sh": ""},
            "./run-tests.sh",
        ),
    ],
)
def test_other_languages_are_tested_by_what_one_file_shows(files: Files, there: dict[str, str], command: str) -> None:
    assert commands(detect_commands(files(there))) == [command]


BAD = {
    "deep.yml": "[" * 100_000,
    "aliases.yml": "a: &a [x,x]\n" + "".join(f"{n}: &b{n} [*a,*a]\n" for n in range(9)) + "run: *a\n",
    "object.yml": "run: !!python/object/apply:os.system ['false']\n",
    "huge.yml": "run: pytest\n" * 200_000,
}


def test_files_that_cannot_be_read_say_nothing_and_nothing_in_them_is_run(files: Files) -> None:
    root = files({f".github/workflows/{name}": text for name, text in BAD.items()} | {"tests/test_x.py": UNITTEST})
    files({"noxfile.py": "x = " + "-" * 100_000 + "1\n", "pyproject.toml": "[tool]\ntox = 3\nhatch = []\n"})
    (root / "tox.ini").write_bytes(b"\xff\xfe\x00[testenv\n%(x)s\ncommands = {[a]b}\n")
    (root / "CONTRIBUTING.md").symlink_to("CONTRIBUTING.md")
    os.mkfifo(root / "Makefile")
    (root / ".travis.yml").mkdir()
    files({"setup.cfg": "[testenv]\ndeps = {[testenv]deps}\ncommands = {[testenv]commands}\nno value\n"})
    assert commands(detect_commands(root)) == ["python3 -m unittest discover -s tests"]


def test_a_makefile_s_test_is_an_alternative_to_the_package_s_script(files: Files) -> None:
    package = '{"scripts": {"test": "node test.js"}, "devDependencies": {"mocha": "1"}}'
    root = files({"package.json": package, "Makefile": "test:\n\t@./node_modules/.bin/mocha\n", "test/a.js": ""})
    found = detect_commands(root)
    assert commands(found) == ["npm test"]
    assert found.alternatives == {"npm test": ("make test",)}
