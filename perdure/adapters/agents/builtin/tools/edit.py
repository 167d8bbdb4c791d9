"""The tools edit and write: change a file of the worktree, or make one."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import AgentTool, ToolCall, run_in_threads
from perdure.adapters.agents.builtin.tools.paths import (
    ToolError,
    content_version,
    has_nul_byte,
    read_bytes,
    resolve_path,
    write_bytes,
)
from perdure.adapters.agents.builtin.tools.read_file import version_line
from perdure.models.base import UserInputModel

_LINES_NAMED = 10


class EditInput(UserInputModel):
    path: str = Field(description="relative to the repository's root")
    old: str = Field(description="the exact text to replace, without line numbers; must occur once")
    new: str = Field(description="the text to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


def _edit_file(arguments: EditInput, call: ToolCall) -> str:
    """Replace a text in a file, once or at every place, and return a line with the file's new version, which the
    toolbox then knows. Raises ToolError unless the file was read before, is unchanged since, and holds the text as
    often as the call says."""
    box = call.box
    path, shown_path = resolve_path(box.worktree, arguments.path, box.inside, writing=True, installed=box.shared)
    data = read_bytes(path, shown_path)
    if has_nul_byte(data):
        raise ToolError(f"{shown_path}: a binary file")
    _require_current_version(call, shown_path, data)
    old, new = (_with_line_ends_of(data, text) for text in (arguments.old, arguments.new))
    if not old:
        raise ToolError("old is empty; to create or replace a whole file use write")
    if old == new:
        raise ToolError("old and new are the same: nothing would change")
    lines = _match_lines(data, old)
    if not lines:
        raise ToolError(f"{shown_path}: 0 matches of old. {_near_match_hint(data, old)}")
    if len(lines) > 1 and not arguments.replace_all:
        raise ToolError(
            f"{shown_path}: {len(lines)} matches of old, at lines {_list_numbers(lines)}; "
            "add lines around it until it occurs once, or set replace_all"
        )
    changed = data.replace(old, new)
    write_bytes(path, changed, shown_path)
    call.box.read_files[shown_path] = content_version(changed)
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places, lines {_list_numbers(lines)}"
    return version_line(shown_path, changed, f"edited at {where}")


def _require_current_version(call: ToolCall, shown_path: str, data: bytes) -> None:
    """Raise ToolError unless the conversation has read this file and it is unchanged since."""
    read_version = call.box.read_files.get(shown_path)
    if read_version is None:
        raise ToolError(f"{shown_path}: read the file before you edit it")
    if read_version != content_version(data):
        raise ToolError(f"{shown_path}: changed since you read it; read it again")


def _with_line_ends_of(data: bytes, text: str) -> bytes:
    """Return the text with the line ends of the file's `data`: a model sees and writes `\n` alone."""
    encoded = text.encode()
    return encoded.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") if has_crlf(data) else encoded


def _match_lines(data: bytes, old: bytes) -> list[int]:
    """Return the line numbers at which `old` begins, for matches that do not overlap: those that replacing would
    replace."""
    lines, position, line = [], 0, 1
    while (offset := data.find(old, position)) >= 0:
        line += data.count(b"\n", position, offset)
        lines.append(line)
        line += old.count(b"\n")
        position = offset + len(old)
    return lines


def _near_match_hint(data: bytes, old: bytes) -> str:
    """Return where the first line of a text that was not found does occur, if white space is ignored, or else advice to
    read the file again."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), b"")
    lines = [number for number, line in enumerate(data.splitlines(), 1) if first and line.strip() == first]
    if not lines:
        return "Read the file again and copy the text exactly."
    where = f"{'line' if len(lines) == 1 else 'lines'} {_list_numbers(lines)}"
    return f"Its first line stands at {where}: check what follows it, and white space."


def _list_numbers(lines: list[int]) -> str:
    """Return line numbers as a text, at most _LINES_NAMED of them, then how many more there are."""
    rest = len(lines) - _LINES_NAMED
    return ", ".join(map(str, lines[:_LINES_NAMED])) + (f" and {rest} more" if rest > 0 else "")


EDIT = AgentTool(
    "edit",
    "Replace an exact piece of text in a file you have read. It must occur exactly once, unless replace_all is set.",
    EditInput,
    run_in_threads(_edit_file),
)


class WriteInput(UserInputModel):
    path: str = Field(description="relative to the repository's root; missing directories are made")
    content: str = Field(description="the whole file")


def _write_file(arguments: WriteInput, call: ToolCall) -> str:
    """Create a file or replace all of it, and return a line with its new version, which the toolbox then knows. A file
    whose lines all end in CRLF keeps these ends. Raises ToolError for the repository itself, and for a file that cannot
    be written."""
    box = call.box
    path, shown_path = resolve_path(box.worktree, arguments.path, box.inside, writing=True, installed=box.shared)
    if shown_path == ".":
        raise ToolError("path names the repository itself; name a file")
    old_data = read_bytes(path, shown_path) if path.exists() else None
    data = arguments.content.encode()
    line_ends_note = ""
    if old_data is not None and has_crlf(old_data) and b"\r\n" not in data:
        data, line_ends_note = data.replace(b"\n", b"\r\n"), ", CRLF line ends kept"
    write_bytes(path, data, shown_path)
    call.box.read_files[shown_path] = content_version(data)
    return version_line(
        shown_path,
        data,
        f"{'written' if old_data is None else 'replaced'}, {len(data.splitlines())} lines{line_ends_note}",
    )


def has_crlf(data: bytes) -> bool:
    """Return whether every line ends as on Windows: then new text does so too."""
    return b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n")


WRITE = AgentTool(
    "write",
    "Create a file of the repository, or replace all of it. To change part of a file use edit.",
    WriteInput,
    run_in_threads(_write_file),
)
