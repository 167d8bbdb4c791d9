"""Presets by name: those that ship with Perdure, and the host owner's own beside the user file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import perdure
from perdure.adapters.repository.host import user_file
from perdure.adapters.repository.keys import parse_toml_model
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
        """Return whether the preset ships with Perdure."""
        return self.file.parent == SHIPPED


def own_presets_directory() -> Path:
    """Return the directory of the host owner's presets, `agents` beside the user file; it need not exist."""
    return user_file().parent / "agents"


def preset_names(own_directory: Path | None = None) -> list[str]:
    """Return all names this host has, sorted, without the built-in agent's."""
    return sorted(_preset_files(own_directory or own_presets_directory()))


def read_preset(name: str, own_directory: Path | None = None) -> AgentPreset:
    """Read the preset of that name; the host's own comes before one that ships.

    Raises BadInput for an unknown name, with the nearest one, and for a file that holds no preset, with line and key.
    """
    files = _preset_files(own_directory or own_presets_directory())
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
    return AgentPreset(name, _parse_preset(file, _read_preset_text(file)), file)


def _preset_files(own_directory: Path) -> dict[str, Path]:
    """Return the files of all presets by name; the host's own replace those that ship."""
    try:
        own_files = {path.stem: path for path in own_directory.glob("*.toml")}
    except OSError:
        own_files = {}
    return {path.stem: path for path in SHIPPED.glob("*.toml")} | own_files


def _read_preset_text(file: Path) -> str:
    """Read the text of a preset's file. Raises BadInput where it cannot be read or is too large."""
    try:
        return read_text(file, CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise BadInput("the preset cannot be read", where=str(file), fix=f"{error}: correct or remove it") from None


@cache
def _parse_preset(file: Path, text: str) -> Preset:
    """Parse a preset; equal texts are parsed once in a process. Raises BadInput with line and key where it holds
    none."""
    return parse_toml_model(text, str(file), Preset)
