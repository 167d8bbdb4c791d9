"""The process of a CLI agent, for the worker that runs its turns: its arguments, variables and home, and what of the
host its sandbox shows; its session files, as bytes that a checkpoint can name; and its output, parsed as its preset
says. `perdure.adapters.worker.turn` uses it and starts the process; what the output claims is no verdict."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.agents.acp import stdio_over_socket
from perdure.adapters.sandbox import bridge
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.system.files import read_regular_file
from perdure.models.base import Json
from perdure.models.config.preset import EventSelector, Preset, fill_placeholders
from perdure.models.errors import BadInput, WorkspaceLost
from perdure.models.limits import DEFAULTS

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
    """A start of an agent.

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
    """Return the directory with all that a program needs of its own, among the _PROGRAM_LINKS directories above it: the
    nearest one with a package.json, or the one that holds a directory `vendor` above the program; else the program
    alone."""
    for parent in [*file.parents][:_PROGRAM_LINKS]:
        if (parent / "package.json").is_file() or parent.name == "vendor":
            return parent.parent if parent.name == "vendor" else parent
    return file


def write_home_files(home: Path, preset: Preset, start_request: AgentStartRequest) -> None:
    """Write into a home what the agent finds there: the preset's files with their placeholders filled, the prompt, and
    the schema of the answer where there is one. Missing directories are made, existing files replaced."""
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
    """Return the sandboxed command: the bridge to the proxy, and behind it the agent in its home, which is the host's
    `home`. Nothing is started or written.

    base_command  what all commands of the delivery share
    socket        the proxy's, to which the bridge connects
    output        the file for the agent's standard output; its errors go to a file in its home
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


MEMORY_BYTES = 64 * 1024**2
"""The most bytes of all session files of one step: a long session has a few; beyond that it is no session."""


def pack_session_files(home: Path, globs: Sequence[str]) -> bytes:
    """Return the session files of a home, those that match the globs, as an archive; equal files give equal bytes.
    Links and what cannot be read are left out. Raises WorkspaceLost when the files are too large to be kept."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in _session_files(home, globs):
            data = read_home_file(home, file.relative_to(home), MEMORY_BYTES)
            if data is None:
                continue
            entry = tarfile.TarInfo(str(file.relative_to(home)))
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
            if buffer.tell() > MEMORY_BYTES:
                raise WorkspaceLost(f"the agent's session is larger than {MEMORY_BYTES // 1024**2} MiB")
    return buffer.getvalue()


def unpack_session_files(home: Path, memory: bytes) -> None:
    """Write the files of an archive of `pack_session_files` into another home."""
    with tarfile.open(fileobj=io.BytesIO(memory)) as archive:
        archive.extractall(home, filter="data")


def has_all_results(home: Path, globs: Sequence[str], ids: Iterable[str]) -> bool:
    """Return whether the results of all these calls stand in the session files: each id is found at least twice, as a
    call and with its result.

    Agents write a little later than they ask: what is not there yet would be forgotten.
    """
    files = (read_home_file(home, file.relative_to(home), MEMORY_BYTES) for file in _session_files(home, globs))
    text = b"".join(data for data in files if data is not None)
    return all(text.count(call_id.encode()) >= _CALL_AND_RESULT for call_id in ids)


_CALL_AND_RESULT = 2


def read_home_file(home: Path, name: Path, max_bytes: int) -> bytes | None:
    """Read the first bytes of a file in an agent's home, one more than `max_bytes` at most; None where it is no plain
    file there.

    The agent may live, and put a link in the place of any part of the path meanwhile: none is followed.
    """
    directory_fd = os.open(home, _OPEN_DIRECTORY)
    try:
        for part in name.parts[:-1]:
            child_fd = os.open(part, _OPEN_DIRECTORY, dir_fd=directory_fd)
            os.close(directory_fd)
            directory_fd = child_fd
        return read_regular_file(name.name, max_bytes, directory_fd)
    except OSError:
        return None
    finally:
        os.close(directory_fd)


_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _session_files(home: Path, globs: Sequence[str]) -> list[Path]:
    """Return the paths below a home that match the globs, sorted; a last `**` stands for all below."""
    # Before Python 3.13 a last `**` finds directories alone.
    return sorted(
        {file for pattern in globs for file in home.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)}
    )


AGENT_OUTPUT_BYTES = 16 * 1024**2
"""Bytes that are parsed from the end of an agent's output: the result is last, and some print without end."""


@dataclass(frozen=True)
class AgentClaim:
    """The end of an agent's run, as its output tells it.

    ended    nothing more comes
    well     it ended well
    text     its last text; answer: the structured answer as JSON, empty without one
    session  the session's id, where the agent chose it
    error    why it did not end well
    """

    ended: bool
    well: bool
    text: str = ""
    answer: str = ""
    session: str = ""
    error: str = ""


def parse_output(preset: Preset, output: bytes) -> AgentClaim:
    """Return what an agent's output says about its end, found by the selectors of its preset; fields that it does not
    tell are empty or False. Lines that are no JSON object are passed over, and of a long output only the end is
    parsed."""
    events = _parse_events(preset, output[-AGENT_OUTPUT_BYTES:])
    result = preset.result
    answer = _select_value(events, result.answer)
    return AgentClaim(
        ended=any(_last_event(events, selector) is not None for selector in result.ended),
        well=result.well is not None and _last_event(events, result.well) is not None,
        text=_text_or_empty(_select_value(events, result.text)),
        answer=answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer),
        session=_text_or_empty(_select_value(events, result.session)),
        error=next(filter(None, (_text_or_empty(_select_value(events, selector)) for selector in result.error)), ""),
    )


def _parse_events(preset: Preset, output: bytes) -> list[Json]:
    """Parse the JSON objects of an output: one a line, or the output as a whole; what is no JSON object is left out."""
    texts = output.splitlines() if preset.output == "json-lines" else [output]
    events = []
    for text in texts:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _last_event(events: Sequence[Json], selector: EventSelector) -> Json | None:
    """Return the last event in which every path of the selector has its value; None: there is none."""
    for event in reversed(events):
        if all(_value_at(event, path) == value for path, value in selector.where.items()):
            return event
    return None


def _select_value(events: Sequence[Json], selector: EventSelector | None) -> Any:
    """Return the value that a selector finds in the events; None where no event matches, or without a selector."""
    event = None if selector is None else _last_event(events, selector)
    return None if selector is None or event is None else _value_at(event, selector.path)


def _value_at(event: Any, path: str) -> Any:
    """Return the value at a dotted path of an event; None where there is none. An empty path is the event itself."""
    for name in filter(None, path.split(".")):
        event = event.get(name) if isinstance(event, dict) else None
    return event


def _text_or_empty(value: Any) -> str:
    """Return a value that is a text, else an empty one."""
    return value if isinstance(value, str) else ""
