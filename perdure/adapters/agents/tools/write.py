"""write: a whole file, new or replaced."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from perdure.adapters.agents.tools.base import Tool, ToolCall
from perdure.adapters.agents.tools.paths import ToolError, inside, read_bytes, version, write_bytes
from perdure.adapters.agents.tools.read import seen
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Written


class WriteInput(Written):
    path: str = Field(description="relative to the repository's root; missing directories are made")
    content: str = Field(description="the whole file")


async def write(given: WriteInput, call: ToolCall) -> str:
    return await in_thread(_write, given, call)


def _write(given: WriteInput, call: ToolCall) -> str:
    box = call.box
    path, shown = inside(box.worktree, given.path, box.inside, writing=True, installed=box.shared)
    if shown == ".":
        raise ToolError("path names the repository itself; name a file")
    old = _existing(path, shown)
    data = given.content.encode()
    kept = ""
    if old is not None and has_crlf(old) and b"\r\n" not in data:
        data, kept = data.replace(b"\n", b"\r\n"), ", CRLF line ends kept"
    write_bytes(path, data, shown)
    call.box.read_files[shown] = version(data)
    return seen(shown, data, f"{'written' if old is None else 'replaced'}, {len(data.splitlines())} lines{kept}")


def _existing(path: Path, shown: str) -> bytes | None:
    return read_bytes(path, shown) if path.exists() else None


def has_crlf(data: bytes) -> bool:
    """True where every line ends as on Windows: then new text does so too."""
    return b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n")


WRITE = Tool(
    "write",
    "Create a file of the repository, or replace all of it. To change part of a file use edit.",
    WriteInput,
    write,
)
