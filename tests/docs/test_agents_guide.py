"""The preset in docs/agents.md is one, and the shipped ones are named there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel

from perdure.adapters.agents.presets import SHIPPED
from perdure.models.config.preset import Abilities, Preset, ResultSelectors

TEXT = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def wire_names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_the_preset_of_the_guide_can_be_read_and_shows_every_key() -> None:
    block = re.search(r"<!-- tested: preset -->\n```toml\n(.*?)```", TEXT, re.DOTALL)
    assert block
    Preset.model_validate(written := tomllib.loads(block[1]))
    assert set(Preset.model_fields) - set(written) == {"network"}
    assert set(ResultSelectors.model_fields) - set(written["result"]) == {"denied"}
    assert set(written["abilities"]) <= wire_names(Abilities)
    assert all(f"`{name}`" in TEXT for name in wire_names(Abilities))


def test_every_preset_that_ships_is_in_the_guides_table() -> None:
    rows = set(re.findall(r"^\| `([a-z-]+)` \| (?:anthropic|openai-|gemini)", TEXT, re.MULTILINE))
    assert rows == {path.stem for path in SHIPPED.glob("*.toml")}
