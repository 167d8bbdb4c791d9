"""bash: one command in the sandbox, in a fresh shell each time."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from perdure.adapters.agents.builtin.tools import background
from perdure.adapters.agents.builtin.tools.base import Tool, ToolCall
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.sandbox.output import excerpt
from perdure.adapters.sandbox.usage import killed
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Written
from perdure.models.limits import TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL

TOOL_TIMEOUT_S = 120.0
TOOL_TIMEOUT_MAX_S = 600.0
"""One command of the agent: the default, and the most it may ask for."""


_COMMAND_BYTES = 100_000
"""One argument of a process may have 128 KiB; a longer script would look like a broken sandbox."""

KILLED = 128 + signal.SIGKILL

_SPAWN_POLL_S = 0.005
_SPAWN_MOMENT_S = 0.05
"""From the output file's creation, just before the spawn, until the command is surely under way."""


class BashInput(Written):
    command: str = Field(description="run by bash -c in the repository's root")
    timeout: float = Field(
        default=TOOL_TIMEOUT_S,
        gt=0,
        description=f"seconds until it is killed; default {TOOL_TIMEOUT_S:.0f}, at most {TOOL_TIMEOUT_MAX_S:.0f}",
    )
    background: bool = Field(
        default=False,
        description="start it, such as a server under test, and go on: the result names its handle. It cannot write to "
        "the repository, and is ended when the calls of this reply are done: make those that use it in the same reply",
    )
    handle: str = Field(
        default="",
        description="b1 is the first background command of this reply: run the command beside it, on its network, and "
        "show what it has written since; with an empty command only that. Empty for a command of its own",
    )
    stop: bool = Field(default=False, description="with a handle: end that background command")


async def bash(given: BashInput, call: ToolCall) -> str:
    """Exit code first, then head and tail of the output; the whole output stays in the log directory."""
    box, least = call.box, 0 if given.handle else 1
    if (
        not least <= len(given.command.strip()) <= len(given.command.encode()) <= _COMMAND_BYTES
        or "\0" in given.command
    ):
        raise ToolError(f"command must be 1 to {_COMMAND_BYTES} bytes without NUL; put longer scripts into a file")
    if given.handle:
        return await _beside(background.found(box, given.handle), given)
    output = box.log_dir / (re.sub(r"[^A-Za-z0-9_-]", "_", call.id)[:100] + ".log")
    if given.background:
        await in_thread(_clear, output)
        return await background.start(box, given.command, output)
    timeout_s = min(given.timeout, TOOL_TIMEOUT_MAX_S)
    command = box.command(given.command, output, timeout_s, writable=call.writable)
    await in_thread(_clear, output)
    ended = await _announced(box.on_spawn, output, asyncio.ensure_future(box.sandbox.run(command)))
    await in_thread(ended.raise_for, command, f"{box.sandbox.grade} sandbox")
    text = await in_thread(excerpt, output, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL)
    hint = box.missing(text[-2000:], ended.exit_code)
    return "\n".join([_verdict(ended, command), text.rstrip() or "(no output)", *([hint] if hint else [])])


async def _beside(one: background.Background, given: BashInput) -> str:
    if given.stop:
        return await one.stop()
    if not given.command.strip():
        return await one.words()
    return await one.beside(given.command, min(given.timeout, TOOL_TIMEOUT_MAX_S))


def _clear(output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)


async def _announced(on_spawn: Callable[[], None], output: Path, run: asyncio.Future[Finished]) -> Finished:
    """The command's end; `on_spawn` is called when it runs, or has just ended if it was quick."""
    try:
        while not run.done() and not output.exists():  # noqa: ASYNC240  one stat
            await asyncio.wait({run}, timeout=_SPAWN_POLL_S)
        await asyncio.wait({run}, timeout=_SPAWN_MOMENT_S)
        on_spawn()
        return await run
    finally:
        await background.over(run)


def _verdict(ended: Finished, command: Command) -> str:
    if ended.timed_out:
        still = f"; still running: {', '.join(ended.running)}" if ended.running else ""
        return f"killed after {command.timeout_s:.0f} s: it did not end in time{still}"
    if ended.over:
        return f"ended: {ended.over}"
    cut = " (stopped: too much output)" if ended.truncated else ""
    if ended.exit_code == KILLED:
        cut = f" ({killed(signal.SIGKILL, ended.peak)})"
    return f"exit code {ended.exit_code}{cut}"


BASH = Tool(
    "bash",
    "Run a command in a fresh shell at the repository's root. There is no network, nothing runs on when the "
    "command ends unless it is started with background, and git can be read but not written: commits are made for you.",
    BashInput,
    bash,
)
