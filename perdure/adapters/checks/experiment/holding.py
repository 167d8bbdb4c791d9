"""The test side of one commit, read-only while its commands run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.checks.experiment.commits import recognised_in
from perdure.adapters.checks.experiment.runs import looked_at
from perdure.adapters.checks.experiment.sides import Sides
from perdure.adapters.checks.experiment.trees import Tree
from perdure.adapters.git.repository import Repository
from perdure.models.config import TestCommand


@dataclass(frozen=True)
class Holding:
    """The rules of a commit, and its paths."""

    rules: Sides
    paths: tuple[str, ...]

    @classmethod
    def of(cls, repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str]) -> Holding:
        """Raises GitError when there is no such commit."""
        tree = Tree.of(repository, commit)
        commands = [(test, recognised_in(tree, test)) for test in tests]
        return cls(Sides.of(tree, commands, side), tuple(sorted(tree.entries)))

    def of_command(self, test: TestCommand) -> tuple[str, ...]:
        """See Command.held."""
        return self.rules.held(self.paths, test.writes)

    def looked_at(self, source: Path, test: TestCommand) -> dict[str, tuple[int, ...]]:
        return looked_at(self.rules, source, test.writes)

    def named(self, written: Iterable[str]) -> tuple[str, ...]:
        """The paths to allow so that these can be written: a directory that is not in the commit as a whole."""
        known = {part for path in self.paths for part in _above(path)}
        return tuple(
            dict.fromkeys(next((part for part in _above(path) if part not in known), path) for path in sorted(written))
        )


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
