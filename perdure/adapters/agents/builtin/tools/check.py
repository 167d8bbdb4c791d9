"""The first lines of what a cheap checker says about a file after an edit, so that a slip costs no turn of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.adapters.agents.builtin.tools.base import ToolCall
from perdure.adapters.agents.builtin.tools.edit import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.paths import ToolError, inside
from perdure.adapters.sandbox.output import excerpt
from perdure.adapters.system.threads import in_thread

CHECK_TIMEOUT_S = 10.0
"""For a checker that is worth its time after every edit; one that takes longer is not run again in this workspace."""

CHECK_LINES, CHECK_CHARS = 10, 2000
"""Told of its output: the first mistake is the cause of most others."""

_FILE_BYTES = 1_000_000
"""Larger files are generated, and slow to check."""

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
"""By a file's ending. `$file` is its path; the first line of output names the checker; no output: nothing can check it.
All files of the repository are looked at inside the sandbox, where none leads out of it."""

_NOISE = re.compile(r"^\s+at .*$|^Node\.js v.*$|^\s*$", re.MULTILINE)

_ANOTHER_LANGUAGE = "SyntaxError: Unexpected token '<'"
"""From Node about JSX, which is for other tools."""


async def checked(blocks: Sequence[dict[str, Any]], place: int, call: ToolCall) -> str:
    """The mistakes in the file that the call at `place` of these has changed; empty: none, or nobody can tell.

    A file that a later call of the same reply changes again is only checked then. Raises as a command of bash does.
    """
    path = _changed(blocks[place], call)
    if path is None or any(_changed(block, call) == path for block in blocks[place + 1 :]):
        return ""
    script = _SCRIPTS.get(PurePosixPath(path).suffix)
    slow = call.box.log_dir.parent / f"slow-checker{PurePosixPath(path).suffix}"
    if script is None or not await in_thread(_worth_it, call.box.worktree / path, slow):
        return ""
    box = call.box
    output = box.log_dir / f"check-{place}-{re.sub(r'[^A-Za-z0-9_-]', '_', call.id)[:80]}.log"
    command = box.command(f"file={shlex.quote(path)}\n{script}", output, CHECK_TIMEOUT_S)
    await in_thread(lambda: output.parent.mkdir(parents=True, exist_ok=True))
    ended = await box.sandbox.run(command)
    await in_thread(ended.raise_for, command, f"{box.sandbox.grade} sandbox")
    if ended.timed_out:
        await in_thread(slow.touch)
    if ended.exit_code is None or ended.exit_code in (0, 126, 127) or ended.over or ended.truncated:
        return ""
    return _as_result(await in_thread(excerpt, output, CHECK_CHARS, 0))


def _changed(block: dict[str, Any], call: ToolCall) -> str | None:
    """The file that an edit changes, relative to the repository's root; None for other calls, and wrong ones."""
    if block["name"] not in (EDIT.name, WRITE.name) or not isinstance(block["input"], dict):
        return None
    try:
        return inside(call.box.worktree, str(block["input"].get("path")), call.box.inside)[1]
    except ToolError:
        return None


def _worth_it(path: Path, slow: Path) -> bool:
    try:
        return path.stat().st_size <= _FILE_BYTES and not slow.exists()
    except OSError:
        return False


def _as_result(output: str) -> str:
    name, _, said = output.partition("\n")
    lines = [line for line in said.splitlines() if not _NOISE.fullmatch(line)]
    if not lines or any(line.startswith(_ANOTHER_LANGUAGE) for line in lines):
        return ""
    more = [f"[{len(lines) - CHECK_LINES} more lines]"] if len(lines) > CHECK_LINES else []
    return "\n".join([f"{name} says:", *lines[:CHECK_LINES], *more])[:CHECK_CHARS]
