"""The process of a CLI agent: its words, variables and home, and what of the host its sandbox shows."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.agents.acp import plug
from perdure.adapters.sandbox import bridge
from perdure.adapters.sandbox.base import Command
from perdure.models.errors import BadInput
from perdure.models.limits import DEFAULTS
from perdure.models.preset import Preset, fill

AGENT_PORT = 8377
"""Of the bridge, on the sandbox's own loopback: nobody else listens there before the agent's first command."""

AGENT_HOME = "/agent"
"""The agent's home inside: on the host's disk, since it is kept, and so not where the sandbox's memory is counted."""

PLACEHOLDER = "placeholder"
"""An agent takes this for its key; the proxy puts the real one in its place."""

_HOMES = {
    "HOME": AGENT_HOME,
    "XDG_CONFIG_HOME": f"{AGENT_HOME}/.config",
    "XDG_DATA_HOME": f"{AGENT_HOME}/.local/share",
    "XDG_STATE_HOME": f"{AGENT_HOME}/.local/state",
}
"""Its settings and its memory are looked for there."""

_PROMPT, _SCHEMA = ".perdure-prompt", ".perdure-schema.json"
_PROGRAM_LINKS = 4
"""Directories above a program among which its package is looked for."""


@dataclass(frozen=True)
class Asking:
    """One start of an agent.

    session  that of a new session where the preset names it, else the one to go on with
    resumed  it goes on with a session whose files are in the home
    schema   of the structured answer; None: it answers in words
    anew     the prompt where it should go on with a session and cannot: with all that was done
    """

    prompt: str
    model: str
    session: str
    resumed: bool
    schema: Mapping[str, Any] | None = None
    writes: bool = True
    effort: str = ""
    max_tokens: int = DEFAULTS.max_tokens
    anew: str = ""


def program(preset: Preset, path: str | None = None) -> Path:
    """The program itself behind all links. BadInput with the words that install it when it is not here."""
    found = shutil.which(preset.command[0], path=path)
    if found is None:
        raise BadInput(
            f"{preset.title} is not installed: there is no {preset.command[0]!r} on the worker's PATH",
            fix=preset.install or "install it, or take another agent",
        )
    return Path(found).resolve()


def package(file: Path) -> Path:
    """The directory with all that a program needs of its own: its package, else the program alone."""
    for parent in [*file.parents][:_PROGRAM_LINKS]:
        if (parent / "package.json").is_file() or parent.name == "vendor":
            return parent.parent if parent.name == "vendor" else parent
    return file


def furnish(home: Path, preset: Preset, asking: Asking) -> None:
    """Write into a home what the agent finds there: its settings, the prompt, the schema of the answer."""
    files = {name: fill(text, _places(asking)) for name, text in preset.files.items()}
    files[_PROMPT] = asking.prompt
    if asking.schema is not None:
        files[_SCHEMA] = json.dumps(asking.schema)
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")


def command(
    common: Command, preset: Preset, asking: Asking, *, home: Path, socket: Path, output: Path, streams: Path | None
) -> Command:
    """The sandboxed command: the bridge, and behind it the agent in its home, which is the host's `home`.

    `common` is what all commands of the delivery share. `streams`: the socket that is its standard input and output,
    where it is spoken to. BadInput when the program is not here.
    """
    file, places = program(preset), _places(asking)
    resumed = asking.resumed and streams is None
    words = preset.words(places, resumed=resumed, answers=asking.schema is not None, reads=not asking.writes)
    filled, python = [str(file), *words[1:]], [os.path.realpath(sys.executable), "-I", "-S"]
    if streams is not None:
        filled = [*python, plug.__file__, str(streams), *filled]
    elif preset.prompt == "argument":
        filled.append(asking.prompt)
    bridged = [*python, bridge.__file__, str(socket), str(AGENT_PORT), *filled]
    given = f"{AGENT_HOME}/{_PROMPT}" if preset.prompt == "stdin" and streams is None else "/dev/null"
    told = (streams, Path(plug.__file__)) if streams is not None else ()
    return replace(
        common,
        script=f"exec {shlex.join(bridged)} <{given} 2>{AGENT_HOME}/.perdure-errors",
        output=output,
        writable=asking.writes,
        results=home,
        results_at=Path(AGENT_HOME),
        env={**common.env, **_HOMES, **{name: fill(text, places) for name, text in preset.env.items()}},
        shown=(*common.shown, package(file), socket, *told, Path(bridge.__file__), Path(sys.base_prefix)),
    )


def _places(asking: Asking) -> dict[str, str]:
    return {
        "model": asking.model,
        "session": asking.session,
        "effort": asking.effort,
        "max_tokens": str(asking.max_tokens),
        "schema": json.dumps(asking.schema) if asking.schema is not None else "",
        "schema_file": f"{AGENT_HOME}/{_SCHEMA}",
        "prompt": asking.prompt,
        "proxy": f"http://127.0.0.1:{AGENT_PORT}",
        "key": PLACEHOLDER,
        "home": AGENT_HOME,
    }
