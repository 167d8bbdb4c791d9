"""The one interface behind which commands run."""

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

    at       the vault's path, as it is written in the worktree's `.git`
    shown    the repository that is seen there
    history  its borrowed objects, at their own path
    admin    the worktree's own directory in the vault: its HEAD and index
    """

    at: Path
    shown: Path
    history: Path
    admin: Path


@dataclass(frozen=True)
class Command:
    """One shell command.

    script    given to `bash -c`
    worktree  absolute path of the working directory on the host
    inside    absolute path the command sees it at; None: its own. Only grade `full` can show it elsewhere
    directory  relative path below it in which the command starts; "": at its top
    source    directory shown in place of `worktree` (a clean checkout); None: the worktree itself
    shared    paths relative to the worktree, shown read-only from the real worktree (setup's .venv, node_modules)
    held      paths relative to `source`, shown read-only however writable the rest is; grade `full` alone can
    git_dir   what `.git` points to, shown read-only so that `git log` and `git diff` work: a view of the vault, or a
              repository as it is; None: no git inside
    writable  whether the working directory may be written to
    network   only for setup, which runs before any model call: hosts outside, by a proxy; all of it in weaker grades
    reach     with `network`: which hosts
    env       added to the sandbox's own small environment
    timeout_s after which the whole process tree is killed
    output    file that takes stdout and stderr, cut off at limits.OUTPUT_FILE_BYTES
    lock      file held locked (shared flock) by the sandbox for as long as any process of it lives; None: no lock
    results   existing directory of the host, writable, for report files; None: nothing survives
    results_at  absolute path the command sees `results` at, as with `inside`
    shown     paths of the host shown read-only at their own path: the engine's own tools, nothing of the repository's
    unpacked  archives by name, absolute paths as the command sees them: in memory, at environment.UNPACKED/<name>, are
              their files before the command starts, as far as they can be; grade `full` alone can
    fence     called once the lock is held and before anything starts; raises (Superseded) to refuse. None: no check
    """

    script: str
    worktree: Path
    output: Path
    timeout_s: float
    inside: Path | None = None
    directory: str = ""
    source: Path | None = None
    shared: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    git_dir: Path | GitView | None = None
    writable: bool = True
    network: bool = False
    reach: Reach = EVERYWHERE
    env: Mapping[str, str] = field(default_factory=dict)
    lock: Path | None = None
    results: Path | None = None
    results_at: Path | None = None
    shown: tuple[Path, ...] = ()
    unpacked: Mapping[str, Path] = field(default_factory=dict)
    fence: Callable[[], None] | None = None

    @property
    def seen(self) -> Path:
        """The working directory as the command sees it."""
        return self.inside or self.worktree


@dataclass(frozen=True)
class Finished:
    """The end of a command.

    exit_code  of the command; None when it was killed by a timeout or never started; 128+n when signal n ended it
    timed_out  killed because `timeout_s` was over
    truncated  ended because its output passed limits.OUTPUT_FILE_BYTES; exit_code is then 153 (128 + SIGXFSZ)
    over       ended because it was "over its memory limit of 4 GB, …"; exit_code is then 137 (128 + SIGKILL)
    peak       the most memory it was seen to use, in bytes; 0: nobody saw
    failure    why the *sandbox* could not run the command, empty when it did: never mistaken for a failing command
    running    at a time-out, the commands that had not ended
    died       that it had begun and was ended from outside; `failure` says how
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

    def raise_for(self, command: Command, where: str) -> None:
        """Raises WorkCutOff when the sandbox died, or what it was to show is gone: doing it again may go well. Raises
        SandboxUnavailable when it cannot run commands here at all. What a newer attempt has ended is Superseded."""
        if not self.failure:
            return
        if command.fence is not None:
            command.fence()
        gone = next((path for path in (command.source, command.worktree) if path and not path.is_dir()), None)
        if self.died or gone:
            raise WorkCutOff(self.failure if self.died else f"{gone} is gone", where=where)
        words = f"the sandbox could not run a command: {self.failure}"
        raise SandboxUnavailable(words, where=where, fix="perdure doctor shows what is missing")


class Sandbox(Protocol):
    """Runs commands; every process a command leaves behind is dead when `run` returns or is cancelled."""

    @property
    def grade(self) -> SandboxGrade: ...

    async def run(self, command: Command) -> Finished:
        """Run one command to its end. Cancelling the task kills it and waits until it is gone."""
        ...
