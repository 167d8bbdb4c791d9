"""The tool read: a file with line numbers."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import AgentTool, ToolCall, run_in_threads
from perdure.adapters.agents.builtin.tools.paths import (
    ToolError,
    content_version,
    has_nul_byte,
    read_bytes,
    resolve_path,
)
from perdure.models.base import UserInputModel
from perdure.models.limits import READ_LINE_CHARS, READ_LINES, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL

_SHOWN_CHARS = TOOL_OUTPUT_HEAD + TOOL_OUTPUT_TAIL


class ReadFileInput(UserInputModel):
    path: str = Field(description="relative to the repository's root")
    offset: int = Field(default=1, ge=1, description="first line to show; default 1")
    limit: int = Field(default=READ_LINES, ge=1, description=f"lines to show; default and most {READ_LINES}")


def _read_file(arguments: ReadFileInput, call: ToolCall) -> str:
    """Return lines of a file with their numbers, below a line with the file's version, which the toolbox then knows.
    Raises ToolError for a binary file, and for an offset past its end."""
    path, shown_path = resolve_path(call.box.worktree, arguments.path, call.box.inside)
    data = read_bytes(path, shown_path)
    if has_nul_byte(data):
        raise ToolError(f"{shown_path}: a binary file of {len(data)} bytes")
    lines = _split_lines(data)
    if arguments.offset > max(len(lines), 1):
        raise ToolError(f"{shown_path}: has {len(lines)} lines, offset {arguments.offset} is past its end")
    text, last = _number_lines(lines, arguments.offset, min(arguments.limit, READ_LINES))
    call.box.read_files[shown_path] = content_version(data)
    title = version_line(shown_path, data, f"lines {arguments.offset}-{last} of {len(lines)}" if lines else "empty")
    rest_note = f"\n[{len(lines) - last} more lines: read on with offset={last + 1}]" if last < len(lines) else ""
    return f"{title}\n{text}{rest_note}".rstrip("\n")


def _split_lines(data: bytes) -> list[str]:
    """Split a file where edit counts lines: at `\n` alone, not at the form feeds and separators of str.splitlines."""
    lines = data.decode("utf-8-sig", "replace").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _number_lines(lines: list[str], first: int, count: int) -> tuple[str, int]:
    """Return up to `count` lines with their numbers, as many as a tool result may hold, and the number of the last one
    shown."""
    shown: list[str] = []
    remaining_chars = _SHOWN_CHARS
    number = first - 1
    for number, line in enumerate(lines[first - 1 : first - 1 + count], first):
        shortened = line if len(line) <= READ_LINE_CHARS else f"{line[:READ_LINE_CHARS]}… [{len(line)} characters]"
        remaining_chars -= len(shortened) + 8
        if remaining_chars < 0 and shown:
            number -= 1
            break
        shown.append(f"{number:6}\t{shortened}")
    return "\n".join(shown), number


def version_line(shown_path: str, data: bytes, description: str) -> str:
    """Return the first line of a result that tells which version of a file the conversation knows: see
    `parse_version_line`."""
    return f"{shown_path}: {description} · version {content_version(data)}"


def parse_version_line(result: str) -> tuple[str, str] | None:
    """Parse the first line of a read, write or edit result into relative path and version; None when it tells none."""
    title = result.partition("\n")[0]
    path_and_description, separator, file_version = title.rpartition(" · version ")
    path, colon, _ = path_and_description.rpartition(": ")
    return (path, file_version) if colon and separator else None


READ = AgentTool(
    "read",
    "Show a text file of the repository with line numbers. Read a file before you edit it.",
    ReadFileInput,
    run_in_threads(_read_file),
)
