"""The first lines of what a cheap checker says about a file after an edit, so that a slip costs no turn of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.adapters.agents.builtin.tools.base import ToolCall
from perdure.adapters.agents.builtin.tools.edit import EDIT, WRITE
from perdure.adapters.agents.builtin.tools.paths import ToolError, resolve_path
from perdure.adapters.sandbox.output import read_excerpt
from perdure.adapters.system.threads import in_thread

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
    """Check the file that the call at `index` of these has changed, in the sandbox, and return the mistakes; empty:
    none, or nobody can tell.

    A file that a later call of the same reply changes again is only checked then. A checker that takes longer than
    CHECK_TIMEOUT_S is marked, and not run again for files of this ending. Raises SandboxUnavailable as a command of
    bash does.
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
    """Return the first lines of a checker's output under its name; empty where it holds no mistake, or one about
    another language."""
    checker, _, messages = output.partition("\n")
    lines = [line for line in messages.splitlines() if not _NOISE.fullmatch(line)]
    if not lines or any(line.startswith(_ANOTHER_LANGUAGE) for line in lines):
        return ""
    more = [f"[{len(lines) - CHECK_LINES} more lines]"] if len(lines) > CHECK_LINES else []
    return "\n".join([f"{checker} says:", *lines[:CHECK_LINES], *more])[:CHECK_CHARS]
