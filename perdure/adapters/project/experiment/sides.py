"""Tells tests and what steers them from the product: by the runners' own rules and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.adapters.project.experiment.trees import Entry, Tree
from perdure.adapters.project.runners import RUNNERS
from perdure.adapters.project.runners.base import Runner
from perdure.models.config import TestCommand
from perdure.models.policy import EXPERIMENT_HELD

_SETTINGS = ("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "package.json")


@dataclass(frozen=True)
class Sides:
    """The rules of one commit.

    tests    files that hold tests: a pattern of whole paths
    steers   names of files that steer runners, and belong to nothing else
    shared   names of files that steer them and the product as well
    roots    directories whose whole content is the test side
    files    more paths of it
    """

    tests: re.Pattern[str]
    steers: re.Pattern[str]
    shared: frozenset[str]
    roots: frozenset[str]
    files: frozenset[str]

    @classmethod
    def of(cls, tree: Tree, commands: Sequence[tuple[TestCommand, Runner | None]]) -> Sides:
        """Each command with its runner; none of them known: every runner's rules count together.

        Files on the command line of a runner are tests; what other programs are told to read may be the product.
        """
        known = [(command, runner) for command, runner in commands if runner is not None]
        rules = tuple(dict.fromkeys(runner for _, runner in known)) or RUNNERS
        read = tree.texts(_configuration(tree, [command for command, _ in commands]))
        tests = [rule.tests for rule in rules]
        roots, files = set[str](), set[str]()
        for command, rule in known:
            top = f"{command.directory}/" if command.directory else ""
            here = {path.removeprefix(top): text for path, text in read.items() if path.startswith(top)}
            named = rule.named(command.command, lambda name, here=here: here.get(name, ""))  # type: ignore[misc]
            tests += [f"(?:{re.escape(top)})?{pattern}" for pattern in named.tests]
            roots |= {top + root for root in named.roots}
            files |= {top + word.removeprefix("./") for word in re.findall(r"[\w./-]+", command.command)}
        pattern = re.compile("|".join(f"(?:{one})" for one in dict.fromkeys(tests)))
        roots |= set(_roots(tree.entries, pattern, frozenset().union(*(rule.roots for rule in rules))))
        steers = [rule.settings for rule in rules if rule.settings]
        return cls(
            pattern,
            re.compile("|".join(f"(?:{one})" for one in dict.fromkeys(steers)) or r"(?!)"),
            frozenset().union(*(rule.shared for rule in rules)),
            frozenset(roots),
            frozenset(file for file in files if file in tree.entries),
        )

    def is_shared(self, path: str) -> bool:
        return path.rpartition("/")[2] in self.shared and not self.below_root(path)

    def is_side(self, path: str) -> bool:
        """True for a path of the test side; shared settings are not."""
        name = path.rpartition("/")[2]
        if path in self.files or self.tests.fullmatch(path) is not None or self.below_root(path):
            return True
        return name not in self.shared and self.steers.fullmatch(name) is not None

    def holds_tests(self, path: str) -> bool:
        return path in self.files or self.tests.fullmatch(path) is not None

    def below_root(self, path: str) -> bool:
        at = path.rfind("/")
        while at > 0:
            if path[:at] in self.roots:
                return True
            at = path.rfind("/", 0, at)
        return False

    def held(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The paths shown read-only: each root as a whole, other files one by one, as many as a sandbox takes."""
        found = set[str]()
        for path in paths:
            if not (self.is_side(path) or self.is_shared(path)):
                continue
            top = next((part for part in _above(path) if part in self.roots), path)
            found.add(top)
        return tuple(sorted(found)[:EXPERIMENT_HELD])


def mixed(side: Tree, product: Tree, rules: Sides, *, shared: bool = True) -> dict[str, Entry]:
    """The test side of one commit with the product files of another. `shared`: shared settings are test side, too."""

    def is_side(path: str) -> bool:
        return rules.is_side(path) or (shared and rules.is_shared(path))

    found = {path: entry for path, entry in product.entries.items() if not is_side(path)}
    for path, entry in side.entries.items():
        if is_side(path):
            found[path] = entry
    return found


def _configuration(tree: Tree, commands: Sequence[TestCommand]) -> list[str]:
    tops = {f"{command.directory}/" if command.directory else "" for command in commands}
    return [path for top in tops for name in _SETTINGS if (path := top + name) in tree.entries]


def _roots(entries: Mapping[str, Entry], tests: re.Pattern[str], names: frozenset[str]) -> list[str]:
    """Directories of such a name that hold tests; of several within each other the outermost."""
    found = set[str]()
    for path in entries:
        if tests.fullmatch(path):
            top = next((part for part in _above(path) if part.rpartition("/")[2] in names), None)
            found |= {top} if top is not None else set()
    for path in entries:  # data beside tests: no test is in it
        top = next((part for part in _above(path) if part.rpartition("/")[2] in ("testdata", "__snapshots__")), None)
        found |= {top} if top is not None and top.rpartition("/")[2] in names else set()
    return sorted(found)


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
