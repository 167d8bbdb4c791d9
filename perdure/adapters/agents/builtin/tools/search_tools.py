"""The tools glob and grep: they start the search program and read its answer."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from perdure.adapters.agents.builtin.tools import search
from perdure.adapters.agents.builtin.tools.base import AgentTool, Toolbox, ToolCall, ToolError, resolve_path
from perdure.adapters.system.programs import run_with_input
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel

SEARCH_S = 20.0
SEARCH_FILES = 50_000
SEARCH_FILE_BYTES = 2_000_000
SEARCH_RESULTS = 200
SEARCH_LINE_CHARS = 300
"""The limits of one grep or glob: seconds, files looked at, the largest of them, results and characters a result
shown."""


async def search_files(call: ToolCall, under: str, **options: Any) -> str:
    """Search below `under` in a process of its own and return the results as text, one a line, then what was left out;
    "no matches" without any. Raises ToolError for a bad pattern, a path that is not there or not allowed, or a search
    that does not end in SEARCH_S.

    `options` is what differs between grep and glob, as in perdure.adapters.agents.builtin.tools.search.
    """
    root, shown_path = await in_thread(_resolve_search_path, call.box, under)
    request = {
        "root": root,
        "under": shown_path,
        "parent": os.getpid(),
        "seconds": math.ceil(SEARCH_S),
        "max_files": SEARCH_FILES,
        "max_bytes": SEARCH_FILE_BYTES,
        "max_results": SEARCH_RESULTS,
        "max_chars": SEARCH_LINE_CHARS,
        **options,
    }
    answer = json.loads(await _run_search(json.dumps(request).encode()))
    if "error" in answer:
        raise ToolError(answer["error"])
    lines: list[str] = answer["lines"]
    if answer["more"]:
        lines.append(f"[more than {SEARCH_RESULTS} results: narrow the search]")
    if answer["skipped"]:
        lines.append(f"[{answer['skipped']} files over {SEARCH_FILE_BYTES} bytes not searched]")
    return "\n".join(lines) or "no matches"


def _resolve_search_path(box: Toolbox, under: str) -> tuple[str, str]:
    """Return the worktree's real path, and the path to search relative to it. Raises ToolError where that is not there
    or leads out of it."""
    path, shown_path = resolve_path(box.worktree, under, box.inside)
    if not path.exists():
        raise ToolError(f"{shown_path}: no such file or directory")
    return os.path.realpath(box.worktree), shown_path


async def _run_search(request: bytes) -> str:
    """Run the search program with a request, and return its answer. The program is killed on cancellation, and when it
    takes longer than SEARCH_S. Raises ToolError in that case, and when the program ends without an answer."""
    command = [sys.executable, "-I", "-S", str(Path(search.__file__))]
    result = await run_with_input(command, request, {}, SEARCH_S, cwd="/")
    if not result.output:
        raise ToolError(f"the search did not end within {SEARCH_S:.0f} s: use a simpler pattern or a smaller path")
    return result.output


class GlobInput(UserInputModel):
    pattern: str = Field(min_length=1, description="such as *.py, src/**/*.ts or tests/test_{a,b}.py")
    path: str = Field(default=".", description="directory to look in, relative to the repository's root")


async def glob_files(arguments: GlobInput, call: ToolCall) -> str:
    """Return the files that match a path pattern, one a line, or "no matches". Raises ToolError for a path that is not
    there or not allowed, and a search that does not end."""
    return await search_files(call, arguments.path, mode="glob", pattern=arguments.pattern)


GLOB = AgentTool(
    "glob",
    "List files of the repository by path pattern, sorted by path. Dependencies and caches are left out.",
    GlobInput,
    glob_files,
)


class GrepInput(UserInputModel):
    pattern: str = Field(min_length=1, description="Python regular expression, matched line by line")
    path: str = Field(default=".", description="file or directory, relative to the repository's root")
    glob: str | None = Field(default=None, description="only files whose path matches, such as *.py or src/**/*.ts")
    ignore_case: bool = Field(default=False)


async def grep_files(arguments: GrepInput, call: ToolCall) -> str:
    """Return the lines that match a regular expression, one a line with path and number, or "no matches". Raises
    ToolError for a bad expression, a path that is not there or not allowed, and a search that does not end."""
    return await search_files(
        call,
        arguments.path,
        mode="grep",
        pattern=arguments.pattern,
        files=arguments.glob,
        ignore_case=arguments.ignore_case,
    )


GREP = AgentTool(
    "grep",
    "Find lines by regular expression in the repository's text files. Dependencies and caches are not searched.",
    GrepInput,
    grep_files,
)
