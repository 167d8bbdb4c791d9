"""The test side of one commit (tests, their data, and what steers them), read-only while its commands run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.checks.experiment.commit_pair import find_command_runner
from perdure.adapters.checks.experiment.runs import stamp_test_side
from perdure.adapters.checks.experiment.side_rules import SideRules
from perdure.adapters.checks.experiment.trees import CommitTree
from perdure.adapters.git.repository import Repository
from perdure.models.config import TestCommand


@dataclass(frozen=True)
class ReadOnlyTestSide:
    """The test side of one commit: the rules that tell it, and all paths of the commit."""

    rules: SideRules
    paths: tuple[str, ...]

    @classmethod
    def from_commit(
        cls, repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str]
    ) -> ReadOnlyTestSide:
        """Return the test side of a commit. Raises GitError when there is no such commit.

        tests  the test commands
        side   patterns of `[tests] side`
        """
        tree = CommitTree.from_commit(repository, commit)
        commands = [(test, find_command_runner(tree, test)) for test in tests]
        return cls(SideRules.from_tree(tree, commands, side), tuple(sorted(tree.entries)))

    def paths_for_command(self, test: TestCommand) -> tuple[str, ...]:
        """Return the paths that are mounted read-only for a command: the test side without what the command may
        write."""
        return self.rules.read_only_paths(self.paths, test.writes)

    def stamp_files(self, source: Path, test: TestCommand) -> dict[str, tuple[int, ...]]:
        """Return path → stamp of the test side's files in a checkout, without those that the command may write; a stamp
        differs once somebody has written to the file."""
        return stamp_test_side(self.rules, source, test.writes)

    def writable_paths(self, written_paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that must be made writable so that these files can be written, without repetitions.

        Of each file: the outermost directory above it that the commit does not have, or else the file itself.
        """
        commit_directories = {part for path in self.paths for part in _parent_directories(path)}
        return tuple(
            dict.fromkeys(
                next((part for part in _parent_directories(path) if part not in commit_directories), path)
                for path in sorted(written_paths)
            )
        )


def _parent_directories(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
