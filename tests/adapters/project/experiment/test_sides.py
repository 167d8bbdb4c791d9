"""The test side is told from the product by the runners' own rules and settings; and trees made of two commits."""

from __future__ import annotations

from experiment_bench import Trials

from perdure.adapters.project.experiment.sides import Sides, mixed
from perdure.adapters.project.experiment.trees import Tree
from perdure.adapters.project.runners import RUNNERS
from perdure.models.config import TestCommand

PYTEST = next(runner for runner in RUNNERS if runner.name == "pytest")


def sides(trials: Trials, command: str, *paths: str, **settings: str) -> Sides:
    named = {name.replace("__", "."): text for name, text in settings.items()}
    tree = Tree.of(trials.repository, trials.commit({**dict.fromkeys(paths, "x\n"), **named}))
    tests = [TestCommand(name="t", command=command), TestCommand(name="lint", command="ruff check pkg/a.py")]
    return Sides.of(tree, [(tests[0], PYTEST), (tests[1], None)])


def test_tests_what_lies_beside_them_and_what_steers_them_are_the_test_side(tried: Trials) -> None:
    paths = ("tests/unit/test_a.py", "tests/data/x.json", "pkg/test_b.py", "conftest.py", "pkg/conftest.py")
    rules = sides(tried, "pytest", *paths, "pkg/a.py", "django/test/client.py")
    assert [path for path in paths if not rules.is_side(path)] == []
    assert not any(map(rules.is_side, ("pkg/a.py", "django/test/client.py", "setup.cfg", "pyproject.toml")))
    assert rules.is_shared("pyproject.toml")
    assert rules.held([*paths, "pkg/a.py", "pyproject.toml"]) == (
        *("conftest.py", "pkg/conftest.py", "pkg/test_b.py", "pyproject.toml", "tests"),
    )


def test_settings_name_more_of_it_and_so_does_the_command(tried: Trials) -> None:
    toml = "[tool.pytest.ini_options]\npython_files = ['check_*.py']\ntestpaths = ['checks', 'src']\n"
    rules = sides(tried, "pytest . tools/run.py", "tools/run.py", "checks/help.py", pyproject__toml=toml)
    assert all(map(rules.is_side, ("check_a.py", "src/check_b.py", "checks/help.py", "tools/run.py")))
    assert not rules.is_side("src/a.py")


def test_the_bases_tests_stand_beside_the_changes_product(tried: Trials) -> None:
    old = tried.commit({"a.py": "1\n", "tests/test_a.py": "1\n", "tests/gone.json": "1\n", "setup.cfg": "1\n"})
    new = tried.commit(
        {"a.py": "2\n", "b.py": "2\n", "tests/test_a.py": "2\n", "conftest.py": "2\n", "setup.cfg": "2\n"}
    )
    base, change = Tree.of(tried.repository, old), Tree.of(tried.repository, new)
    rules = Sides.of(base, [(TestCommand(name="t", command="pytest"), PYTEST)])

    def texts(shared: bool) -> dict[str, str]:
        return Tree(tried.repository, mixed(base, change, rules, shared=shared)).texts(
            ["a.py", "b.py", "tests/test_a.py", "tests/gone.json", "conftest.py", "setup.cfg"]
        )

    found = {"a.py": "2\n", "b.py": "2\n", "tests/test_a.py": "1\n", "tests/gone.json": "1\n", "setup.cfg": "1\n"}
    assert texts(shared=True) == found
    assert texts(shared=False) == {**found, "setup.cfg": "2\n"}
