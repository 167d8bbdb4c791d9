"""Presets by name: those that ship with Perdure, and the host owner's own beside the user file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import perdure
from perdure.adapters.repository.host import user_file
from perdure.adapters.repository.keys import parse
from perdure.adapters.system.bounded import read_text
from perdure.models.config import BUILT_IN
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES
from perdure.models.preset import AGENT_NAME, Preset
from perdure.text import nearest

SHIPPED = Path(perdure.__file__).parent / "agents"


@dataclass(frozen=True)
class AgentPreset:
    """A preset with its name and the file it was read from."""

    name: str
    preset: Preset
    file: Path

    @property
    def shipped(self) -> bool:
        return self.file.parent == SHIPPED


def own_presets() -> Path:
    """The directory of the host owner's presets, `agents` beside the user file; it need not exist."""
    return user_file().parent / "agents"


def preset_names(own: Path | None = None) -> list[str]:
    """All names this host has, sorted, without the built-in agent's."""
    return sorted(_files(own or own_presets()))


def read_preset(name: str, own: Path | None = None) -> AgentPreset:
    """The preset of that name; the host's own comes before one that ships.

    Raises BadInput for an unknown name, with the nearest one, and for a file that holds no preset, with line and key.
    """
    files = _files(own or own_presets())
    if (file := files.get(name)) is None:
        known = [BUILT_IN, *sorted(files)]
        raise BadInput(
            f"no agent is called {name[:60]!r} on this host{nearest(name, known)}",
            fix=f"known here: {', '.join(known)}; docs/agents.md says how to add one",
        )
    if not AGENT_NAME.fullmatch(name) or name == BUILT_IN:
        raise BadInput(
            f"{name[:60]!r} cannot be the name of a preset",
            where=str(file),
            fix="rename the file: lower-case letters, digits and -" if name != BUILT_IN else "rename the file",
        )
    return AgentPreset(name, _parsed(file, _text(file)), file)


def _files(own: Path) -> dict[str, Path]:
    try:
        mine = {path.stem: path for path in own.glob("*.toml")}
    except OSError:
        mine = {}
    return {path.stem: path for path in SHIPPED.glob("*.toml")} | mine


def _text(file: Path) -> str:
    try:
        return read_text(file, CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput("the preset cannot be read", where=str(file), fix=f"{error}: correct or remove it") from None


@cache
def _parsed(file: Path, text: str) -> Preset:
    return parse(text, str(file), Preset)
