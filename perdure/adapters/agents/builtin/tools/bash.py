"""The tool bash: one command in the sandbox, in a fresh shell each time; and background commands: a server under test,
and commands beside it, until the reply's calls are done.

Each background command has a sandbox of its own, which is no way to others: commands beside it run inside it, started
there by a small loop that looks into a directory it can only read. What they write comes back in the sandbox's one
output, with marks. The repository is read-only there, so that no process that lives between two calls can change a path
while the file tools use it (perdure.adapters.agents.builtin.tools.base).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from perdure.adapters.agents.builtin.tools.background import BACKGROUND_LOOP, BackgroundCommand, cancel_and_wait
from perdure.adapters.agents.builtin.tools.base import AgentTool, Toolbox, ToolCall, ToolError
from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.usage import describe_kill
from perdure.adapters.system.output import read_excerpt
from perdure.adapters.system.threads import in_thread
from perdure.models.base import UserInputModel
from perdure.models.config.repository import SandboxGrade
from perdure.models.limits import TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL
from perdure.text import one_line

BACKGROUND_MOST = 3
"""The number that may run at once: a server, what it needs, and one to spare."""

BACKGROUND_LOOK_S = 0.5
"""The wait after a start, for the first output of what was started, or its end."""

BACKGROUND_TIMEOUT_S = 900.0
"""The limit of one: longer than the longest command beside it."""


async def start_command(box: Toolbox, script: str, output: Path) -> str:
    """Start a script as a background command, add it to `box.background`, and return its handle and first output as the
    tool's result, after BACKGROUND_LOOK_S at most. `output`: the file for all output.

    Raises ToolError below the sandbox's full grade and when BACKGROUND_MOST run already; SandboxUnavailable when the
    sandbox does not start, WorkCutOff when it was killed.
    """
    if box.sandbox.grade is not SandboxGrade.FULL:
        raise ToolError("background commands need the sandbox's full grade; run it and what uses it in one command")
    if sum(not started.task.done() for started in box.background.values()) >= BACKGROUND_MOST:
        raise ToolError(f"{BACKGROUND_MOST} commands run in the background already: stop one")
    directory, mark = output.with_suffix(".d"), f"perdure-{secrets.token_hex(8)}"
    await in_thread(lambda: directory.mkdir(parents=True, exist_ok=True))
    await in_thread((directory / "0.sh").write_text, script)
    loop_script = f"at={shlex.quote(str(directory))} mark={mark}\n{BACKGROUND_LOOP}"
    command = box.make_command(loop_script, output, BACKGROUND_TIMEOUT_S, shown=(directory,))
    handle = f"b{len(box.background) + 1}"
    task = asyncio.ensure_future(box.sandbox.run_command(command))
    started = box.background[handle] = BackgroundCommand(handle, directory, output, mark, task)
    await asyncio.wait({task}, timeout=BACKGROUND_LOOK_S)
    if task.done():
        await in_thread(task.result().raise_for_failure, command, f"{box.sandbox.grade} sandbox")
    box.on_spawn()
    return (
        f"runs in the background as {handle}, until the calls of this reply are done\n{await started.show_new_output()}"
    )


def find_running(box: Toolbox, handle: str) -> BackgroundCommand:
    """Return the background command of this handle. Raises ToolError where none runs under it, with the handles of
    those that do."""
    command = box.background.get(handle)
    if command is None or command.task.done():
        running = [name for name, other in box.background.items() if not other.task.done()]
        hint = f"there are {', '.join(running)}" if running else "start it first"
        raise ToolError(
            f"nothing runs as {one_line(handle, 20)}; {hint}: what was started by an earlier reply has ended with it"
        )
    return command


async def end_all(box: Toolbox) -> None:
    """Kill all background commands; all of them are dead when this returns, also where it is cancelled."""
    for command in box.background.values():
        await cancel_and_wait(command.task)


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
    """Run a command, and return exit code, head and tail of its output; the whole output stays in the log directory. A
    command that does not end in time is killed, and the result says so.

    With a handle the call goes to a background command, with `background` it starts one. Raises ToolError for a command
    of a wrong length or with NUL, a handle under which nothing runs, and a background command that may not be started;
    SandboxUnavailable when the sandbox does not start it, WorkCutOff when the sandbox was killed.
    """
    box, min_chars = call.box, 0 if arguments.handle else 1
    if (
        not min_chars <= len(arguments.command.strip()) <= len(arguments.command.encode()) <= _COMMAND_BYTES
        or "\0" in arguments.command
    ):
        raise ToolError(f"command must be 1 to {_COMMAND_BYTES} bytes without NUL; put longer scripts into a file")
    if arguments.handle:
        return await _use_background(find_running(box, arguments.handle), arguments)
    output = box.log_dir / (re.sub(r"[^A-Za-z0-9_-]", "_", call.id)[:100] + ".log")
    if arguments.background:
        await in_thread(_prepare_output, output)
        return await start_command(box, arguments.command, output)
    timeout_s = min(arguments.timeout, TOOL_TIMEOUT_MAX_S)
    command = box.make_command(arguments.command, output, timeout_s, writable=call.writable)
    await in_thread(_prepare_output, output)
    finished = await _wait_and_announce(box.on_spawn, output, asyncio.ensure_future(box.sandbox.run_command(command)))
    await in_thread(finished.raise_for_failure, command, f"{box.sandbox.grade} sandbox")
    text = await in_thread(read_excerpt, output, TOOL_OUTPUT_HEAD, TOOL_OUTPUT_TAIL)
    hint = box.explain_missing(text[-2000:], finished.exit_code)
    return "\n".join([_describe_end(finished, command), text.rstrip() or "(no output)", *([hint] if hint else [])])


async def _use_background(command: BackgroundCommand, arguments: BashInput) -> str:
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
        await cancel_and_wait(task)


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
