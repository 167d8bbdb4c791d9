"""Tests made to pass though the product is wrong (tricks.toml), and honest changes (honest.toml): all of them run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from experiment_fixtures import Trials
from trick_bases import ADD, BASES, PLAIN, TEST, Base, prepared

from perdure.models.checks.report import CanaryOutcome, Experiment
from perdure.models.config.repository import SandboxGrade

HERE = Path(__file__).parent


def table(name: str) -> list[Any]:
    """One parameter each of a file beside this one."""
    ((_, found),) = tomllib.loads((HERE / name).read_text()).items()
    return [
        pytest.param(one, id=one["name"], marks=pytest.mark.slow if one.get("slow") else pytest.mark.story)
        for one in found
    ]


def caught(found: Experiment) -> set[str]:
    """The experiments that say something; never the change's own tests, which are green."""
    one = found.commands[0]
    named = [*(promise.name for promise in one.promises), *one.taken]
    said = {"B"} if any(name == one.command or ADD.search(name) for name in named) else set()
    said |= {"C"} if one.missed else set()
    return said | ({"A"} if one.contradicted or one.written else set())


LANGUAGES = ("tricks_python.toml", "tricks_javascript.toml", "tricks_go.toml", "tricks_rust.toml")
TABLES = ("tricks.toml", *LANGUAGES, "tricks_strangers.toml", "tricks_unseen.toml")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("trick", [one for name in TABLES for one in table(name)])
async def test_a_trick_is_caught_by_the_experiment_that_the_table_says(tried: Trials, trick: dict[str, Any]) -> None:
    base = BASES[trick["with"]]
    prepared(tried, base)
    before, command = {**base.files, **trick.get("before", {})}, trick.get("command", base.command)
    after = {**base.wrong, **trick["files"]}
    if trick["by"] == "red":
        assert not await tried.is_green({**before, **after}, command)
        return
    if trick.get("green", True) and trick.get("slow"):
        assert await tried.is_green({**before, **after}, command), "it does not even fool its own run"
    found = await tried(before, after, command)
    if trick["by"] == "reviewer":
        assert not caught(found), "the table can say more now"
        return
    assert trick["by"] in caught(found), found.model_dump_json(indent=1)
    assert found.is_tampered or found.changed_promises
    assert not found.commands[0].written or tried.sandbox.grade is not SandboxGrade.FULL  # it could not be written to


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("base", [pytest.param(base, id=name) for name, base in BASES.items()])
async def test_a_right_change_of_the_product_is_right_everywhere(tried: Trials, base: Base) -> None:
    prepared(tried, base)
    found = await tried(base.files, {name: f"{base.files[name]}\n" for name in base.wrong}, base.command)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert found.changed_promises == ()
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT


@pytest.mark.slow
@pytest.mark.parametrize("change", table("honest.toml"))
async def test_an_honest_change_is_not_called_tampered(tried: Trials, change: dict[str, Any]) -> None:
    command, before = BASES["pytest"].command, {**BASES["pytest"].files, **change.get("before", {})}
    found = await tried(before, change["files"], command)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT
    assert len(found.commands[0].promises) == change["promises"]


@pytest.mark.slow
async def test_a_deleted_feature_with_its_tests_needs_the_permission(tried: Trials) -> None:
    command, before = BASES["pytest"].command, BASES["pytest"].files
    less = PLAIN.partition("\n\n\ndef test_double")[0].replace(", double", "") + "\n"
    after = {"calc.py": before["calc.py"].partition("\n\n\ndef double")[0] + "\n", TEST: less}
    assert (await tried(before, after, command)).is_tampered
    assert not (await tried(before, after, command, allowed=True)).is_tampered
