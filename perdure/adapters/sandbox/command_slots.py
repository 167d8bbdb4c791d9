"""A bounded number of setups and test commands at once on this host: these need its processors and memory, while what
agents do mostly waits for a model.

A slot is a lock on a file below PERDURE_HOME, so that all workers of a home share them and a worker's death frees its
slots.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.base import Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.system.files import try_lock
from perdure.models.config import SandboxGrade
from perdure.models.host_config import CommandLimits

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
        """Measure the share of a process: its processors by affinity and control groups' quotas, its memory by the
        machine's and the control groups' limits. `process` is its directory in /proc; `groups` is where control groups
        are mounted."""
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


class CommandSlots:
    """A number of slots that all workers of a home share. `count`: how many."""

    def __init__(self, directory: Path, places: int) -> None:
        self._directory, self.count = directory, places
        self._local_slots = asyncio.Semaphore(places)  # in order of arrival within a worker

    @classmethod
    def from_limits(cls, directory: Path, limits: CommandLimits) -> CommandSlots:
        """Make the slots of a directory: as many as the owner has configured, else as fit this machine."""
        return cls(directory, limits.at_once or MachineShare.measure().slot_count())

    @asynccontextmanager
    async def acquire_slot(self, on_wait: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold one of the slots while the block runs, and wait for it as long as it takes. `on_wait` is called with a
        message while it waits, again at each try."""
        message = f"waiting for one of {self.count} places: other deliveries' tests or setups run"
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
    slots: CommandSlots
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
