"""A test side that looks wrong is told before anything is paid for."""

from __future__ import annotations

import pytest
from experiment_fixtures import Trials
from pydantic import ValidationError

from perdure.adapters.checks.experiment.commit_pair import check_test_side
from perdure.models.config.repository import TestCommand, TestsSettings
from perdure.models.errors import InvalidRequest

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
