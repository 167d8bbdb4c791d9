"""Presets, which describe a CLI agent as data, by name: those that ship with Perdure, and the host owner's own beside
the user's configuration file; and the check of each one's program on this host: whether it is there, its version, and
what it needs. Used where a delivery's settings are checked, by the turns of such agents, and by the command line."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import perdure
from perdure.adapters.repository.host import user_file
from perdure.adapters.repository.keys import parse_toml_model
from perdure.adapters.system.bounded import read_text, unreadable_reason
from perdure.adapters.system.programs import ProgramResult, run_program
from perdure.models.config.preset import AGENT_NAME, Preset, find_version, is_older
from perdure.models.config.repository import BUILT_IN
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES
from perdure.text import nearest, shorten

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

    Raises BadInput for an unknown name, with the nearest one, for a file whose name cannot be that of a preset, and for
    one that cannot be read or holds no preset, with line and key.
    """
    files = _preset_files(own_directory or own_presets_directory())
    if (file := files.get(name)) is None:
        known = [BUILT_IN, *sorted(files)]
        raise BadInput(
            f"no agent is called {shorten(name, 60)!r} on this host{nearest(name, known)}",
            fix=f"known here: {', '.join(known)}; docs/agents.md says how to add one",
        )
    if not AGENT_NAME.fullmatch(name) or name == BUILT_IN:
        raise BadInput(
            f"{shorten(name, 60)!r} cannot be the name of a preset",
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
        what = f"the preset cannot be read: {unreadable_reason(error)}"
        raise BadInput(what, where=str(file), fix="correct or remove it") from None


@cache
def _parse_preset(file: Path, text: str) -> Preset:
    """Parse a preset; equal texts are parsed once in a process. Raises BadInput with line and key where it holds
    none."""
    return parse_toml_model(text, str(file), Preset)


VERSION_S = 60.0
"""The time an agent has to say its version: one that runs on Node was seen to take 15 s the first time on a cold
disk."""


@dataclass(frozen=True)
class ProgramCheck:
    """The state of an agent's program on this host.

    program  the file that would be run, None without one
    version  as it said, empty when it did not
    problem  why it cannot be used, empty where it can; fix: what to do about that
    """

    program: Path | None = None
    version: str = ""
    problem: str = ""
    fix: str = ""


def check_program(preset: Preset, path: str | None = None) -> ProgramCheck:
    """Check whether a preset's program can be used: find it on PATH (or `path`), run Node for its version where the
    preset needs one, and run the program for its version, with an empty home and no secret. Returns the program, its
    version, and the problem with what to do about it, empty where it can be used; nothing is raised."""
    path = path if path is not None else os.environ.get("PATH", os.defpath)
    install_hint = preset.install or "see the documentation of the agent"
    program = shutil.which(preset.command[0], path=path)
    if program is None:
        return ProgramCheck(problem=f"{preset.command[0]} is not installed, or not on PATH", fix=install_hint)
    if preset.node and (problem := _node_problem(preset.node, path)):
        return ProgramCheck(Path(program), problem=problem, fix=f"install Node {preset.node} or newer")
    result = _run_in_empty_home([program, *preset.command[1:], *preset.version.args], path)
    if result.reason:
        return ProgramCheck(Path(program), problem=f"it does not say its version: {result.reason}", fix=install_hint)
    version = find_version(result.output)
    if preset.version.least and not version:
        shown = shorten(" ".join(result.output.split()), 60)
        return ProgramCheck(Path(program), problem=f"no version in what it says: {shown!r}", fix=install_hint)
    if preset.version.least and is_older(version, preset.version.least):
        return ProgramCheck(
            Path(program), version, f"{version} is too old, {preset.version.least} is needed", install_hint
        )
    return ProgramCheck(Path(program), version)


def _node_problem(minimum: str, path: str) -> str:
    """Return why an agent cannot run with the Node of this host, in words; empty: it is new enough. Node is run for its
    version."""
    node = shutil.which("node", path=path)
    if node is None:
        return f"it needs Node {minimum} or newer, and there is no node on PATH"
    result = _run_in_empty_home([node, "--version"], path)
    if result.reason:
        return f"it needs Node {minimum} or newer, and node does not say its version: {result.reason}"
    version = find_version(result.output)
    return f"it needs Node {minimum} or newer, {version} is here" if not version or is_older(version, minimum) else ""


def _run_in_empty_home(command: list[str], path: str) -> ProgramResult:
    """Run a program for at most VERSION_S, with nothing in its environment; its home is empty and removed afterwards,
    because some write at once."""
    with tempfile.TemporaryDirectory(prefix="perdure-", ignore_cleanup_errors=True) as home:
        env = {"PATH": path, "HOME": home, "LANG": os.environ.get("LANG", "C.UTF-8")}
        return run_program(command, env, VERSION_S, Path(home))
