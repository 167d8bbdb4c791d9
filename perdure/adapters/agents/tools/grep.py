"""grep: lines of files that match a regular expression."""

from __future__ import annotations

from pydantic import Field

from perdure.adapters.agents.tools.base import Tool, ToolCall
from perdure.adapters.agents.tools.searching import search_files
from perdure.models.base import Written


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
