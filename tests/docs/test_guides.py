"""The guides in docs/ say what the code does: their examples are read by it, their lists are complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import OTHER_VARIABLES, VARIABLES
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.result import Reason, Status
from perdure.models.phases import Phase, Step
from perdure.rehearsal.screenplay import Fault, Line, Screenplay

DOCS = Path(__file__).parents[2] / "docs"
INTERNAL = {
    "PERDURE_FORKS_FD",
    "PERDURE_SECRETS_FD",
    "PERDURE_CRASH_AT",
    "PERDURE_DEBUG",
    "PERDURE_MODEL_SILENCE_S",
    "PERDURE_AGENT_IDLE_S",
    "PERDURE_MODEL_WINDOW",
    "PERDURE_SQLITE_SYNCHRONOUS",
}
"""For tests and for finding faults; not for people."""

NOT_YET = {Reason.BUDGET, Reason.PLAN_REJECTED}
"""Reasons that nothing ends with yet."""


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def example(guide: str, name: str) -> str:
    found = re.search(rf"<!-- tested: {re.escape(name)} -->\n```toml\n(.*?)```", text(guide), re.DOTALL)
    assert found, f"{guide} has no example {name}"
    return found[1]


def test_the_perdure_toml_of_the_guide_is_read_and_names_every_key() -> None:
    written = example("configuration.md", "perdure.toml")
    shown = load_repository_config(written, "docs/configuration.md")
    assert shown.delivery == RepositoryConfig(version=1).delivery
    assert shown.limits == RepositoryConfig(version=1).limits
    assert shown.steps == RepositoryConfig(version=1).steps
    assert shown.ship == RepositoryConfig(version=1).ship
    assert missing(RepositoryConfig, tomllib.loads(written), text("configuration.md")) == []


def test_the_user_file_of_the_guide_is_read_and_holds_the_defaults() -> None:
    table = tomllib.loads(example("configuration.md", "config.toml"))
    shown, default = HostConfig.model_validate(table), HostConfig()
    assert (shown.sandbox, shown.slots, shown.ports, shown.steps) == (
        default.sandbox,
        default.slots,
        default.ports,
        default.steps,
    )
    assert (shown.limits.budget_usd, shown.limits.time) == (default.limits.budget_usd, default.limits.time)


def test_every_variable_that_a_person_may_set_is_in_the_guide() -> None:
    named = set(re.findall(r"PERDURE_[A-Z_]+", text("configuration.md")))
    assert named == {*VARIABLES, *OTHER_VARIABLES} - INTERNAL


def test_the_screenplay_of_the_guide_is_one_and_every_key_and_fault_is_named() -> None:
    guide = text("screenplay.md")
    Screenplay.parse(example("screenplay.md", "screenplay"))
    assert [name for name in Line.model_fields if f"`{name}`" not in guide] == []
    assert [fault for fault in Fault if f"`{fault}`" not in guide] == []


@pytest.mark.parametrize("words", [Phase, Step, Status, set(Reason) - NOT_YET])
def test_every_word_of_the_process_is_in_the_guide(words: type) -> None:
    assert [word for word in words if f"`{word}`" not in text("phases.md")] == []


def missing(model: type[BaseModel], table: dict[str, object], guide: str, path: str = "") -> list[str]:
    """Keys of a settings model that its example lacks and the guide does not name either."""
    found = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        value = table.get(key)
        inner = field.annotation
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, BaseModel):
            if path != "steps.":
                found += missing(inner, value, guide, f"{path}{key}.")
        elif key not in table and key not in guide:
            found.append(path + key)
    return found
