"""The test side is told from the product by the runners' own rules; one that looks wrong is told at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from experiment_fixtures import Trials
from pydantic import ValidationError

from perdure.adapters.checks.experiment.commit_pair import CommitPair, check_test_side
from perdure.adapters.checks.experiment.side_rules import SideRules, mix_trees
from perdure.adapters.checks.runners import RUNNERS, find_runner
from perdure.adapters.checks.trees import CommitTree
from perdure.models.config.repository import TestCommand, TestsSettings
from perdure.models.errors import InvalidRequest

PYTEST = next(runner for runner in RUNNERS if runner.name == "pytest")


def sides(trials: Trials, command: str, *paths: str, **settings: str) -> SideRules:
    named = {name.replace("__", "."): text for name, text in settings.items()}
    tree = CommitTree.from_commit(trials.repository, trials.commit({**dict.fromkeys(paths, "x\n"), **named}))
    tests = [TestCommand(name="t", command=command), TestCommand(name="lint", command="ruff check pkg/a.py")]
    return SideRules.from_tree(tree, [(tests[0], PYTEST), (tests[1], None)])


def test_tests_what_lies_beside_them_and_what_steers_them_are_the_test_side(tried: Trials) -> None:
    paths = ("tests/unit/test_a.py", "tests/data/x.json", "pkg/test_b.py", "conftest.py", "pkg/conftest.py")
    rules = sides(tried, "pytest", *paths, "pkg/a.py", "django/test/client.py")
    assert [path for path in paths if not rules.is_side(path)] == []
    assert not any(map(rules.is_side, ("pkg/a.py", "django/test/client.py", "setup.cfg", "pyproject.toml")))
    assert rules.is_shared("pyproject.toml")
    assert rules.read_only_paths([*paths, "pkg/a.py", "pyproject.toml"]) == (
        *("conftest.py", "pkg/conftest.py", "pkg/test_b.py", "pyproject.toml", "tests"),
    )


def test_settings_name_more_of_it_and_so_does_the_command(tried: Trials) -> None:
    toml = "[tool.pytest.ini_options]\npython_files = ['check_*.py']\ntestpaths = ['checks', 'src']\n"
    rules = sides(tried, "pytest . tools/run.py", "tools/run.py", "checks/help.py", pyproject__toml=toml)
    assert all(map(rules.is_side, ("check_a.py", "src/check_b.py", "checks/help.py", "tools/run.py")))
    assert not rules.is_side("src/a.py")


def test_code_that_tests_name_is_no_data_of_theirs_in_any_language(tried: Trials) -> None:
    named = {"lib/Try/Tiny.pm": "1;\n", "src/say.lua": "return 1\n", "lib/say.ex": "1\n", "share/words.txt": "1\n"}
    named["bin/say"] = "#!/usr/bin/perl\n1;\n"
    before = {**named, "t/a.t": f"my @named = {(*named,)};\n"}
    after = before | {path: f"{text}# changed\n" for path, text in named.items()}
    commits = CommitPair.from_commits(
        tried.repository, tried.commit(before), tried.commit(after), [TestCommand(name="t", command="prove -l t")], ()
    )
    assert commits.touched == ("share/words.txt",)


def test_the_bases_tests_stand_beside_the_changes_product(tried: Trials) -> None:
    old = tried.commit({"a.py": "1\n", "tests/test_a.py": "1\n", "tests/gone.json": "1\n", "setup.cfg": "1\n"})
    new = tried.commit(
        {"a.py": "2\n", "b.py": "2\n", "tests/test_a.py": "2\n", "conftest.py": "2\n", "setup.cfg": "2\n"}
    )
    base, change = CommitTree.from_commit(tried.repository, old), CommitTree.from_commit(tried.repository, new)
    rules = SideRules.from_tree(base, [(TestCommand(name="t", command="pytest"), PYTEST)])

    def texts(shared: bool) -> dict[str, str]:
        return CommitTree(tried.repository, mix_trees(base, change, rules, shared=shared)).read_texts(
            ["a.py", "b.py", "tests/test_a.py", "tests/gone.json", "conftest.py", "setup.cfg"]
        )

    found = {"a.py": "2\n", "b.py": "2\n", "tests/test_a.py": "1\n", "tests/gone.json": "1\n", "setup.cfg": "1\n"}
    assert texts(shared=True) == found
    assert texts(shared=False) == {**found, "setup.cfg": "2\n"}


def detected(trials: Trials, command: str, files: dict[str, str], side: tuple[str, ...] = ()) -> SideRules:
    tree = CommitTree.from_commit(trials.repository, trials.commit(files))
    test = TestCommand(name="t", command=command)
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "package.json").write_text(files.get("package.json", ""))
        return SideRules.from_tree(tree, [(test, find_runner(command, Path(directory))[0])], side)


@pytest.mark.parametrize(
    ("command", "files", "tests", "product"),
    [
        pytest.param(
            "pytest -p tools.strict --cov-config=cov.ini",
            {"tools/strict.py": "", "tools/a.py": "", "cov.ini": "", "plug.py": "", "kit/fix.py": "", "src/deep.py": ""}
            | {
                "pytest.ini": "[pytest]\naddopts = -p plug\n",
                "a/conftest.py": "pytest_plugins = ['kit.fix', 'deep']\n",
            },
            ("tools/strict.py", "cov.ini", "plug.py", "kit/fix.py", "src/deep.py", "a/conftest.py"),
            ("tools/a.py",),
            id="pytest: plugins and settings",
        ),
        pytest.param(
            "python -m unittest discover -s checks -p 'check*.py' && true",
            {"checks/helper.json": "", "check_a.py": "", "a.py": ""},
            ("checks/helper.json", "check_a.py"),
            ("a.py",),
            id="unittest: discover",
        ),
        pytest.param(
            "python -m unittest quality.probe.Case.test_it",
            {"quality/probe.py": "", "quality/a.py": ""},
            ("quality/probe.py",),
            ("quality/a.py",),
            id="unittest: a module by name",
        ),
        pytest.param(
            "npm test",
            {"package.json": '{"scripts": {"test": "node scripts/run-tests.js --all"}}', "scripts/run-tests.js": ""}
            | {"lib/a.js": "", "test/a.js": ""},
            ("scripts/run-tests.js", "test/a.js"),
            ("lib/a.js",),
            id="a package script that runs a file",
        ),
        pytest.param(
            "make check",
            {
                "Makefile": "PY = python3\n\ncheck: unit\n\t./ci/last.sh\nunit:\n\t@$(PY) ci/probe.py\n"
                "other:\n\tpython a.py\n"
            }
            | {"ci/probe.py": "", "ci/last.sh": "#!/bin/sh\n# it's\npython3 ci/end.py\n", "ci/end.py": "", "a.py": ""},
            ("ci/probe.py", "ci/last.sh", "ci/end.py"),
            ("a.py",),
            id="recipes and scripts",
        ),
        pytest.param(
            "npx jest",
            {
                "package.json": '{"jest": {"testMatch": ["<rootDir>/checks/**/*.{a,b}.js"],'
                '"setupFiles": ["./setup/env.js"]}}'
            }
            | {"checks/x/y.b.js": "", "setup/env.js": "", "src/y.b.js": "", "jest.env.js": ""}
            | {
                "jest.config.js": "module.exports = {testEnvironment: './jest.env.js',\n"
                r"testRegex: ['(a+)+$', '\\.it\\.js$']}",
            }
            | {"src/y.it.js": "", "y.e2e.js": ""},
            ("checks/x/y.b.js", "setup/env.js", "jest.env.js", "src/y.it.js"),
            ("src/y.b.js",),
            id="jest",
        ),
        pytest.param(
            "npx vitest run",
            {
                "vite.config.ts": "export default { test: { coverage: { include: ['src/**'] },\n"
                "include: ['checks/**/*.{mjs,ts}'],\n"
            }
            | {"src/a.ts": "", "checks/deep/a.ts": ""},
            ("checks/deep/a.ts",),
            ("src/a.ts",),
            id="vitest: not what coverage includes",
        ),
        pytest.param(
            "node --test --import ./setup.mjs 'checks/**/*.mjs'",
            {"setup.mjs": "", "checks/a.mjs": "", "src/a.mjs": ""},
            ("setup.mjs", "checks/a.mjs"),
            ("src/a.mjs",),
            id="node: patterns and what is loaded first",
        ),
    ],
)
def test_settings_recipes_and_scripts_name_more_of_it(
    tried: Trials, command: str, files: dict[str, str], tests: tuple[str, ...], product: tuple[str, ...]
) -> None:
    rules = detected(tried, command, files)
    assert [path for path in tests if not rules.is_side(path)] == []
    assert [path for path in product if rules.is_side(path)] == []
    assert rules.unread == (("(a+)+$",) if "jest.config.js" in files else ())


def test_what_a_command_may_write_is_left_out_and_the_rest_of_its_directory_stays_held(tried: Trials) -> None:
    files = ("tests/test_a.py", "tests/out/kept", "tests/data/x", "tests/data/deep/y", "conftest.py")
    rules = sides(tried, "pytest", *files)
    for writes in (("tests/out",), ("./tests/out/",)):
        assert rules.read_only_paths(files, writes) == ("conftest.py", "tests/data", "tests/test_a.py")
    assert rules.read_only_paths(files, ("tests/new/deeper",)) == (
        "conftest.py",
        "tests/data",
        "tests/out",
        "tests/test_a.py",
    )
    assert rules.read_only_paths(files, ("tests/data/x",)) == (
        "conftest.py",
        "tests/data/deep",
        "tests/out",
        "tests/test_a.py",
    )
    assert rules.read_only_paths(files, ("tests", "conftest.py")) == ()


def test_people_have_the_last_word(tried: Trials) -> None:
    files = dict.fromkeys(("spec/a.rb", "tests/test_a.py", "tests/app/main.py", "tests/app/test_b.py", "a.py"), "")
    rules = detected(tried, "pytest", files, ("spec/**", "!tests/app/"))
    assert [path for path in files if rules.is_side(path)] == ["spec/a.rb", "tests/test_a.py"]
    assert [path for path in files if rules.holds_tests(path)] == ["tests/test_a.py"]
    assert rules.read_only_paths(files) == (
        "spec",
        "tests/test_a.py",
    )  # not the whole of tests: a part is the product


@pytest.mark.timeout(30)
def test_hostile_settings_are_read_in_bounded_time_and_what_is_beyond_is_said(tried: Trials) -> None:
    many = " ".join(["*a" * 100 + "b.py", *(f"x{number}*.py" for number in range(300))])
    files = {"pytest.ini": f"[pytest]\npython_files = {many}\n", "a" * 250 + "/" + "a/" * 100 + "b": ""}
    rules = detected(tried, "pytest", files)
    assert rules.is_side("deep/x7_a.py")
    assert "x150*.py" in rules.unread
    hostile = "<" * 5_000 + "{" * 5_000 + "setupFiles: [" * 5_000 + "'a" * 5_000
    makefile = "A = $(A)$(A)\n" * 2_000 + "test: test\n\t" + "$(A)" * 5_000 + "\n"
    detected(tried, "npx vitest run && make test", {"vitest.config.ts": hostile, "Makefile": makefile})
    detected(
        tried,
        "npx jest",
        {"jest.config.js": hostile, "package.json": '{"jest": {"testMatch": ["' + "{a,b}" * 60 + '"]}}'},
    )
    detected(tried, "pytest", {"conftest.py": "pytest_plugins = [\n" * 20_000})


@pytest.mark.parametrize(
    ("command", "path", "text", "found"),
    [
        ("pytest --doctest-modules", "a.py", "def a():\n    '''\n    >>> a()\n    '''\n", True),
        ("pytest", "a.py", "def a():\n    '''\n    >>> a()\n    '''\n", False),
        ("cargo test", "src/lib.rs", "fn a() {}\n\n#[cfg(test)]\nmod tests {}\n", True),
        ("vitest run", "src/a.ts", "if (import.meta.vitest) {}\n", True),
        ("go test ./...", "a.go", "// >>> a\n", False),
    ],
)
def test_tests_inside_changed_product_files_are_named(
    tried: Trials, command: str, path: str, text: str, found: bool
) -> None:
    base, change = tried.commit({path: "x\n", "other": "1\n"}), tried.commit({path: text, "other": "1\n"})
    test = TestCommand(name="t", command=command)
    assert CommitPair.from_commits(tried.repository, base, change, [test], ()).inline_test_files(test) == (
        [path] if found else []
    )


FILES = {"a.py": "", "tests/test_a.py": "", "tests/data.json": "", "conftest.py": ""}


def surveyed(trials: Trials, *side: str, command: str = "pytest", files: dict[str, str] | None = None) -> str:
    commit = trials.commit(FILES if files is None else files)
    return check_test_side(trials.repository, commit, [TestCommand(name="t", command=command)], side, "perdure.toml")


def test_patterns_that_match_nothing_are_named_with_what_is_detected(tried: Trials) -> None:
    told = surveyed(tried, "tests/**", "spec/**")
    assert told == '[tests] side: "spec/**" matches nothing; tests: tests/ (2 files), conftest.py'


@pytest.mark.parametrize("pattern", ["**", "*", "/**"])
def test_patterns_that_leave_no_product_file_are_refused_with_what_is_detected(tried: Trials, pattern: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        surveyed(tried, pattern)
    assert str(refused.value) == (
        f'side: "{pattern}" leave no product file: all 4 files of the repository would be tests\n'
        "  where: perdure.toml [tests]\n"
        "  fix: name only what is not found without it; without it there is: tests/ (2 files), conftest.py"
    )


def test_tests_that_live_elsewhere_are_missed_where_the_runner_is_known(tried: Trials) -> None:
    assert surveyed(tried, files={"a.py": ""}) == "no test file is found here: name them in [tests] side"
    assert surveyed(tried, files={"a.py": ""}, command="./check") == ""
    assert surveyed(tried) == ""


@pytest.mark.parametrize("pattern", ["", "/", "#tests", "!", "../tests", "tests\n", "a" * 301])
def test_patterns_that_name_no_path_are_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"pattern|characters"):
        TestsSettings(side=(pattern,))
