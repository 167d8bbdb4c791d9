"""read: a file with line numbers."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import Tool, ToolCall, threaded
from perdure.adapters.agents.builtin.tools.paths import ToolError, inside, is_binary, read_bytes, version
from perdure.models.base import Written
from perdure.models.limits import READ_LINE_CHARS, READ_LINES, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL

_SHOWN_CHARS = TOOL_OUTPUT_HEAD + TOOL_OUTPUT_TAIL


class ReadInput(Written):
    path: str = Field(description="relative to the repository's root")
    offset: int = Field(default=1, ge=1, description="first line to show; default 1")
    limit: int = Field(default=READ_LINES, ge=1, description=f"lines to show; default and most {READ_LINES}")


def _read(given: ReadInput, call: ToolCall) -> str:
    path, shown = inside(call.box.worktree, given.path, call.box.inside)
    data = read_bytes(path, shown)
    if is_binary(data):
        raise ToolError(f"{shown}: a binary file of {len(data)} bytes")
    lines = _lines(data)
    if given.offset > max(len(lines), 1):
        raise ToolError(f"{shown}: has {len(lines)} lines, offset {given.offset} is past its end")
    text, last = _numbered(lines, given.offset, min(given.limit, READ_LINES))
    call.box.read_files[shown] = version(data)
    title = seen(shown, data, f"lines {given.offset}-{last} of {len(lines)}" if lines else "empty")
    more = f"\n[{len(lines) - last} more lines: read on with offset={last + 1}]" if last < len(lines) else ""
    return f"{title}\n{text}{more}".rstrip("\n")


def _lines(data: bytes) -> list[str]:
    """Split where edit counts lines: at `\\n` alone, not at the form feeds and separators of str.splitlines."""
    lines = data.decode("utf-8-sig", "replace").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _numbered(lines: list[str], first: int, count: int) -> tuple[str, int]:
    """(lines with their numbers, number of the last one shown), within what a tool result may hold."""
    shown: list[str] = []
    room = _SHOWN_CHARS
    number = first - 1
    for number, line in enumerate(lines[first - 1 : first - 1 + count], first):
        cut = line if len(line) <= READ_LINE_CHARS else f"{line[:READ_LINE_CHARS]}… [{len(line)} characters]"
        room -= len(cut) + 8
        if room < 0 and shown:
            number -= 1
            break
        shown.append(f"{number:6}\t{cut}")
    return "\n".join(shown), number


def seen(shown: str, data: bytes, what: str) -> str:
    """First line of a result that tells which version of a file the conversation knows: see `known_version`."""
    return f"{shown}: {what} · version {version(data)}"


def known_version(result: str) -> tuple[str, str] | None:
    """(relative path, version) from the first line of a read, write or edit result; None when it tells none."""
    title = result.partition("\n")[0]
    left, mark, known = title.rpartition(" · version ")
    path, colon, _ = left.rpartition(": ")
    return (path, known) if colon and mark else None


READ = Tool(
    "read",
    "Show a text file of the repository with line numbers. Read a file before you edit it.",
    ReadInput,
    threaded(_read),
)
