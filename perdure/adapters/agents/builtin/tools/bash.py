"""The tool bash: one command in the sandbox, in a fresh shell each time."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from perdure.adapters.agents.builtin.tools import background
from perdure.adapters.agents.builtin.tools.base import AgentTool, ToolCall
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.output import read_excerpt
from perdure.adapters.sandbox.usage import describe_kill
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel
from perdure.models.limits import TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL

TOOL_TIMEOUT_S = 120.0
TOOL_TIMEOUT_MAX_S = 600.0
"""Seconds that one command of the agent has: the default, and the most it may ask for."""


_COMMAND_BYTES = 100_000
"""The longest command: one argument of a process may have 128 KiB; a longer script would look like a broken sandbox."""

KILLED = 128 + signal.SIGKILL

_SPAWN_POLL_S = 0.005
_SPAWN_MOMENT_S = 0.05
"""The time from the output file's creation, just before the spawn, until the command is surely under way."""


class BashInput(UserInputModel):
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


async def run_bash(arguments: BashInput, call: ToolCall) -> str:
    """Run a command, and return exit code, head and tail of its output; the whole output stays in the log directory.
    With a handle the call goes to a background command, with `background` it starts one.

    Raises ToolError for a command of a wrong length, SandboxUnavailable when the sandbox does not start it.
    """
    box, min_chars = call.box, 0 if arguments.handle else 1
    if (
        not min_chars <= len(arguments.command.strip()) <= len(arguments.command.encode()) <= _COMMAND_BYTES
        or "\0" in arguments.command
    ):
        raise ToolError(f"command must be 1 to {_COMMAND_BYTES} bytes without NUL; put longer scripts into a file")
    if arguments.handle:
        return await _use_background(background.find_running(box, arguments.handle), arguments)
    output = box.log_dir / (re.sub(r"[^A-Za-z0-9_-]", "_", call.id)[:100] + ".log")
    if arguments.background:
        await in_thread(_prepare_output, output)
        return await background.start_command(box, arguments.command, output)
    timeout_s = min(arguments.timeout, TOOL_TIMEOUT_MAX_S)
    command = box.make_command(arguments.command, output, timeout_s, writable=call.writable)
    await in_thread(_prepare_output, output)
    finished = await _wait_and_announce(box.on_spawn, output, asyncio.ensure_future(box.sandbox.run_command(command)))
    await in_thread(finished.raise_for_failure, command, f"{box.sandbox.grade} sandbox")
    text = await in_thread(read_excerpt, output, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL)
    hint = box.explain_missing(text[-2000:], finished.exit_code)
    return "\n".join([_describe_end(finished, command), text.rstrip() or "(no output)", *([hint] if hint else [])])


async def _use_background(command: background.BackgroundCommand, arguments: BashInput) -> str:
    """Stop a background command, show its new output (without a script), or run a script beside it; return the tool's
    result."""
    if arguments.stop:
        return await command.stop()
    if not arguments.command.strip():
        return await command.show_new_output()
    return await command.run_beside(arguments.command, min(arguments.timeout, TOOL_TIMEOUT_MAX_S))


def _prepare_output(output: Path) -> None:
    """Make the output file's directory, and remove a file that is there."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)


async def _wait_and_announce(
    on_spawn: Callable[[], None], output: Path, task: asyncio.Future[SandboxResult]
) -> SandboxResult:
    """Wait for the command's end and return it; `on_spawn` is called once it runs, or has just ended if it was quick.
    On cancellation the command is killed first."""
    try:
        while not task.done() and not output.exists():  # noqa: ASYNC240  one stat
            await asyncio.wait({task}, timeout=_SPAWN_POLL_S)
        await asyncio.wait({task}, timeout=_SPAWN_MOMENT_S)
        on_spawn()
        return await task
    finally:
        await background.cancel_and_wait(task)


def _describe_end(finished: SandboxResult, command: SandboxCommand) -> str:
    """Return the first line of the result: exit code, or why the command was killed or ended before its own end."""
    if finished.timed_out:
        running = f"; still running: {', '.join(finished.running)}" if finished.running else ""
        return f"killed after {command.timeout_s:.0f} s: it did not end in time{running}"
    if finished.over:
        return f"ended: {finished.over}"
    reason = " (stopped: too much output)" if finished.truncated else ""
    if finished.exit_code == KILLED:
        reason = f" ({describe_kill(signal.SIGKILL, finished.peak)})"
    return f"exit code {finished.exit_code}{reason}"


BASH = AgentTool(
    "bash",
    "Run a command in a fresh shell at the repository's root. There is no network, nothing runs on when the "
    "command ends unless it is started with background, and git can be read but not written: commits are made for you.",
    BashInput,
    run_bash,
)
