"""Setup: running the repository owner's own commands with network, before any model is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from perdure.adapters.repository.detect import DEPENDENCIES
from perdure.adapters.sandbox.base import Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.reach import EVERYWHERE, Reach
from perdure.adapters.system.output import flood_reason, follow_lines, last_lines, missing_command, read_tail
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import SetupFailed
from perdure.models.limits import FAILURE_TAIL_CHARS

_DEPTH = 3  # of directories looked through for dependencies: packages/<name>/node_modules


async def run_setup(
    sandbox: Sandbox,
    workspace_path: Path,
    commands: Sequence[str],
    timeout_s: float,
    log_dir: Path,
    on_line: Callable[[str], None],
    *,
    inside: Path | None = None,
    env: Mapping[str, str] | None = None,
    reach: Reach = EVERYWHERE,
    lock: Path | None = None,
    fence: Callable[[], None] | None = None,
) -> None:
    """Run the commands one after the other in a worktree, `timeout_s` for all of them; logs go to `log_dir`.

    `on_line` is called with each command and each line of its output. Raises SetupFailed for the first command that
    fails (with its last lines and the fix), SandboxUnavailable, WorkCutOff, and what `fence` raises.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    await in_thread(log_dir.mkdir, parents=True, exist_ok=True)
    for number, script in enumerate(commands, start=1):
        on_line(f"$ {script}")
        log = log_dir / f"setup-{number}.log"
        await in_thread(log.unlink, missing_ok=True)
        command = SandboxCommand(
            script=script,
            worktree=workspace_path,
            inside=inside,
            output=log,
            timeout_s=max(0.1, deadline - loop.time()),
            network=True,
            reach=reach,
            env=env or {},
            lock=lock,
            fence=fence,
        )
        async with follow_lines(log, on_line):
            finished = await sandbox.run_command(command)
        await in_thread(finished.raise_for_failure, command, f"[setup] {script}")
        if finished.exit_code != 0:
            raise _setup_error(script, finished, await in_thread(read_tail, log, FAILURE_TAIL_CHARS), timeout_s)


def dependency_directories(tree: Path) -> tuple[str, ...]:
    """Return the directories that setup filled, relative to the tree; agent and tests see them read-only."""
    return tuple(sorted(str(path.relative_to(tree)) for path in _find_dependencies(tree, _DEPTH)))


def _setup_error(script: str, finished: SandboxResult, output: str, timeout_s: float) -> SetupFailed:
    """Return the error for a setup command that failed, was too slow, wrote too much or was ended: its last lines and a
    fix."""
    failure = f"not finished after {timeout_s:g} s" if finished.timed_out else f"exit code {finished.exit_code}"
    failure = flood_reason() if finished.truncated else f"ended: {finished.over}" if finished.over else failure
    missing_program = missing_command(output) if finished.exit_code == 127 else ""
    fix = "run it in a fresh clone to see more, then correct [setup] commands in perdure.toml"
    if finished.timed_out:
        fix = 'make it faster, or set a longer time: [setup] timeout = "20m"'
    elif missing_program:
        fix = f"install {missing_program} on this host, or change [setup] commands in perdure.toml"
    return SetupFailed(f"setup failed: {failure}\n{last_lines(output)}".rstrip(), where=f"[setup] {script}", fix=fix)


def ignore_dependencies(tree: Path) -> None:
    """Make git ignore everything in the directories setup fills, whatever the repository's own .gitignore says.

    Writes a .gitignore into each that has none.
    """
    for path in _find_dependencies(tree, _DEPTH):
        marker = path / ".gitignore"
        if not marker.exists() and not marker.is_symlink():
            marker.write_text("*\n")


def _find_dependencies(directory: Path, depth: int) -> Iterator[Path]:
    """Yield the paths of DEPENDENCIES directories (.venv, node_modules) down to this depth, following no link."""
    for path in directory.iterdir():
        if path.is_symlink() or path.name == ".git" or not path.is_dir():
            continue
        if path.name in DEPENDENCIES:
            yield path
        elif depth > 1:
            yield from _find_dependencies(path, depth - 1)
