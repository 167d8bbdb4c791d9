"""glob and grep: start the search program and read its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from perdure.adapters.agents.builtin.tools import search
from perdure.adapters.agents.builtin.tools.base import Tool, Toolbox, ToolCall
from perdure.adapters.agents.builtin.tools.paths import ToolError, inside
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Written

SEARCH_S = 20.0
SEARCH_FILES = 50_000
SEARCH_FILE_BYTES = 2_000_000
SEARCH_RESULTS = 200
SEARCH_LINE_CHARS = 300
"""One grep or glob: seconds, files looked at, the largest of them, results and characters a result shown."""


async def search_files(call: ToolCall, under: str, **wanted: Any) -> str:
    """The results as text, one a line, with what was left out; ToolError for a bad pattern or one without end.

    `wanted` is what differs between grep and glob, as in perdure.adapters.agents.builtin.tools.search.
    """
    root, shown = await in_thread(_place, call.box, under)
    request = {
        "root": root,
        "under": shown,
        "parent": os.getpid(),
        "seconds": math.ceil(SEARCH_S),
        "max_files": SEARCH_FILES,
        "max_bytes": SEARCH_FILE_BYTES,
        "max_results": SEARCH_RESULTS,
        "max_chars": SEARCH_LINE_CHARS,
        **wanted,
    }
    answer = json.loads(await _run(json.dumps(request).encode()))
    if "error" in answer:
        raise ToolError(answer["error"])
    lines: list[str] = answer["lines"]
    if answer["more"]:
        lines.append(f"[more than {SEARCH_RESULTS} results: narrow the search]")
    if answer["skipped"]:
        lines.append(f"[{answer['skipped']} files over {SEARCH_FILE_BYTES} bytes not searched]")
    return "\n".join(lines) or "no matches"


def _place(box: Toolbox, under: str) -> tuple[str, str]:
    path, shown = inside(box.worktree, under, box.inside)
    if not path.exists():
        raise ToolError(f"{shown}: no such file or directory")
    return os.path.realpath(box.worktree), shown


async def _run(request: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(Path(search.__file__)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={}, cwd="/", start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SEARCH_S):
            answer, _ = await process.communicate(request)
    except TimeoutError:
        answer = b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if not answer:
        raise ToolError(f"the search did not end within {SEARCH_S:.0f} s: use a simpler pattern or a smaller path")
    return answer


class GlobInput(Written):
    pattern: str = Field(min_length=1, description="such as *.py, src/**/*.ts or tests/test_{a,b}.py")
    path: str = Field(default=".", description="directory to look in, relative to the repository's root")


async def glob(given: GlobInput, call: ToolCall) -> str:
    return await search_files(call, given.path, mode="glob", pattern=given.pattern)


GLOB = Tool(
    "glob",
    "List files of the repository by path pattern, sorted by path. Dependencies and caches are left out.",
    GlobInput,
    glob,
)


class GrepInput(Written):
    pattern: str = Field(min_length=1, description="Python regular expression, matched line by line")
    path: str = Field(default=".", description="file or directory, relative to the repository's root")
    glob: str | None = Field(default=None, description="only files whose path matches, such as *.py or src/**/*.ts")
    ignore_case: bool = Field(default=False)


async def grep(given: GrepInput, call: ToolCall) -> str:
    return await search_files(
        call,
        given.path,
        mode="grep",
        pattern=given.pattern,
        files=given.glob,
        ignore_case=given.ignore_case,
    )


GREP = Tool(
    "grep",
    "Find lines by regular expression in the repository's text files. Dependencies and caches are not searched.",
    GrepInput,
    grep,
)
