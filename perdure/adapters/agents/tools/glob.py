"""glob: files whose path matches a pattern."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.tools.base import Tool, ToolCall
from perdure.adapters.agents.tools.searching import search_files
from perdure.models.base import Written


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
