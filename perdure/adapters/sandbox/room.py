"""A bounded number of setups and test commands at once on this host: these need its processors and memory, while what
agents do mostly waits for a model.

A place is a lock on a file below PERDURE_HOME, so that all workers of a home share them and a death gives one back.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.base import Command, Finished, Sandbox
from perdure.adapters.system.files import try_lock
from perdure.models.config import SandboxGrade
from perdure.models.host_config import CommandLimits

ROOM_PROCESSOR, ROOM_BYTES = 2, 2 * 1024**3
"""Places for each processor (suites also wait: for disks, for servers they start), and memory for each: what a large
suite or a package manager takes. A command that takes more is bounded by its own limit."""

_LOOK_S = 0.2
"""Between two looks for a place that another worker of this home may have left."""

_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Size:
    """The share of the machine that this process may use: the least of all, its control groups and its affinity."""

    processors: float
    memory: int

    @classmethod
    def seen(cls, process: Path = Path("/proc/self"), groups: Path = _GROUPS) -> Size:
        affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processors, memory = [float(affine)], [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        for group in _above(process, groups):
            quota, period = [*_numbers(group / "cpu.max"), 0, 0][:2]
            if not quota:
                quota, period = (next(_numbers(group / f"cpu.cfs_{one}_us"), 0) for one in ("quota", "period"))
            processors += [quota / period] if quota > 0 and period > 0 else []
            memory += [*_numbers(group / "memory.max"), *_numbers(group / "memory.limit_in_bytes")]
        return cls(min(processors), min(memory))

    def room(self) -> int:
        return max(1, min(int(ROOM_PROCESSOR * self.processors), self.memory // ROOM_BYTES))


class Room:
    """`places`: how many."""

    def __init__(self, directory: Path, places: int) -> None:
        self._directory, self.places = directory, places
        self._ours = asyncio.Semaphore(places)  # in order of arrival within a worker

    @classmethod
    def of(cls, directory: Path, limits: CommandLimits) -> Room:
        return cls(directory, limits.at_once or Size.seen().room())

    @asynccontextmanager
    async def place(self, say: Callable[[str], None]) -> AsyncIterator[None]:
        """One of the places, waited for as long as it takes; `say` is told when it does."""
        words = f"waiting for one of {self.places} places: other deliveries' tests or setups run"
        if self._ours.locked():
            say(words)
        async with self._ours:
            while (held := self._free()) is None:
                say(words)
                await asyncio.sleep(_LOOK_S)
            try:
                yield
            finally:
                os.close(held)

    def _free(self) -> int | None:
        tries = (try_lock(self._directory / str(number)) for number in range(self.places))
        return next((held for held in tries if held is not None), None)


@dataclass(frozen=True)
class Roomed:
    """A sandbox whose every command takes a place for as long as it runs: its time-out begins when it has one."""

    sandbox: Sandbox
    room: Room
    say: Callable[[str], None]

    @property
    def grade(self) -> SandboxGrade:
        return self.sandbox.grade

    async def run(self, command: Command) -> Finished:
        async with self.room.place(self.say):
            return await self.sandbox.run(command)


def _above(process: Path, groups: Path) -> Iterator[Path]:
    """The control groups that a process is in, and all above them."""
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            top = groups / kinds if kinds else groups
            at = top / path.lstrip("/")
            if ".." not in at.parts:
                yield from (one for one in (at, *at.parents) if one == top or top in one.parents)


def _numbers(file: Path) -> Iterator[int]:
    """The whole numbers in a file, none where there is none: `max` is no limit."""
    with suppress(OSError, ValueError):
        yield from map(int, file.read_text().split())
