"""The process of a CLI agent: its arguments, variables and home, and what of the host its sandbox shows."""

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

from perdure.adapters.agents.acp import stdio_over_socket
from perdure.adapters.sandbox import bridge
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.models.errors import BadInput
from perdure.models.limits import DEFAULTS
from perdure.models.preset import Preset, fill_placeholders

AGENT_PORT = 8377
"""The port of the bridge, on the sandbox's own loopback: nobody else listens there before the agent's first command."""

AGENT_HOME = "/agent"
"""The agent's home inside: on the host's disk, since it is kept, and so not where the sandbox's memory is counted."""

PLACEHOLDER = "placeholder"
"""The value an agent takes for its key; the proxy puts the real one in its place."""

_HOMES = {
    "HOME": AGENT_HOME,
    "XDG_CONFIG_HOME": f"{AGENT_HOME}/.config",
    "XDG_DATA_HOME": f"{AGENT_HOME}/.local/share",
    "XDG_STATE_HOME": f"{AGENT_HOME}/.local/state",
}
"""Variables that name the directories in which an agent looks for its settings and its memory."""

_PROMPT, _SCHEMA = ".perdure-prompt", ".perdure-schema.json"
_PROGRAM_LINKS = 4
"""Directories above a program among which its package is looked for."""


@dataclass(frozen=True)
class AgentStartRequest:
    """One start of an agent.

    session         the id of a new session where the preset names it, else of the one to go on with
    resumed         it goes on with a session whose files are in the home
    schema          of the structured answer; None: it answers in free text
    restart_prompt  the prompt where it should go on with a session and cannot: with all that was done
    """

    prompt: str
    model: str
    session: str
    resumed: bool
    schema: Mapping[str, Any] | None = None
    writes: bool = True
    effort: str = ""
    max_tokens: int = DEFAULTS.max_tokens
    restart_prompt: str = ""


def find_program(preset: Preset, path: str | None = None) -> Path:
    """Return the file of a preset's program, behind all links; `path` is searched, None: PATH. Raises BadInput, which
    says how to install it, when it is not here."""
    location = shutil.which(preset.command[0], path=path)
    if location is None:
        raise BadInput(
            f"{preset.title} is not installed: there is no {preset.command[0]!r} on the worker's PATH",
            fix=preset.install or "install it, or take another agent",
        )
    return Path(location).resolve()


def package_of(file: Path) -> Path:
    """Return the directory with all that a program needs of its own: its package, else the program alone."""
    for parent in [*file.parents][:_PROGRAM_LINKS]:
        if (parent / "package.json").is_file() or parent.name == "vendor":
            return parent.parent if parent.name == "vendor" else parent
    return file


def write_home_files(home: Path, preset: Preset, start_request: AgentStartRequest) -> None:
    """Write into a home what the agent finds there: its settings, the prompt, the schema of the answer."""
    files = {name: fill_placeholders(text, _placeholder_values(start_request)) for name, text in preset.files.items()}
    files[_PROMPT] = start_request.prompt
    if start_request.schema is not None:
        files[_SCHEMA] = json.dumps(start_request.schema)
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")


def make_agent_command(
    base_command: SandboxCommand,
    preset: Preset,
    start_request: AgentStartRequest,
    *,
    home: Path,
    socket: Path,
    output: Path,
    streams: Path | None,
) -> SandboxCommand:
    """Return the sandboxed command: the bridge, and behind it the agent in its home, which is the host's `home`.

    base_command  what all commands of the delivery share
    socket        the proxy's, to which the bridge connects
    streams       the socket that becomes the agent's standard input and output, for one that speaks the Agent Client
                  Protocol; None: it gets its prompt as the preset says

    Raises BadInput when the program is not here.
    """
    file, values = find_program(preset), _placeholder_values(start_request)
    resumed = start_request.resumed and streams is None
    arguments = preset.command_line(
        values, resumed=resumed, answers=start_request.schema is not None, reads=not start_request.writes
    )
    agent_arguments, python = [str(file), *arguments[1:]], [os.path.realpath(sys.executable), "-I", "-S"]
    if streams is not None:
        agent_arguments = [*python, stdio_over_socket.__file__, str(streams), *agent_arguments]
    elif preset.prompt == "argument":
        agent_arguments.append(start_request.prompt)
    bridged = [*python, bridge.__file__, str(socket), str(AGENT_PORT), *agent_arguments]
    stdin_path = f"{AGENT_HOME}/{_PROMPT}" if preset.prompt == "stdin" and streams is None else "/dev/null"
    stream_paths = (streams, Path(stdio_over_socket.__file__)) if streams is not None else ()
    return replace(
        base_command,
        script=f"exec {shlex.join(bridged)} <{stdin_path} 2>{AGENT_HOME}/.perdure-errors",
        output=output,
        writable=start_request.writes,
        results=home,
        results_at=Path(AGENT_HOME),
        env={
            **base_command.env,
            **_HOMES,
            **{name: fill_placeholders(text, values) for name, text in preset.env.items()},
        },
        visible_paths=(
            *base_command.visible_paths,
            package_of(file),
            socket,
            *stream_paths,
            Path(bridge.__file__),
            Path(sys.base_prefix),
        ),
    )


def _placeholder_values(start_request: AgentStartRequest) -> dict[str, str]:
    """Return the values of the placeholders in a preset's texts, by name."""
    return {
        "model": start_request.model,
        "session": start_request.session,
        "effort": start_request.effort,
        "max_tokens": str(start_request.max_tokens),
        "schema": json.dumps(start_request.schema) if start_request.schema is not None else "",
        "schema_file": f"{AGENT_HOME}/{_SCHEMA}",
        "prompt": start_request.prompt,
        "proxy": f"http://127.0.0.1:{AGENT_PORT}",
        "key": PLACEHOLDER,
        "home": AGENT_HOME,
    }
