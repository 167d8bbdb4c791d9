"""edit and write: change a file of the worktree, or make one."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import Tool, ToolCall, threaded
from perdure.adapters.agents.builtin.tools.paths import ToolError, inside, is_binary, read_bytes, version, write_bytes
from perdure.adapters.agents.builtin.tools.read import seen
from perdure.models.base import Written

_LINES_NAMED = 10


class EditInput(Written):
    path: str = Field(description="relative to the repository's root")
    old: str = Field(description="the exact text to replace, without line numbers; must occur once")
    new: str = Field(description="the text to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


def _edit(given: EditInput, call: ToolCall) -> str:
    box = call.box
    path, shown = inside(box.worktree, given.path, box.inside, writing=True, installed=box.shared)
    data = read_bytes(path, shown)
    if is_binary(data):
        raise ToolError(f"{shown}: a binary file")
    _must_know(call, shown, data)
    old, new = (_as_in(data, text) for text in (given.old, given.new))
    if not old:
        raise ToolError("old is empty; to create or replace a whole file use write")
    if old == new:
        raise ToolError("old and new are the same: nothing would change")
    lines = _found_at(data, old)
    if not lines:
        raise ToolError(f"{shown}: 0 matches of old. {_hint(data, old)}")
    if len(lines) > 1 and not given.replace_all:
        raise ToolError(
            f"{shown}: {len(lines)} matches of old, at lines {_named(lines)}; "
            "add lines around it until it occurs once, or set replace_all"
        )
    changed = data.replace(old, new)
    write_bytes(path, changed, shown)
    call.box.read_files[shown] = version(changed)
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places, lines {_named(lines)}"
    return seen(shown, changed, f"edited at {where}")


def _must_know(call: ToolCall, shown: str, data: bytes) -> None:
    known = call.box.read_files.get(shown)
    if known is None:
        raise ToolError(f"{shown}: read the file before you edit it")
    if known != version(data):
        raise ToolError(f"{shown}: changed since you read it; read it again")


def _as_in(data: bytes, text: str) -> bytes:
    """The text with the file's line ends: a model sees and writes `\\n` alone."""
    wanted = text.encode()
    return wanted.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") if has_crlf(data) else wanted


def _found_at(data: bytes, old: bytes) -> list[int]:
    """Line numbers at which `old` begins, matches that do not overlap: those that replacing would replace."""
    lines, position, line = [], 0, 1
    while (found := data.find(old, position)) >= 0:
        line += data.count(b"\n", position, found)
        lines.append(line)
        line += old.count(b"\n")
        position = found + len(old)
    return lines


def _hint(data: bytes, old: bytes) -> str:
    """Say where the first line of a text that was not found does occur, if white space is left aside."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), b"")
    near = [number for number, line in enumerate(data.splitlines(), 1) if first and line.strip() == first]
    if not near:
        return "Read the file again and copy the text exactly."
    where = f"{'line' if len(near) == 1 else 'lines'} {_named(near)}"
    return f"Its first line stands at {where}: check what follows it, and white space."


def _named(lines: list[int]) -> str:
    rest = len(lines) - _LINES_NAMED
    return ", ".join(map(str, lines[:_LINES_NAMED])) + (f" and {rest} more" if rest > 0 else "")


EDIT = Tool(
    "edit",
    "Replace an exact piece of text in a file you have read. It must occur exactly once, unless replace_all is set.",
    EditInput,
    threaded(_edit),
)


class WriteInput(Written):
    path: str = Field(description="relative to the repository's root; missing directories are made")
    content: str = Field(description="the whole file")


def _write(given: WriteInput, call: ToolCall) -> str:
    box = call.box
    path, shown = inside(box.worktree, given.path, box.inside, writing=True, installed=box.shared)
    if shown == ".":
        raise ToolError("path names the repository itself; name a file")
    old = read_bytes(path, shown) if path.exists() else None
    data = given.content.encode()
    kept = ""
    if old is not None and has_crlf(old) and b"\r\n" not in data:
        data, kept = data.replace(b"\n", b"\r\n"), ", CRLF line ends kept"
    write_bytes(path, data, shown)
    call.box.read_files[shown] = version(data)
    return seen(shown, data, f"{'written' if old is None else 'replaced'}, {len(data.splitlines())} lines{kept}")


def has_crlf(data: bytes) -> bool:
    """True where every line ends as on Windows: then new text does so too."""
    return b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n")


WRITE = Tool(
    "write",
    "Create a file of the repository, or replace all of it. To change part of a file use edit.",
    WriteInput,
    threaded(_write),
)
