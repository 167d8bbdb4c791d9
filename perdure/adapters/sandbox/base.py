"""The interface behind which commands run: a command, its result, and the sandbox that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perdure.adapters.sandbox.reach import EVERYWHERE, Reach
from perdure.models.config import SandboxGrade
from perdure.models.errors import SandboxUnavailable, WorkCutOff


@dataclass(frozen=True)
class GitView:
    """The repository that commands see where `.git` points (perdure.adapters.git.git_view); all of it read-only.

    vault_path  the vault's path, as it is written in the worktree's `.git`
    view_path   the repository that is shown there
    history     the object store it borrows from, shown at its own path
    admin       the worktree's own directory in the vault: its HEAD and index
    """

    vault_path: Path
    view_path: Path
    history: Path
    admin: Path


@dataclass(frozen=True)
class SandboxCommand:
    """A shell command, and what of the host it sees.

    script           given to `bash -c`
    worktree         absolute path of the working directory on the host
    inside           absolute path the command sees it at; None: its own. Only grade `full` can show it elsewhere
    directory        relative path below it in which the command starts; "": at its top
    source           directory shown in place of `worktree` (a clean checkout); None: the worktree itself
    shared           paths relative to the worktree, shown read-only from the real worktree (setup's .venv,
                     node_modules)
    read_only_paths  paths relative to `source`, shown read-only however writable the rest is; grade `full` alone can
    git_dir          what `.git` points to, shown read-only so that `git log` and `git diff` work: a view of the vault,
                     or a repository as it is; None: no git inside
    writable         whether the working directory may be written to
    network          only for setup, which runs before any model call: hosts outside, by a proxy; the whole network in
                     weaker grades
    reach            with `network`: which hosts
    env              added to the sandbox's own small environment
    timeout_s        after which the whole process tree is killed
    output           file that takes stdout and stderr, cut off at limits.OUTPUT_FILE_BYTES
    lock             file held locked (shared flock) by the sandbox for as long as any process of it lives; None: no
                     lock
    results          existing directory of the host, writable, for report files; None: no file survives
    results_at       absolute path the command sees `results` at, as with `inside`
    visible_paths    paths of the host shown read-only at their own path: the engine's own tools, nothing of the
                     repository
    unpacked         archives by name, as absolute paths that the command sees: before it starts they are unpacked in
                     memory at environment.UNPACKED/<name>, as far as they can be; grade `full` alone can
    fence            called once the lock is held and before anything starts; raises (Superseded) to refuse. None: no
                     check
    """

    script: str
    worktree: Path
    output: Path
    timeout_s: float
    inside: Path | None = None
    directory: str = ""
    source: Path | None = None
    shared: tuple[str, ...] = ()
    read_only_paths: tuple[str, ...] = ()
    git_dir: Path | GitView | None = None
    writable: bool = True
    network: bool = False
    reach: Reach = EVERYWHERE
    env: Mapping[str, str] = field(default_factory=dict)
    lock: Path | None = None
    results: Path | None = None
    results_at: Path | None = None
    visible_paths: tuple[Path, ...] = ()
    unpacked: Mapping[str, Path] = field(default_factory=dict)
    fence: Callable[[], None] | None = None

    @property
    def shown_at(self) -> Path:
        """Return the path at which the command sees its working directory."""
        return self.inside or self.worktree


@dataclass(frozen=True)
class SandboxResult:
    """The end of a command.

    exit_code  of the command; None when it was killed by a timeout or never started; 128+n when signal n ended it
    timed_out  killed because `timeout_s` was over
    truncated  ended because its output passed limits.OUTPUT_FILE_BYTES; exit_code is then 153 (128 + SIGXFSZ)
    over       the limit for which it was ended, such as "over its memory limit of 4 GB, …"; exit_code is then 137
               (128 + SIGKILL); empty: none
    peak       the most memory it was seen to use, in bytes; 0: not measured
    failure    why the *sandbox* could not run the command, empty when it did: never mistaken for a failing command
    running    at a time-out, the commands that had not ended
    died       whether the sandbox had begun and was ended from outside; `failure` then says how
    """

    exit_code: int | None
    duration_s: float
    timed_out: bool = False
    truncated: bool = False
    failure: str = ""
    over: str = ""
    peak: int = 0
    died: bool = False
    running: tuple[str, ...] = ()

    def raise_for_failure(self, command: SandboxCommand, where: str) -> None:
        """Raise an error when the sandbox could not run the command; return when `failure` is empty.

        Raises WorkCutOff when the sandbox was ended from outside, or when the command's `source` or worktree does not
        exist any more: a retry may go well. Raises SandboxUnavailable when commands cannot run here at all. Before
        either the command's fence is called, which raises Superseded when a newer attempt owns the work. `where` names
        the place in the error.
        """
        if not self.failure:
            return
        if command.fence is not None:
            command.fence()
        missing_path = next((path for path in (command.source, command.worktree) if path and not path.is_dir()), None)
        if self.died or missing_path:
            raise WorkCutOff(self.failure if self.died else f"{missing_path} is gone", where=where)
        message = f"the sandbox could not run a command: {self.failure}"
        raise SandboxUnavailable(message, where=where, fix="perdure doctor shows what is missing")


class Sandbox(Protocol):
    """Runs commands; every process a command leaves behind is dead when `run_command` returns or is cancelled."""

    @property
    def grade(self) -> SandboxGrade: ...

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Run one command to its end and return its result. Cancelling the task kills the command and waits until it is
        dead."""
        ...
