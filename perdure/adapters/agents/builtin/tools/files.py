"""The tools read, edit and write: show a file of the worktree with line numbers, change it, or make one; and the first
lines of what a cheap checker says about a file after an edit, so that a slip costs no turn of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import (
    AgentTool,
    ToolCall,
    ToolError,
    content_version,
    has_nul_byte,
    read_bytes,
    resolve_path,
    run_in_threads,
    write_bytes,
)
from perdure.adapters.system.output import read_excerpt
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel
from perdure.models.limits import READ_LINE_CHARS, READ_LINES, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL
from perdure.text import shorten

_SHOWN_CHARS = TOOL_OUTPUT_HEAD + TOOL_OUTPUT_TAIL


class ReadFileInput(UserInputModel):
    path: str = Field(description="relative to the repository's root")
    offset: int = Field(default=1, ge=1, description="first line to show; default 1")
    limit: int = Field(default=READ_LINES, ge=1, description=f"lines to show; default and most {READ_LINES}")


def _read_file(arguments: ReadFileInput, call: ToolCall) -> str:
    """Return lines of a file with their numbers, below a line with the file's version, which is also kept in the
    toolbox's `read_files`; at most as many as a tool result may hold, with a line that says how to read on. Raises
    ToolError for a path that is not allowed or cannot be read, a binary file, and an offset past its end."""
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
    """Return up to `count` lines from line `first` on with their numbers, as many as a tool result may hold but at
    least one, and the number of the last one shown. Long lines are cut."""
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


_LINES_NAMED = 10


class EditInput(UserInputModel):
    path: str = Field(description="relative to the repository's root")
    old: str = Field(description="the exact text to replace, without line numbers; must occur once")
    new: str = Field(description="the text to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


def _edit_file(arguments: EditInput, call: ToolCall) -> str:
    """Replace a text in a file, once or at every place, keep the new version in the toolbox's `read_files`, and return
    a line that tells it. Raises ToolError for a path that may not be written, a binary file, a replacement that changes
    nothing, and unless the file was read before, is unchanged since, and holds the text as often as the call says."""
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
    """Create a file, with missing directories, or replace all of it, keep its new version in the toolbox's
    `read_files`, and return a line that tells it. A file whose lines all end in CRLF keeps these ends, unless the new
    text has some.

    Raises ToolError for a path that is the top directory, in .git, outside or installed by setup, for an existing file
    that cannot be read or is too large, and for one that cannot be written.
    """
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


CHECK_TIMEOUT_S = 10.0
"""The limit of a checker that is worth its time after every edit; one that takes longer is not run again in this
workspace."""

CHECK_LINES, CHECK_CHARS = 10, 2000
"""The most that is shown of its output: the first mistake is the cause of most others."""

_FILE_BYTES = 1_000_000
"""The largest file that is checked: larger ones are generated, and slow to check."""

_PYTHON = """
if [ -f ruff.toml ] || [ -f .ruff.toml ] || grep -qs '^\\[tool\\.ruff' pyproject.toml; then
  for ruff in .venv/bin/ruff venv/bin/ruff "$(command -v ruff)"; do
    if [ -x "$ruff" ]; then
      echo "ruff check"
      exec "$ruff" check --quiet --no-fix --no-cache --force-exclude --output-format=concise -- "$file"
    fi
  done
fi
for python in .venv/bin/python venv/bin/python "$(command -v python3)"; do
  if [ -x "$python" ]; then
    echo "python"
    exec "$python" -I -B -W ignore -c '
import sys, traceback
try:
    compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec", dont_inherit=True)
except (SyntaxError, ValueError) as error:
    sys.exit("".join(traceback.format_exception_only(error)))
' "$file"
  fi
done
"""

_NODE = """
command -v node >/dev/null || exit 0
echo "node --check"
exec node --check "$file"
"""

_SHELL = """
echo "bash -n"
exec bash -n -- "$file"
"""

_TYPESCRIPT = """
at=$(dirname -- "$file")
while [ "$at" != . ] && [ ! -f "$at/tsconfig.json" ]; do at=$(dirname -- "$at"); done
for tsc in "$at/node_modules/.bin/tsc" node_modules/.bin/tsc; do
  if [ -f "$at/tsconfig.json" ] && [ -x "$tsc" ]; then
    echo "tsc --noEmit"
    "$tsc" --noEmit --pretty false -p "$at" | grep -F -- "$file(" && exit 1
    exit 0
  fi
done
"""

_SCRIPTS = {
    **dict.fromkeys((".py", ".pyi"), _PYTHON),
    **dict.fromkeys((".js", ".mjs", ".cjs"), _NODE),
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts"), _TYPESCRIPT),
    **dict.fromkeys((".sh", ".bash"), _SHELL),
}
"""Checkers by a file's ending. `$file` is its path; the first line of output names the checker; no output: nothing can
check it. All files of the repository are looked at inside the sandbox, where none leads out of it."""

_NOISE = re.compile(r"^\s+at .*$|^Node\.js v.*$|^\s*$", re.MULTILINE)

_ANOTHER_LANGUAGE = "SyntaxError: Unexpected token '<'"
"""The error of Node about JSX, which is for other tools."""


async def check_edited_file(blocks: Sequence[dict[str, Any]], index: int, call: ToolCall) -> str:
    """Check the file that the call at `index` of these has changed, with a checker for its ending, in the sandbox, and
    return the first mistakes as a text; empty: none, no checker or one that did not come to its end, no such file or a
    large one, or the call is no edit.

    A file that a later call of the same reply changes again is only checked then. When a checker takes longer than
    CHECK_TIMEOUT_S, a file is written beside the logs, and none is run again for this ending. Raises SandboxUnavailable
    when the sandbox cannot run commands, WorkCutOff when it was killed, Superseded when another attempt has the
    worktree.
    """
    path = _edited_path(blocks[index], call)
    if path is None or any(_edited_path(block, call) == path for block in blocks[index + 1 :]):
        return ""
    script = _SCRIPTS.get(PurePosixPath(path).suffix)
    slow_mark = call.box.log_dir.parent / f"slow-checker{PurePosixPath(path).suffix}"
    if script is None or not await in_thread(_is_worth_checking, call.box.worktree / path, slow_mark):
        return ""
    box = call.box
    output = box.log_dir / f"check-{index}-{re.sub(r'[^A-Za-z0-9_-]', '_', call.id)[:80]}.log"
    command = box.make_command(f"file={shlex.quote(path)}\n{script}", output, CHECK_TIMEOUT_S)
    await in_thread(lambda: output.parent.mkdir(parents=True, exist_ok=True))
    finished = await box.sandbox.run_command(command)
    await in_thread(finished.raise_for_failure, command, f"{box.sandbox.grade} sandbox")
    if finished.timed_out:
        await in_thread(slow_mark.touch)
    if finished.exit_code is None or finished.exit_code in (0, 126, 127) or finished.over or finished.truncated:
        return ""
    return _format_mistakes(await in_thread(read_excerpt, output, CHECK_CHARS, 0))


def _edited_path(block: dict[str, Any], call: ToolCall) -> str | None:
    """Return the file that an edit changes, relative to the repository's root; None for other calls, and wrong ones."""
    if block["name"] not in (EDIT.name, WRITE.name) or not isinstance(block["input"], dict):
        return None
    try:
        return resolve_path(call.box.worktree, str(block["input"].get("path")), call.box.inside)[1]
    except ToolError:
        return None


def _is_worth_checking(path: Path, slow_mark: Path) -> bool:
    """Return whether a file is there and small enough to be checked, and its checker is not marked as slow."""
    try:
        return path.stat().st_size <= _FILE_BYTES and not slow_mark.exists()
    except OSError:
        return False


def _format_mistakes(output: str) -> str:
    """Return the first lines of a checker's output under its name; empty where it holds no mistake, or where any of its
    lines is about another language, whatever else it says."""
    checker, _, messages = output.partition("\n")
    lines = [line for line in messages.splitlines() if not _NOISE.fullmatch(line)]
    if not lines or any(line.startswith(_ANOTHER_LANGUAGE) for line in lines):
        return ""
    more = [f"[{len(lines) - CHECK_LINES} more lines]"] if len(lines) > CHECK_LINES else []
    return shorten("\n".join([f"{checker} says:", *lines[:CHECK_LINES], *more]), CHECK_CHARS)
