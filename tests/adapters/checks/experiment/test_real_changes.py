"""Honest changes of repositories that others wrote (real.toml): none is called tampered, the right tests are named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from experiment_fixtures import Files, Trials
from real_repositories import REPOSITORIES, fetched

from perdure.models.checks.report import CanaryOutcome
from tests.npm_packages import installed

TABLE = tomllib.loads((Path(__file__).parent / "real.toml").read_text())["change"]


def edited(before: dict[str, str], change: dict[str, Any]) -> Files:
    """The files of a change: moved ones, what is cut from one text up to another, what is replaced, new ones."""
    after: dict[str, str | None] = {}

    def now(path: str) -> str:
        text = after.get(path, before.get(path))
        assert text is not None, f"{path} is not in it"
        return text

    for old, new in change.get("moved", {}).items():
        after[new], after[old] = now(old), None
    for path, cuts in change.get("cuts", {}).items():
        for first, behind in cuts:
            head, found, tail = now(path).partition(first)
            assert found, f"{path} does not hold {first!r}"
            after[path] = head + behind + tail.partition(behind)[2] if behind else head
    for path, edits in change.get("edits", {}).items():
        for old, new in edits:
            assert old in now(path), f"{path} does not hold {old!r}"
            after[path] = now(path).replace(old, new)
    return {**after, **dict.fromkeys(change.get("gone", ()), None), **change.get("files", {})}


def marks(change: dict[str, Any]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.story if change.get("quick") else pytest.mark.slow]


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "change", [pytest.param(one, id=f"{one['of']}: {one['name']}", marks=marks(one)) for one in TABLE]
)
async def test_an_honest_change_of_a_real_repository(
    tried: Trials, change: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    before = fetched(change["of"], base if base.name.startswith("pytest-") else base.parent)
    repository = REPOSITORIES[change["of"]]
    if repository.packages:
        installed(tried.worktree, *repository.packages)
    found = await tried(before, edited(before, change), repository.command)
    found = found.model_copy(update={"removes": "emove" in change["request"]})
    (one,) = found.commands
    told = found.model_dump_json(indent=1)
    assert not found.is_tampered, told
    assert sorted(promise.name.rpartition("::")[2] for promise in found.changed_promises) == sorted(
        change["promises"]
    ), told
    assert one.canaries is CanaryOutcome.CAUGHT, told
    assert bool(one.proving) == change["proves"], told
