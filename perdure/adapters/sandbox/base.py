"""The interface behind which commands run: a command, its result, the sandbox that runs it, and the slots that bound
how many run at once on this host.

A slot is a lock on a file below PERDURE_HOME, so that all workers of a home share them and a worker's death frees its
slots. Setups and test commands take one: these need processors and memory, while what agents do mostly waits for a
model.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perdure.adapters.sandbox.reach import EVERYWHERE, Reach
from perdure.adapters.system.files import try_lock
from perdure.models.config.host import CommandLimits
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import MAKE_ROOM, DiskFull, SandboxUnavailable, WorkCutOff
from perdure.models.limits import DISK_FREE_BYTES
from perdure.text import format_count


@dataclass(frozen=True)
class GitView:
    """The repository that commands see where `.git` points (perdure.adapters.git.git_view).

    vault_path  the vault's path, as it is written in the worktree's `.git`
    view_path   the repository that is shown there
    history     the object store it borrows from, shown read-only at its own path
    admin       the worktree's own directory: its HEAD and index; shown where the vault has it
    writable    for setup alone: view and admin are copies that commands may write to. The weaker grades show nothing
                elsewhere: there `.git` has to name `admin` while commands run
    """

    vault_path: Path
    view_path: Path
    history: Path
    admin: Path
    writable: bool = False


@dataclass(frozen=True)
class SandboxCommand:
    """A shell command, and what of the host it sees.

    script           given to `bash -c`
    worktree         absolute path of the working directory on the host
    inside           absolute path the command sees it at; None: its own. Only grade `full` can show it elsewhere
    linked_at        absolute path at which a link to it stands, in grade `full`; None: there is no link
    directory        relative path below it in which the command starts; "": at its top
    source           directory shown in place of `worktree` (a clean checkout); None: the worktree itself
    shared           paths relative to the worktree, shown read-only from the real worktree (setup's .venv,
                     node_modules)
    read_only_paths  paths relative to `source`, shown read-only however writable the rest is; grade `full` alone can
    git_dir          what `.git` points to, shown so that `git log` and `git diff` work: a view of the vault, or a
                     repository as it is, read-only; None: no git inside
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
    trace            whether processes may trace each other (ptrace): a debugger, but also a test its own runner
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
    linked_at: Path | None = None
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
    trace: bool = True

    @property
    def shown_at(self) -> Path:
        """Return the path at which the command sees its working directory."""
        return self.inside or self.worktree


KILLED_EXIT_CODES = frozenset(128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
"""Exit codes of a command that was ended by a signal which somebody sends: a person, a program, a kernel without
memory. Other signals, such as SIGSEGV, come from what a process does itself. Who has sent one cannot be seen: it may be
the command, and then it does so again."""


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

    @property
    def is_killed(self) -> bool:
        """Return whether a signal that somebody has sent ended the command, and no limit of ours."""
        return self.exit_code in KILLED_EXIT_CODES and not self.over

    def raise_for_failure(self, command: SandboxCommand, where: str) -> None:
        """Raise an error when it was not the command that failed, but the sandbox or the place in which it ran.

        Raises WorkCutOff when the sandbox was ended from outside, or when the command's `source` or worktree does not
        exist any more: a retry may go well. Raises DiskFull when it failed on a disk without room. Raises
        SandboxUnavailable when commands cannot run here at all. Before any of them the command's fence is called, which
        raises Superseded when a newer attempt owns the work. `where` names the place in the error.
        """
        missing_path = next((path for path in (command.source, command.worktree) if path and not path.is_dir()), None)
        is_full = self.exit_code != 0 and not missing_path and _has_no_room(command.worktree)
        if not self.failure and not missing_path and not is_full:
            return
        if command.fence is not None:
            command.fence()
        if self.died or missing_path:
            raise WorkCutOff(self.failure if self.died else f"{missing_path} is gone", where=where)
        if is_full:
            raise DiskFull("this host's disk has no room", where=where, fix=MAKE_ROOM)
        message = f"the sandbox could not run a command: {self.failure}"
        raise SandboxUnavailable(message, where=where, fix="perdure doctor shows what is missing")


def _has_no_room(worktree: Path) -> bool:
    """Return whether the disk of a worktree is so full that its commands fail for that."""
    return shutil.disk_usage(worktree).free < DISK_FREE_BYTES


class Sandbox(Protocol):
    """Runs commands; every process a command leaves behind is dead when `run_command` returns or is cancelled."""

    @property
    def grade(self) -> SandboxGrade: ...

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Run one command to its end and return its result. Cancelling the task kills the command and waits until it is
        dead."""
        ...


SLOTS_PER_PROCESSOR, SLOT_BYTES = 2, 2 * 1024**3
"""Slots for each processor (suites also wait: for disks, for servers they start), and memory for each: what a large
suite or a package manager takes. A command that takes more is bounded by its own limit."""

_POLL_S = 0.2
"""Seconds between two tries for a slot that another worker of this home may have released."""

_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MachineShare:
    """The share of the machine that this process may use: the least that its affinity, its control groups and the
    hardware allow.

    processors  a number of them, which may be a fraction
    memory      bytes
    """

    processors: float
    memory: int

    @classmethod
    def measure(cls, process: Path = Path("/proc/self"), groups: Path = _GROUPS) -> MachineShare:
        """Measure the share: processors by the calling process's affinity and the control groups' quotas, memory by the
        machine's and the control groups' limits. `process` is the directory in /proc of the process whose groups count;
        `groups` is where control groups are mounted."""
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processors, memory = [float(usable)], [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        for group in _enclosing_groups(process, groups):
            quota, period = [*_read_numbers(group / "cpu.max"), 0, 0][:2]
            if not quota:
                quota, period = (next(_read_numbers(group / f"cpu.cfs_{name}_us"), 0) for name in ("quota", "period"))
            processors += [quota / period] if quota > 0 and period > 0 else []
            memory += [*_read_numbers(group / "memory.max"), *_read_numbers(group / "memory.limit_in_bytes")]
        return cls(min(processors), min(memory))

    def slot_count(self) -> int:
        """Return the number of commands that fit this share at once, at least 1."""
        return max(1, min(int(SLOTS_PER_PROCESSOR * self.processors), self.memory // SLOT_BYTES))


class HostSlots:
    """A number of slots that all workers of a home share. `count`: how many. `users`: what takes them, for people."""

    def __init__(self, directory: Path, places: int, users: str = "other deliveries' tests or setups run") -> None:
        self._directory, self.count, self._users = directory, places, users
        self._local_slots = asyncio.Semaphore(places)  # in order of arrival within a worker

    @classmethod
    def from_limits(cls, directory: Path, limits: CommandLimits) -> HostSlots:
        """Make the slots of a directory: as many as the owner has configured, else as fit this machine."""
        return cls(directory, limits.at_once or MachineShare.measure().slot_count())

    @asynccontextmanager
    async def acquire_slot(self, on_wait: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold one of the slots while the block runs, and wait for it as long as it takes. `on_wait` is called with a
        message: once where commands of this worker hold all slots, then at each try while those of other workers do."""
        message = f"waiting for one of {format_count(self.count, 'place')}: {self._users}"
        if self._local_slots.locked():
            on_wait(message)
        async with self._local_slots:
            while (slot_fd := self._try_lock_slot()) is None:
                on_wait(message)
                await asyncio.sleep(_POLL_S)
            try:
                yield
            finally:
                os.close(slot_fd)

    def _try_lock_slot(self) -> int | None:
        """Lock the first slot that is free and return the lock's descriptor; None when all are taken."""
        locks = (try_lock(self._directory / str(number)) for number in range(self.count))
        return next((lock_fd for lock_fd in locks if lock_fd is not None), None)


@dataclass(frozen=True)
class SlottedSandbox:
    """A sandbox whose every command takes a slot for as long as it runs: its time-out begins when it has one."""

    sandbox: Sandbox
    slots: HostSlots
    on_wait: Callable[[str], None]

    @property
    def grade(self) -> SandboxGrade:
        return self.sandbox.grade

    async def run_command(self, command: SandboxCommand) -> SandboxResult:
        """Wait for a slot, run the command in the sandbox, release the slot, and return the result."""
        async with self.slots.acquire_slot(self.on_wait):
            return await self.sandbox.run_command(command)


def _enclosing_groups(process: Path, groups: Path) -> Iterator[Path]:
    """Yield the directories of the control groups that a process is in, and of all groups above them; none where they
    cannot be read. `process` and `groups` as in MachineShare.measure."""
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = groups / controllers if controllers else groups
            own_group = top / path.lstrip("/")
            if ".." not in own_group.parts:
                yield from (group for group in (own_group, *own_group.parents) if group == top or top in group.parents)


def _read_numbers(file: Path) -> Iterator[int]:
    """Yield the whole numbers in a file, up to the first word that is none (`max` means no limit); none where there is
    no file."""
    with suppress(OSError, ValueError):
        yield from map(int, file.read_text().split())
