"""Tells tests and what steers them from the product: by the runners' own rules and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from perdure.adapters.checks.experiment.trees import Entry, Tree
from perdure.adapters.checks.findings.globs import last_of
from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.checks.runners.base import ConfiguredTestSide, Runner
from perdure.adapters.checks.runners.command_trace import trace_command
from perdure.models.config import TestCommand
from perdure.models.limits import SIDE_READ_FILES

EXPERIMENT_HELD = 500
"""Paths of the test side that are mounted read-only, each a directory with all that is in it where it can be: a mount
takes some 0.1 ms. What is beyond is only looked at afterwards."""


ANSWERS_KEPT = 100_000
"""About paths: each is asked about before and after each run, and a test may make any number of them."""

_DATA = {"testdata", "test_data", "test-data", "__snapshots__", "__image_snapshots__", "cassettes"}
"""Directories of data that no product is in."""

_LOCKS = {"Cargo.lock", "go.sum", "package-lock.json"}


class _Below:
    """The directory of a command, of which no more than a number of files is read."""

    def __init__(self, tree: Tree, top: str) -> None:
        self._tree, self._top, self._read = tree, top, dict[str, str]()
        self.paths = frozenset(path.removeprefix(top) for path in tree.entries if path.startswith(top))

    def text(self, path: str) -> str:
        if path not in self._read:
            if path not in self.paths or len(self._read) >= SIDE_READ_FILES:
                return ""
            self._read[path] = self._tree.text(self._top + path)
        return self._read[path]


@dataclass(frozen=True)
class Sides:
    """The rules of one commit.

    tests    files that hold tests: a pattern of whole paths
    steers   names of files that steer runners, and belong to nothing else
    shared   names of files that steer them and the product as well
    roots    directories whose whole content is the test side
    files    more paths of it
    data     and more, which hold no tests
    side     patterns of people (`[tests] side`), which decide before all others
    unread   patterns of settings that are beyond reading
    """

    tests: re.Pattern[str]
    steers: re.Pattern[str]
    shared: frozenset[str]
    roots: frozenset[str]
    files: frozenset[str]
    side: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    data: frozenset[str] = frozenset()
    _directories: dict[str, tuple[bool, bool]] = field(default_factory=dict, repr=False, compare=False)
    _fixed: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, tree: Tree, commands: Sequence[tuple[TestCommand, Runner | None]], side: Sequence[str] = ()) -> Sides:
        """Each command with its runner; none of them known: every runner's rules count together.

        Files on the command line of a runner are tests, and so are those that a command runs by itself or through
        recipes and package scripts; what other programs are told to read may be the product.
        """
        rules, tests, found, files = list[Runner](), list[str](), ConfiguredTestSide(), set[str]()
        for command, rule in commands:
            top = f"{command.directory}/" if command.directory else ""
            there = _Below(tree, top)
            led = trace_command(command.command, there)
            files |= {top + file for file in led.files}
            for one in (rule,) if rule is not None else RUNNERS:
                simple = [words for words in led.simple_commands if one.runs(PurePosixPath(words[0]).name, words[1:])]
                if rule is None and not simple:
                    continue
                rules.append(one)
                named = one.configured_test_side(simple, there)
                tests += [f"(?:{re.escape(top)}(?:{pattern}))" for pattern in named.tests]
                found += ConfiguredTestSide(roots=tuple(top + root for root in named.roots), unread=named.unread)
                files |= {top + file for file in named.files}
                files |= {top + word.removeprefix("./") for words in simple for word in words[1:]}
        rules = rules or list(RUNNERS)
        tests += [rule.tests for rule in rules]
        pattern = re.compile("|".join(f"(?:{one})" for one in dict.fromkeys(tests)), re.DOTALL)
        roots = _roots(tree.entries, pattern, frozenset().union(*(rule.roots for rule in rules)))
        steers = [rule.settings for rule in rules if rule.settings]
        return cls(
            pattern,
            re.compile("|".join(f"(?:{one})" for one in dict.fromkeys(steers)) or r"(?!)", re.DOTALL),
            frozenset().union(*(rule.shared for rule in rules)),
            frozenset({*found.roots, *roots}),
            frozenset(file for file in files if file in tree.entries),
            tuple(side),
            tuple(dict.fromkeys(found.unread)),
        )

    def said(self, path: str) -> bool | None:
        """True or False as people say of it; None where they say nothing."""
        last = last_of(path, self.side) if self.side else None
        return None if last is None else not last.startswith("!")

    def is_shared(self, path: str) -> bool:
        if self.said(path) is not None:
            return False
        return path.rpartition("/")[2] in self.shared and not self.below_root(path)

    def is_side(self, path: str) -> bool:
        """True for a path of the test side; shared settings are not."""
        if (said := self.said(path)) is not None:
            return said
        if path in self.files or path in self.data or self.tests.fullmatch(path) is not None or self.below_root(path):
            return True
        return path.rpartition("/")[2] not in self.shared and self.is_steering(path)

    def is_steering(self, path: str) -> bool:
        """True for what steers runners and belongs to nothing else, and for all in a package of such a name."""
        above, _, name = path.rpartition("/")
        return self._directory(above)[1] or self.steers.fullmatch(name) is not None

    def is_fixed(self, path: str) -> bool:
        """True for what nobody may write to: what a tool itself writes down of dependencies is not."""
        if (known := self._fixed.get(path)) is None:
            if len(self._fixed) >= ANSWERS_KEPT:
                self._fixed.clear()
            known = (self.is_side(path) or self.is_shared(path)) and path.rpartition("/")[2] not in _LOCKS
            self._fixed[path] = known
        return known

    def holds_tests(self, path: str) -> bool:
        return self.said(path) is not False and (path in self.files or self.tests.fullmatch(path) is not None)

    def below_root(self, path: str) -> bool:
        return self._directory(path.rpartition("/")[0])[0]

    def _directory(self, path: str) -> tuple[bool, bool]:
        """Of a directory: it is a root or below one; it, or one above it, has a name that steers. Asked for each of
        its files, so the answer is kept."""
        if (known := self._directories.get(path)) is None:
            if len(self._directories) >= ANSWERS_KEPT:
                self._directories.clear()
            names = path.split("/") if path else []
            steering = any(self.steers.fullmatch(name) is not None for name in names)
            known = self._directories[path] = (any(p in self.roots for p in (*_above(path), path) if p), steering)
        return known

    def held(self, paths: Iterable[str], writes: Sequence[str] = ()) -> tuple[str, ...]:
        """The paths shown read-only: each root as a whole, other files one by one, as many as a sandbox takes.

        writes  paths that stay writable; what lies beside them in a root is shown part by part
        """
        side, product = list[str](), list[str]()
        for path in paths:
            if self.is_fixed(path) and not allowed(path, writes):
                side.append(path)
            elif path.rpartition("/")[2] not in _LOCKS:
                product.append(path)
        mixed_up = {part for path in (*product, *map(_plain, writes)) for part in _above(path)}
        mixed_up |= set(map(_plain, writes))
        found = {next((p for p in _above(path) if p not in mixed_up and self._in_root(p)), path) for path in side}
        return tuple(sorted(found)[:EXPERIMENT_HELD])

    def _in_root(self, directory: str) -> bool:
        return directory in self.roots or self.below_root(directory)


def allowed(path: str, writes: Sequence[str]) -> bool:
    """True for these and what is below them."""
    return any(path == one or path.startswith(f"{one}/") for one in map(_plain, writes))


def _plain(path: str) -> str:
    return path.removeprefix("./").rstrip("/")


def mixed(side: Tree, product: Tree, rules: Sides, *, shared: bool = True) -> dict[str, Entry]:
    """The test side of one commit with the product files of another. `shared`: shared settings are test side, too."""

    def is_side(path: str) -> bool:
        return rules.is_side(path) or (shared and rules.is_shared(path))

    found = {path: entry for path, entry in product.entries.items() if not is_side(path)}
    for path, entry in side.entries.items():
        if is_side(path):
            found[path] = entry
    return found


def _roots(entries: Mapping[str, Entry], tests: re.Pattern[str], names: frozenset[str]) -> list[str]:
    """Directories of such a name that hold tests; of several within each other the outermost."""
    found = set[str]()
    for path in entries:
        if tests.fullmatch(path):
            top = next((part for part in _above(path) if part.rpartition("/")[2] in names), None)
            found |= {top} if top is not None else set()
    for path in entries:  # data beside tests: no test is in it
        top = next((part for part in _above(path) if part.rpartition("/")[2] in _DATA), None)
        found |= {top} if top is not None else set()
    return sorted(found)


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
