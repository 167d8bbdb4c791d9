"""The table: cases as data, each with what attacks and what is seen, and how it is printed."""

from __future__ import annotations

import asyncio
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from perdure.adapters.sandbox.base import Sandbox, SandboxCommand
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade

T = TypeVar("T")

HELD, MISSED, GAP, LEFT, WORKS = "held", "MISSED", "gap", "left out", "works"
"""A gap is a weakness that SECURITY.md names; left out is what cannot be tried here, with the reason."""

CAPS = ResourceCaps(memory=1600 * 1024**2, processes=200, disk=100 * 1024**2, cpu_s=8.0)
"""Smaller than a host's own, so that nobody waits; larger than the private /tmp that an attack fills."""

SECRET = "planted-secret-7d1f"


@dataclass(frozen=True)
class Seen:
    verdict: str
    words: str


@dataclass(frozen=True)
class Case:
    """`attack` carries it out against the real parts, and where that is safe once more against none.

    `benign`: it is no attack but the nearest honest thing, and has to work.
    """

    group: str
    name: str
    expected: str
    attack: Callable[[Ground], Seen]
    short: bool = False
    benign: bool = False


@dataclass
class Ground:
    """Where attacks take place: a directory of its own, a home, sandboxes of each grade; what several share."""

    root: Path
    until_the_end: ExitStack
    _shared: dict[Callable[..., object], object] = field(default_factory=dict)

    def once(self, make: Callable[[Ground], T]) -> T:
        """The one that `make` made when somebody asked for it first: servers and repositories are worth sharing."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("T", self._shared[make])

    @cached_property
    def home(self) -> Home:
        return Home(self.root / "home")

    @cached_property
    def _sandboxes(self) -> dict[SandboxGrade, Sandbox]:
        (self.root / "none").mkdir()
        binds = compute_binds(self.root / "none", "/usr/local/bin:/usr/bin:/bin", Path.home())
        return {grade: sandbox_for(grade, self.home, binds, CAPS) for grade in SandboxGrade}

    def run(self, script: str, grade: SandboxGrade = SandboxGrade.FULL, **fields: object) -> str:
        """The output of a command in a fresh worktree, and how it ended."""
        directory = Path(tempfile.mkdtemp(dir=self.root))
        (directory / "tree").mkdir()
        given = {"worktree": directory / "tree", "output": directory / "out", "timeout_s": 30.0, **fields}
        command = SandboxCommand(script, **given)  # type: ignore[arg-type]
        finished = asyncio.run(self._sandboxes[grade].run_command(command))
        said = (directory / "out").read_text(errors="replace") if (directory / "out").exists() else ""
        how = f"{', timed out' if finished.timed_out else ''}{finished.failure}"
        return f"{said}\n[exit {finished.exit_code}{how}] {finished.over}"


@contextmanager
def ground() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as directory:
        kept = os.environ.get("ANTHROPIC_API_KEY")
        os.environ["ANTHROPIC_API_KEY"] = SECRET
        try:
            with ExitStack() as until_the_end:
                yield Ground(Path(directory), until_the_end)
        finally:
            os.environ.pop("ANTHROPIC_API_KEY", None)
            if kept is not None:
                os.environ["ANTHROPIC_API_KEY"] = kept


def tried(case: Case, at: Ground) -> Seen:
    try:
        return case.attack(at)
    except Exception as error:  # noqa: BLE001 - whatever it is, the attack was not seen to fail
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Seen(MISSED, f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})")


def held(condition: object, words: str) -> Seen:
    return Seen(HELD if condition else MISSED, one_line(words))


def works(condition: object, words: str) -> Seen:
    return Seen(WORKS if condition else MISSED, one_line(words))


def one_line(words: str, most: int = 110) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def row(case: Case, seen: Seen) -> str:
    return f"{seen.verdict:8} | {case.group} | {case.name} | {case.expected} | {one_line(seen.words)}"
