"""Tools by the names other agents give them, so that one screenplay drives the built-in agent and all others.

A screenplay names the built-in agent's tools. Where a request offers others, a call of `bash`, `read`, `write`, `edit`,
`glob` or `grep` becomes the call of an offered tool that does the same; a tool that is offered by its own name stays.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Collection
from typing import Any

from perdure.rehearsal.wire import Request, Text

Json = dict[str, Any]
Call = tuple[str, Json]

ANSWER = "StructuredOutput"
"""Claude Code's tool for an answer that has to follow a schema: it asks the API for none."""

_NAMES = frozenset({"bash", "read", "write", "edit", "glob", "grep"})

_DIRECTORY = re.compile(r"Primary working directory: (\S+)|<cwd>(\S+)</cwd>")
_YIELD_MS = 30_000
"""Codex gives a command that runs longer back to the model as a session; a screenplay has no line for that."""


def translated(tool: str, given: Json, request: Request) -> Call | None:
    """The same call by a tool that the request offers; None where there is none."""
    offered = {one.name: one.input_schema.model_dump().get("properties") or {} for one in request.tools}
    # Fields that only the tools of others have: they may have a name of ours, and take other words.
    others = "filePath" in offered.get("read", ()) or any("description" in offered.get(name, ()) for name in _SHELLS)
    if tool in offered and not (others and tool in _NAMES):
        return tool, given
    for needed, say in _SAID:
        if needed <= offered.keys():
            return say(tool, given, offered, _directory(request))
    return None


def answer_schema(request: Request) -> Json | None:
    """The schema of the tool that takes a structured answer; None where the request asks for it in the API's way."""
    found = [tool.input_schema.model_dump() for tool in request.tools if tool.name == ANSWER]
    return found[0] if found and request.json_schema is None else None


def _directory(request: Request) -> str:
    """The working directory that the agent has told the model; the last word about it counts."""
    first = [block.text for block in request.messages[0].content if isinstance(block, Text)]
    found = [one for text in [*(block.text for block in request.system), *first] for one in _DIRECTORY.findall(text)]
    return next(filter(None, found[-1])) if found else ""


def _shell(tool: str, given: Json) -> str | None:
    """The call as a command for a shell, where it is one that only looks."""
    match tool:
        case "bash":
            return str(given.get("command", ""))
        case "read":
            first, most = given.get("offset", 1), given.get("limit")
            last = "$" if most is None else first + most - 1
            return f"sed -n {shlex.quote(f'{first},{last}p')} {shlex.quote(given['path'])}"
        case "glob":
            pattern = posixpath.normpath(posixpath.join(given.get("path", "."), given["pattern"]))
            return f"git ls-files -co --exclude-standard -- {shlex.quote(f':(glob){pattern}')}"
        case "grep":
            flags = "-rnEi" if given.get("ignore_case") else "-rnE"
            only = f" --include={shlex.quote(given['glob'])}" if given.get("glob") else ""
            words = f"{shlex.quote(given['pattern'])} {shlex.quote(given.get('path', '.'))}"
            return f"grep {flags} --exclude-dir=.git{only} -e {words}"
        case _:
            return None


def _written(given: Json) -> str:
    folder = shlex.quote(posixpath.dirname(given["path"]) or ".")
    text, file = shlex.quote(given["content"]), shlex.quote(given["path"])
    return f"mkdir -p {folder} && printf %s {text} > {file}"


# ------------------------------------------------------------------------------------------------------ Claude Code

_CLAUDE = frozenset({"Bash", "Read"})


def _to_claude(tool: str, given: Json, offered: Collection[str], directory: str) -> Call | None:
    path = posixpath.join(directory, str(given.get("path", "")))
    match tool:
        case "read" if "path" in given:
            span: Json = {key: given[key] for key in ("offset", "limit") if key in given}
            return "Read", {"file_path": path, **span}
        case "write" if "Write" in offered:
            return "Write", {"file_path": path, "content": given["content"]}
        case "write":  # its barest set has no tool for it
            return "Bash", {"command": _written(given)}
        case "edit" if "Edit" in offered:
            whole = {"replace_all": True} if given.get("replace_all") else {}
            return "Edit", {"file_path": path, "old_string": given["old"], "new_string": given["new"], **whole}
        case _:
            command = _shell(tool, given)
            return None if command is None else ("Bash", {"command": command})


# ------------------------------------------------------------------------------------------------------------ Codex

_CODEX = frozenset({"exec_command"})
_CODE_MODE = frozenset({"exec"})


def _to_codex(tool: str, given: Json, offered: Collection[str], directory: str) -> Call | None:
    patch, command = _patch(tool, given), _shell(tool, given)
    if patch is not None and "apply_patch" in offered:
        return "apply_patch", {"input": patch}
    if patch is not None:  # a model it does not know has no such tool, but the command is there
        command = f"apply_patch <<'PATCH'\n{patch}PATCH"
    return None if command is None else ("exec_command", {"cmd": command, "yield_time_ms": _YIELD_MS})


def _to_code_mode(tool: str, given: Json, offered: Collection[str], directory: str) -> Call | None:
    """The newest models have one tool, a script that calls the others."""
    call = _to_codex(tool, given, {"apply_patch"}, directory)
    if call is None:
        return None
    name, inside = call
    argument = json.dumps(inside["input"] if name == "apply_patch" else inside)
    return "exec", {"input": f"text(await tools.{name}({argument}));"}


def _patch(tool: str, given: Json) -> str | None:
    """The change as a patch in Codex's own format; `old` and `new` have to be whole lines."""
    match tool:
        case "write":
            lines = ["*** Add File: " + given["path"], *_marked("+", given["content"])]
        case "edit":
            lines = [
                "*** Update File: " + given["path"],
                "@@",
                *_marked("-", given["old"]),
                *_marked("+", given["new"]),
            ]
        case _:
            return None
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def _marked(mark: str, text: str) -> list[str]:
    return [mark + line for line in text.splitlines()]


# ------------------------------------------------------------------------------------ opencode, Gemini, Qwen, Copilot

_SHELLS = ("bash", "run_shell_command")
_EDIT = "import pathlib as p, sys; a = sys.argv; f = p.Path(a[1]); f.write_text(f.read_text().replace(*a[2:4]))"


def _to_shell(tool: str, given: Json, offered: Collection[str], directory: str) -> Call | None:
    """All by the shell that each of them has: their other tools differ, and with the model."""
    match tool:
        case "write":
            command: str | None = _written(given)
        case "edit":
            command = shlex.join(["python3", "-c", _EDIT, given["path"], given["old"], given["new"]])
        case _:
            command = _shell(tool, given)
    name = next(one for one in _SHELLS if one in offered)
    return None if command is None else (name, {"command": command, "description": tool})


_SAID = (
    (_CLAUDE, _to_claude),
    (_CODE_MODE, _to_code_mode),
    (_CODEX, _to_codex),
    *((frozenset({shell}), _to_shell) for shell in _SHELLS),
)
