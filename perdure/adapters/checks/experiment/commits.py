"""Both commits of an experiment, their sides, and the trees made of them."""

from __future__ import annotations

import copy
import re
import secrets
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.checks.baseline import command_key
from perdure.adapters.checks.experiment.lessened import lessened, names_of
from perdure.adapters.checks.experiment.named import named_by_tests
from perdure.adapters.checks.experiment.sides import Sides, mixed
from perdure.adapters.checks.experiment.trees import Entry, Tree, write
from perdure.adapters.checks.runners import find_runner
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.adapters.git.repository import Repository
from perdure.models.config import TestCommand


@dataclass(frozen=True)
class Layout:
    """A tree to run in, its test side, files that are put over it, and options by the variable that takes them."""

    tree: str
    rules: Sides
    paths: Sequence[str]
    over: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)

    def with_canaries(self, canaries: Canaries) -> Layout:
        return replace(self, paths=sorted({*self.paths, *canaries.files}), over=canaries.files, env=canaries.env)


class CommitPair:
    """Both commits, their sides, and the trees made of them."""

    def __init__(
        self, repository: Repository, base: Tree, change: Tree, tests: Sequence[TestCommand], side: Sequence[str] = ()
    ) -> None:
        self._repository = repository
        self.base, self.change = base, change
        self._told = base
        self.runners = {command_key(test): recognised_in(base, test) for test in tests}
        commands = [(test, self.runners[command_key(test)]) for test in tests]
        old, new = Sides.of(base, commands, side), Sides.of(change, commands, side)
        differing = {p for p in {*base.entries, *change.entries} if base.entries.get(p) != change.entries.get(p)}
        more = named_by_tests(base, old, differing) | _around(base, differing)
        self.old, self.new = (replace(one, data=more) for one in (old, new))
        self.shared = tuple(sorted(path for path in differing if self.old.is_shared(path)))
        sided = sorted(path for path in differing if self.old.is_side(path) or self.new.is_side(path))
        self.touched = (*sided, *self.shared)
        self._product = sorted(differing & change.entries.keys() - set(self.touched))

    @classmethod
    def of(
        cls, repository: Repository, base: str, change: str, tests: Sequence[TestCommand], side: Sequence[str]
    ) -> CommitPair:
        return cls(repository, Tree.of(repository, base), Tree.of(repository, change), tests, side)

    def inside(self, test: TestCommand) -> list[str]:
        """Product files of the change that hold tests themselves: the base's versions of these are not run in B."""
        runner = self.runners[command_key(test)]
        if runner is None or not runner.inline_tests:
            return []
        if runner.inline_tests_word and runner.inline_tests_word not in test.command:
            steering = [path for path in self.base.entries if self.old.is_shared(path) or self.old.is_side(path)]
            settings = self.base.texts(path for path in steering if path.endswith((".toml", ".ini", ".cfg")))
            if not any(runner.inline_tests_word in text for text in settings.values()):
                return []
        found = re.compile(runner.inline_tests, re.MULTILINE)
        return [path for path, text in self.change.texts(self._product).items() if found.search(text)]

    def is_inside(self, file: str) -> bool:
        """True for a product file that holds tests, whose names are compared without running it (see tamper)."""
        return file.endswith(".rs") and not self.old.is_side(file)

    def cannot_look(self, runner: Runner) -> bool:
        """True where nothing that the change brings to a run of the base's tests can tell how, or by whom, it is asked,
        nor does anything of the base's test side look at how a test ended; as far as their files say."""
        before, after = self.base.texts(self._product), self.change.texts(self._product)
        own = frozenset(path.removeprefix("src/").partition("/")[0].removesuffix(".py") for path in self.base.entries)
        if not all(p in after and runner.is_blind(p, before.get(p, ""), after[p], own) for p in self._product):
            return False
        all_texts, looking = self.base.texts(self.base.entries), re.compile(runner.observing_code)
        if any(path.endswith((".py", ".js", ".cjs", ".mjs", ".go")) for path in self.base.entries.keys() - all_texts):
            return False  # not read: too much, or no text
        for path, text in all_texts.items():
            if runner.observes_outcomes(path, text) if self.old.is_side(path) else looking.search(text):
                return False  # the change may ask that
        return True

    def as_base(self) -> Layout:
        return self._layout(self.base.entries, self.old)

    def as_change(self) -> Layout:
        return self._layout(self.change.entries, self.new)

    def base_tests_on_change(self, *, shared: bool = True) -> Layout:
        return self._layout(mixed(self._told, self.change, self.old, shared=shared), self.old)

    def lessened(self) -> CommitPair | None:
        """The same with the base's test files told without what the change has deleted from them; None where that is
        nothing that is known by name."""
        paths = [path for path in self.touched if self.old.holds_tests(path)]
        here = [path for path in self.touched if self.new.holds_tests(path)]
        now = {path: names_of(path, text) for path, text in self.change.texts(here).items()}
        everywhere = set[str]().union(*now.values())
        entries = dict(self.base.entries)
        for path, text in self.base.texts(paths).items():
            left = lessened(path, text, now.get(path, everywhere))
            if left != text and names_of(path, left):
                oid = self._repository.git.execute("hash-object", "-w", "--stdin", stdin=left.encode()).stdout
                entries[path] = entries[path][0], oid.decode().strip()
            elif left != text:
                del entries[path]
        if entries == self.base.entries:
            return None
        other = copy.copy(self)
        other._told = Tree(self._repository, entries)
        return other

    def change_tests_on_base(self) -> Layout:
        """The tree of D: where nothing but test files differ, only they and those they need."""
        entries = mixed(self.change, self.base, self.new)
        spared = spared_tests(self.change, self.new, self.differing) if not self.shared else frozenset[str]()
        return self._layout({path: entry for path, entry in entries.items() if path not in spared}, self.new)

    @property
    def differing(self) -> frozenset[str]:
        """Paths of the change's test side that are not the base's."""
        return frozenset(path for path in self.touched if path in self.change.entries)

    @property
    def altered(self) -> frozenset[str] | None:
        """Files of the base's tests that are not so in the change's own run; None where something differs there that
        may be about any of them: settings, what they share."""
        there = [path for path in self.touched if path in self.base.entries]
        steering = any(self.new.is_steering(path) for path in self.touched)
        if self.shared or steering or not all(self.old.holds_tests(path) for path in there):
            return None
        return frozenset(there)

    def canaries(self, rules: Sequence[Runner], directory: str, *, on_change: bool = False) -> Canaries:
        """In the base's own test files, or the change's, so that what they are told is what its tests are told."""
        tree, sides = (self.change, self.new) if on_change else (self._told, self.old)
        top = f"{directory}/" if directory else ""
        holding = [path for path in tree.entries if path.startswith(top) and sides.holds_tests(path)]
        texts, found = tree.texts(holding), Canaries()
        for rule in rules:
            found += rule.make_canaries(
                {path: text for path, text in texts.items() if path not in found.files}, _token()
            )
        beside = {path.rpartition("/")[0] for path in found.files if path.endswith("_test.go")}
        taken = {*found.files, *found.names.values()}
        return replace(
            found,
            unplanted=tuple(
                path
                for path in sorted(set(holding) - taken)
                if not (path.endswith("_test.go") and path.rpartition("/")[0] in beside)
            ),
        )

    def _layout(self, entries: Mapping[str, Entry], rules: Sides) -> Layout:
        return Layout(write(self._repository, entries), rules, sorted(entries), {})


def recognised_in(base: Tree, test: TestCommand) -> Runner | None:
    """By what the base says its scripts are."""
    with tempfile.TemporaryDirectory() as directory:
        scripts = base.text(f"{test.directory}/package.json" if test.directory else "package.json")
        (Path(directory) / "package.json").write_text(scripts)
        return find_runner(test.command, Path(directory))[0]


def _around(base: Tree, differing: Collection[str]) -> frozenset[str]:
    """A package that a change makes of the directory the tests run in: pytest loads it before the tests of one."""
    return frozenset({*differing} & {"__init__.py"} - base.entries.keys())


def _token() -> str:
    """Nobody can know it before; letters only, for it is part of names in all languages."""
    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10))


def spared_tests(tree: Tree, rules: Sides, differing: Collection[str]) -> frozenset[str]:
    """Test files of a tree that do not differ, and whose names stand in no other file of the test side that is kept.

    None where something else than test files differs (a fixture, data: any test may be about it), none that a command
    or a setting names, and none of a package of Go or of Rust in which one differs: they are compiled together.
    """
    if not differing or not all(rules.holds_tests(path) for path in differing):
        return frozenset()
    side = {path for path in tree.entries if rules.is_side(path)}
    compiled = {path.rpartition("/")[0] for path in differing if path.endswith((".go", ".rs"))}
    spared = {
        path
        for path in side - set(differing) - rules.files
        if rules.holds_tests(path) and path.rpartition("/")[0] not in compiled and not path.endswith("__init__.py")
    }
    words = {path: _words(text) for path, text in tree.texts(side).items()}
    spared &= words.keys()
    while True:
        said = set[str]().union(*(words.get(path, ()) for path in side - spared))
        needed = {path for path in spared if _names(path) & said}
        if not needed:
            return frozenset(spared)
        spared -= needed


def _words(text: str) -> set[str]:
    """Words that could be the name of another file, with its ending or without."""
    return {*re.findall(r"\w+", text), *re.findall(r"[\w.-]+", text)}


def _names(path: str) -> set[str]:
    """`test_calc` and `test_calc.py`; `calc.test` and `calc.test.js`."""
    name = path.rpartition("/")[2]
    return {name, name.rpartition(".")[0]}
