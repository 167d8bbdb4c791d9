"""The setup and test commands that detection returns, and the directories that setup fills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perdure.models.config.repository import TestCommand

DEPENDENCIES = (".venv", "node_modules")
"""Directories that setup fills inside a worktree; what cargo and go download is kept by the sandbox."""


@dataclass(frozen=True)
class DetectedCommands:
    """Commands as they would stand in perdure.toml.

    kinds         what was recognised (`uv`, `pip`, `npm`, `go` …)
    alternatives  by the name of a test command, others that may be right in its place, the most trusted first
    optional      those of `setup` that may be left out where they fail: what maintainers install for another system
    left_out      for people: what was recognised and is not tested, and why
    """

    setup: tuple[str, ...] = ()
    tests: tuple[TestCommand, ...] = ()
    kinds: tuple[str, ...] = ()
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __add__(self, other: DetectedCommands) -> DetectedCommands:
        return DetectedCommands(
            self.setup + other.setup,
            self.tests + other.tests,
            self.kinds + tuple(kind for kind in other.kinds if kind not in self.kinds),
            {**self.alternatives, **other.alternatives},
            self.optional + other.optional,
            self.left_out + other.left_out,
        )


def list_alternatives(test: TestCommand, commands: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the `alternatives` of one test command: those of `commands` that differ from it, each once."""
    others = tuple(dict.fromkeys(command for command in commands if command != test.command))
    return {test.name: others} if others else {}
