"""The two commits of an experiment, base and change, the test sides of both, and the trees made of their files for the
runs of `run_experiment`; and the runner that a test command starts. Also a check of a commit's test side, by which
`activities.prepare` tells people what looks wrong before any money is spent."""

from __future__ import annotations

import copy
import re
import secrets
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from perdure.adapters.checks.baseline import CaseKey, command_key
from perdure.adapters.checks.experiment.function_stubs import (
    new_functions_of_rust,
    recover_go_panics,
    stub_new_functions,
)
from perdure.adapters.checks.experiment.helper_search import find_shadowing_modules, find_test_helpers, imported_modules
from perdure.adapters.checks.experiment.reduced_tests import (
    defined_names,
    find_test_text,
    remove_definitions,
    split_name,
)
from perdure.adapters.checks.experiment.side_rules import SideRules, find_test_data, mix_trees, quoted_words
from perdure.adapters.checks.globs import matches
from perdure.adapters.checks.runners import find_runner
from perdure.adapters.checks.runners.base import Canaries, Runner, StartupModule
from perdure.adapters.checks.runners.command_trace import MAKEFILES
from perdure.adapters.checks.runners.python import other_conditions
from perdure.adapters.checks.tamper.hints import SCRIPT, reads_conditions, reads_other_clocks
from perdure.adapters.checks.tamper.missing_tests import CODE
from perdure.adapters.checks.tamper.source_tests import find_tests
from perdure.adapters.checks.trees import CommitTree, TreeEntry, write_tree
from perdure.adapters.git.checkouts import checkout_attributes, differing_checkouts
from perdure.adapters.git.repository import Repository
from perdure.models.config.repository import TestCommand
from perdure.models.errors import InvalidRequest


@dataclass(frozen=True)
class TreeLayout:
    """A tree to run a command in.

    tree       the name of the tree object
    rules      which of its paths are the test side (tests, their data, and what steers them)
    paths      all its paths, those of `overlay` with them
    overlay    path → text, or bytes, of files that are written over the tree
    env        options for the command, by the variable that takes them
    startup    a module that each Python or node of the run loads first
    elsewhere  whether the command sees the tree at another path, in grade `full`
    """

    tree: str
    rules: SideRules
    paths: Sequence[str]
    overlay: Mapping[str, str | bytes]
    env: Mapping[str, str] = field(default_factory=dict)
    startup: StartupModule | None = None
    elsewhere: bool = False

    def with_canaries(self, canaries: Canaries) -> TreeLayout:
        """Return the same layout with the canaries' files over the tree, their options in `env`, and their module of
        Python's start."""
        overlay, paths = {**self.overlay, **canaries.files}, sorted({*self.paths, *canaries.files})
        return replace(self, paths=paths, overlay=overlay, env=canaries.env, startup=canaries.startup)


class CommitPair:
    """The two commits of an experiment, their test sides, and the trees that its runs need.

    base, change             the files of both
    runners                  by command_key, the runner of each test command; None: it is not known
    base_side, change_side   the rules that tell the test side, made from the base and from the change
    shared_settings          settings of tests and product alike (such as pyproject.toml) that differ
    touched                  paths of the test side that differ, `shared_settings` with them
    """

    def __init__(
        self,
        repository: Repository,
        base: CommitTree,
        change: CommitTree,
        tests: Sequence[TestCommand],
        side: Sequence[str] = (),
    ) -> None:
        self._repository = repository
        self.base, self.change = base, change
        self._base_tests = base
        self.runners = {command_key(test): find_command_runner(base, test) for test in tests}
        commands = [(test, self.runners[command_key(test)]) for test in tests]
        base_side, change_side = SideRules.from_tree(base, commands, side), SideRules.from_tree(change, commands, side)
        differing = {p for p in {*base.entries, *change.entries} if base.entries.get(p) != change.entries.get(p)}
        extra_data = find_test_data(base, base_side, differing)
        extra_data |= find_shadowing_modules(base, change, base_side, differing)
        extra_data |= find_test_helpers(base, base_side, differing)
        self.base_side, self.change_side = (replace(rules, data=extra_data) for rules in (base_side, change_side))
        self.shared_settings = tuple(sorted(path for path in differing if self.base_side.is_shared(path)))
        side_paths = sorted(
            path for path in differing if self.base_side.is_side(path) or self.change_side.is_side(path)
        )
        self._attributes_differ = any(path.rpartition("/")[2] == ".gitattributes" for path in differing)
        side_paths += self._find_rewritten_tests()
        self.touched = (*sorted(side_paths), *self.shared_settings)
        self._differing = differing
        self._touched_texts: dict[str, tuple[str, str]] = {}  # on the base and on the change
        self._product = sorted(differing & change.entries.keys() - set(self.touched))

    @classmethod
    def from_commits(
        cls, repository: Repository, base: str, change: str, tests: Sequence[TestCommand], side: Sequence[str]
    ) -> CommitPair:
        """Read the files of two commits, and return their pair. Raises GitError when there is no such commit.

        tests  the test commands
        side   patterns of `[tests] side`
        """
        return cls(
            repository,
            CommitTree.from_commit(repository, base),
            CommitTree.from_commit(repository, change),
            tests,
            side,
        )

    def inline_test_files(self, test: TestCommand) -> list[str]:
        """Return the product files that the change has added or changed and that hold tests themselves, such as
        doctests. These are the change's in every run: the base's versions of their tests are not run on the change.

        Empty where the command's runner is not known or knows no such tests, or looks for them only when asked to and
        neither the command nor a settings file of the base's test side (.toml, .ini, .cfg) does so.
        """
        runner = self.runners[command_key(test)]
        if runner is None or not runner.inline_tests:
            return []
        if runner.inline_tests_word and runner.inline_tests_word not in test.command:
            steering = [
                path for path in self.base.entries if self.base_side.is_shared(path) or self.base_side.is_side(path)
            ]
            settings = self.base.read_texts(path for path in steering if path.endswith((".toml", ".ini", ".cfg")))
            if not any(runner.inline_tests_word in text for text in settings.values()):
                return []
        pattern = re.compile(runner.inline_tests, re.MULTILINE)
        return [path for path, text in self.change.read_texts(self._product).items() if pattern.search(text)]

    def holds_inline_tests(self, file: str) -> bool:
        """Return whether this is a product file that may hold tests (Rust); their names are compared without running
        them (see perdure.adapters.checks.tamper)."""
        return file.endswith(".rs") and not self.base_side.is_side(file)

    def tests_of_changed_product(self, keys: Collection[CaseKey]) -> set[CaseKey]:
        """Return those of these tests of the base that stand in product files which the change edits or deletes: the
        versions that run are the change's, whatever the run."""
        changed = {path for path in self._differing if not self.base_side.is_side(path)}
        return {key for key in keys if self._source_of(key) in changed - set(self.shared_settings)}

    def _source_of(self, key: CaseKey) -> str:
        """Return the file that a test of the base stands in: its file as the runner reports it; of one in Rust, for
        which that is the crate's first file, the file of its module."""
        if not key.file.endswith(".rs"):
            return key.file
        directory, modules = key.file.rpartition("/")[0], key.name.split("::")[1:-1]
        for length in range(len(modules), 0, -1):
            stem = "/".join(filter(None, (directory, *modules[:length])))
            for path in (f"{stem}.rs", f"{stem}/mod.rs"):
                if path in self.base.entries:
                    return path
        return key.file

    def test_is_new_or_changed(self, key: CaseKey) -> bool:
        """Return whether a test of the change is not on the base, or reads otherwise there: its own text differs, or,
        where that is not found in its file, the file. A test without a file, as Go's and those of many reports, is
        looked for by its class and its own name in all files of the test side that differ, and by its title where its
        own name stands in none (an assertion of tape without a message)."""
        paths = [key.file] if key.file else self.touched
        name = key.name if key.file else key.name.rpartition("::")[2]
        title = "" if key.file else name.rpartition(" > ")[0]
        class_name = key.name.rpartition("::")[0].rpartition(".")[2]
        if not key.file and class_name[:1].isupper() and "/" not in class_name:
            name = f"{class_name}::{name}"
        for path in set(paths).intersection(self.touched):
            if path not in self._touched_texts:
                texts = self.base.read_texts([path]), self.change.read_texts([path])
                self._touched_texts[path] = texts[0].get(path, ""), texts[1].get(path, "")
            before, after = (
                find_test_text(name, text) or (title and find_test_text(title, text))
                for text in self._touched_texts[path]
            )
            if before != after or (key.file and not before):
                return True
        return False

    def new_inline_tests(self, keys: Collection[CaseKey]) -> dict[CaseKey, bool]:
        """Return those of these tests, which the base has not, that stand in product files of the change (Rust; no
        doctests), and whether they name a new function of its product."""
        texts = self.change.read_texts(path for path in self._product if path.endswith(".rs"))
        old = self.base.read_texts(texts)
        names = {name for path, text in texts.items() for name in new_functions_of_rust(old.get(path, ""), text)}
        own_names = {key: key.name.rpartition("::")[2] for key in keys if self.holds_inline_tests(key.file)}
        bodies = {
            key: body
            for key, name in own_names.items()
            for text in texts.values()
            if " " not in name and (body := find_test_text(name, text))
        }
        return {key: not names.isdisjoint(re.findall(r"\w+", body)) for key, body in bodies.items()}

    def base_layout(self) -> TreeLayout:
        """Return the base as it is; writes its tree into the repository."""
        return self._make_layout(self.base.entries, self.base_side)

    def change_layout(self) -> TreeLayout:
        """Return the change as it is; writes its tree into the repository."""
        return self._make_layout(self.change.entries, self.change_side)

    def stubbed_layout(self) -> TreeLayout | None:
        """Return the change with the bodies of its new product functions taken out, those of Go's tests guarded against
        panics; None where it has none that is known."""
        changed = set(self._product) - {path for path in self._product if self.change_side.is_side(path)}
        new_texts, old_texts = self.change.read_texts(changed), self.base.read_texts(changed)
        overlay = {
            path: stubbed
            for path, text in new_texts.items()
            if (stubbed := stub_new_functions(path, old_texts.get(path, ""), text)) != text
        }
        if not overlay:
            return None
        go_tests = self.change.read_texts(path for path in self.touched if path.endswith("_test.go"))
        guarded = {path: recover_go_panics(text) for path, text in go_tests.items()}
        return replace(self.change_layout(), overlay={**guarded, **overlay})

    def under_other_conditions(self, layout: TreeLayout) -> tuple[TreeLayout, str]:
        """Return a layout whose run has another path and, for Python or JavaScript, another clock and program name, and
        no variables that name the runner; with the words that say so, empty where no new line of the product reads any
        of it. The clock stays where the product may compare it with another one."""
        paths = [path for path in self._product if CODE.fullmatch(path)]
        old_texts, new_texts = self.base.read_texts(paths), self.change.read_texts(paths)
        reading = [path for path, text in new_texts.items() if reads_conditions(path, old_texts.get(path, ""), text)]
        if not reading:
            return layout, ""
        scripts = [path for path in reading if SCRIPT.search(path)]
        if not scripts:
            startup = StartupModule("bash", "unset CI BASH_ENV\n")
            return replace(layout, elsewhere=True, startup=startup), "under another path, without CI"
        clock = not any(reads_other_clocks(new_texts[path]) for path in reading)
        startup = other_conditions(python=scripts[0].endswith(".py"), clock=clock)
        conditions = f"under another {'clock, ' * clock}path, program name and environment"
        return replace(layout, elsewhere=True, startup=startup), conditions

    def base_tests_on_change(self, *, shared: bool = True) -> TreeLayout:
        """Return the base's test side (tests, their data, and what steers them) with the change's product files; writes
        the tree into the repository. `shared`: settings shared by tests and product are the base's, too."""
        entries = mix_trees(self._base_tests, self.change, self.base_side, shared=shared)
        return self._make_layout(entries, self.base_side, (self.change, self._base_tests))

    def without_tests(self, keys: Collection[CaseKey]) -> TreeLayout:
        """Return the base's test side on the change, as base_tests_on_change does, without these tests in its files."""
        parts = [split_name(key.name) for key in keys]
        names = {name for part in parts for name in (*part[-1:], ".".join(part))}
        layout, paths = self.base_tests_on_change(), filter(self.base_side.holds_tests, self._base_tests.entries)
        reduced = {
            path: remove_definitions(path, text, defined_names(path, text) - names)
            for path, text in self._base_tests.read_texts(paths).items()
        }
        return replace(layout, overlay={**layout.overlay, **reduced})

    @property
    def is_reduced(self) -> bool:
        """Return whether the base's tests lack those that the change has deleted."""
        return self._base_tests is not self.base

    def without_deleted_tests(self) -> CommitPair | None:
        """Return a copy of this pair in which the base's test files lack the tests and functions that the change has
        deleted from them; None where it has deleted none that is known by name.

        A file is compared with the change's version of it, or with all changed test files where it is gone. Stripped
        files are written into the repository as blobs; one without any definition left is dropped. Raises GitError when
        git fails.
        """
        base_paths = [path for path in self.touched if self.base_side.holds_tests(path)]
        change_paths = [path for path in self.touched if self.change_side.holds_tests(path)]
        names_by_path = {path: defined_names(path, text) for path, text in self.change.read_texts(change_paths).items()}
        all_names = set[str]().union(*names_by_path.values())
        entries = dict(self.base.entries)
        for path, text in self.base.read_texts(base_paths).items():
            reduced = remove_definitions(path, text, names_by_path.get(path, all_names))
            if reduced != text and defined_names(path, reduced):
                oid = self._repository.git.execute("hash-object", "-w", "--stdin", stdin=reduced.encode()).stdout
                entries[path] = entries[path][0], oid.decode().strip()
            elif reduced != text:
                del entries[path]
        if entries == self.base.entries:
            return None
        pair = copy.copy(self)
        pair._base_tests = CommitTree(self._repository, entries)
        return pair

    def change_tests_on_base(self) -> TreeLayout:
        """Return the change's test side (tests, their data, and what steers them) with the base's product files; writes
        the tree into the repository.

        Where nothing but test files differs on the test side, tests that did not change are left out, unless those that
        did may need them (see find_unaffected_tests). Raises GitError when git fails.
        """
        entries = mix_trees(self.change, self.base, self.change_side)
        spared = (
            find_unaffected_tests(self.change, self.change_side, self.touched_in_change)
            if not self.shared_settings
            else frozenset[str]()
        )
        kept = {path: entry for path, entry in entries.items() if path not in spared}
        return self._make_layout(kept, self.change_side, (self.base, self.change))

    @property
    def touched_in_change(self) -> frozenset[str]:
        """Return the paths of the change's test side that are not the same on the base."""
        return frozenset(path for path in self.touched if path in self.change.entries)

    def make_canaries(self, runners: Sequence[Runner], directory: str, *, on_change: bool = False) -> Canaries:
        """Make canaries (tests that must fail) for the test files of a directory, and return them; nothing is written.

        runners    each makes canaries for the files that those before it made none for
        directory  where the command runs; empty: the whole tree
        on_change  for the change's own test files, not for the base's

        They are put into the repository's own test files, so that whatever interferes with its tests interferes with
        them. `unplanted` names the test files without one, but no Go file in a directory that has one.
        """
        tree, rules = (self.change, self.change_side) if on_change else (self._base_tests, self.base_side)
        prefix = f"{directory}/" if directory else ""
        test_paths = [path for path in tree.entries if path.startswith(prefix) and rules.holds_tests(path)]
        texts, canaries = tree.read_texts(test_paths), Canaries()
        for runner in runners:
            canaries += runner.make_canaries(
                {path: text for path, text in texts.items() if path not in canaries.files}, _random_token()
            )
        go_directories = {path.rpartition("/")[0] for path in canaries.files if path.endswith("_test.go")}
        planted = {*canaries.files, *canaries.names.values()}
        return replace(
            canaries,
            unplanted=tuple(
                path
                for path in sorted(set(test_paths) - planted)
                if not (path.endswith("_test.go") and path.rpartition("/")[0] in go_directories)
            ),
        )

    def _find_rewritten_tests(self) -> list[str]:
        """Find the files of the test side that both commits hold, and that a checkout of one writes with other bytes
        than a checkout of the other, by their .gitattributes."""
        if not self._attributes_differ:
            return []
        same = {path: entry for path, entry in self.base.entries.items() if self.change.entries.get(path) == entry}
        tests = {path: entry for path, entry in same.items() if self.base_side.is_side(path)}
        return sorted(
            self._bytes_written_otherwise(tests, self.base, write_tree(self._repository, self.change.entries))
        )

    def _bytes_written_otherwise(
        self, entries: Mapping[str, TreeEntry], owner: CommitTree, shown: str
    ) -> dict[str, bytes]:
        """Return path → bytes, as a checkout of `owner` writes them, of those of these entries that a checkout of the
        tree `shown` writes in another way, by its .gitattributes."""
        tree = write_tree(self._repository, owner.entries)
        own_values, shown_values = (checkout_attributes(self._repository, name) for name in (tree, shown))
        paths = {path for path in entries if own_values.get(path) != shown_values.get(path)}
        return differing_checkouts(self._repository, tree, shown, paths)

    def _make_layout(
        self, entries: Mapping[str, TreeEntry], rules: SideRules, commits: tuple[CommitTree, CommitTree] | None = None
    ) -> TreeLayout:
        """Write these entries into the repository as a tree, and return its layout.

        commits  the commits whose product files and whose test side these are: each file has the bytes that a checkout
                 of its own commit writes
        """
        tree, overlay = write_tree(self._repository, entries), dict[str, str | bytes]()
        if commits and self._attributes_differ:
            sides = ({path for path in entries if rules.is_side(path) == is_side} for is_side in (False, True))
            for commit, paths in zip(commits, sides, strict=True):
                own = {path: entries[path] for path in paths if commit.entries.get(path) == entries[path]}
                overlay |= self._bytes_written_otherwise(own, commit, tree)
        return TreeLayout(tree, rules, sorted(entries), overlay)


def find_command_runner(tree: CommitTree, test: TestCommand) -> Runner | None:
    """Find the runner that a test command starts, and return it; None where it starts none that is known, or more than
    one.

    Package scripts (`npm test`) and recipes (`make test`) are looked up in the files of this tree.
    """
    with tempfile.TemporaryDirectory() as directory:
        for name in ("package.json", *MAKEFILES):
            if text := tree.read_text(f"{test.directory}/{name}" if test.directory else name):
                (Path(directory) / name).write_text(text)
        return find_runner(test.command, Path(directory))[0]


def _random_token() -> str:
    """Return ten random letters, which nobody can know before; letters only, because they become part of names in all
    languages."""
    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10))


def find_unaffected_tests(tree: CommitTree, rules: SideRules, differing: Collection[str]) -> frozenset[str]:
    """Find the test files that a run of the changed tests does not need: they do not differ, and no other file of the
    test side that is kept has their names in it.

    tree       the change's
    differing  paths of the test side that are not the same on the base

    Empty where none or anything but test files differs: any test may be about a fixture or data. Files that a command
    or a setting names are kept, as are packages' `__init__.py`, and files of a Go or Rust directory in which one
    differs: they are compiled together.
    """
    if not differing or not all(rules.holds_tests(path) for path in differing):
        return frozenset()
    side = {path for path in tree.entries if rules.is_side(path)}
    compiled_directories = {path.rpartition("/")[0] for path in differing if path.endswith((".go", ".rs"))}
    unaffected = {
        path
        for path in side - set(differing) - rules.files
        if rules.holds_tests(path)
        and path.rpartition("/")[0] not in compiled_directories
        and not path.endswith("__init__.py")
    }
    words_by_path = {path: _possible_names(text) for path, text in tree.read_texts(side).items()}
    unaffected &= words_by_path.keys()
    while True:
        kept_words = set[str]().union(*(words_by_path.get(path, ()) for path in side - unaffected))
        needed = {path for path in unaffected if _file_names(path) & kept_words}
        if not needed:
            return frozenset(unaffected)
        unaffected -= needed


def _possible_names(text: str) -> set[str]:
    """Return the words of a text that could be the name of another file, with its ending or without."""
    return {*re.findall(r"\w+", text), *re.findall(r"[\w.-]+", text)}


def _file_names(path: str) -> set[str]:
    """Return a file's name with its ending and without: `test_calc.py` and `test_calc`, `calc.test.js` and
    `calc.test`."""
    name = path.rpartition("/")[2]
    return {name, name.rpartition(".")[0]}


_NAMES_SHOWN = 4


def check_test_side(
    repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str], where: str
) -> str:
    """Check the test side of a commit and return one line about what looks wrong; empty where nothing does.

    side   patterns of `[tests] side`
    where  the file that has them, for messages

    It looks wrong where a pattern matches nothing, or no test file is found though all commands' runners are known.
    Raises InvalidRequest when `side` leaves no product file; GitError when there is no such commit.
    """
    tree = CommitTree.from_commit(repository, commit)
    commands = [(test, find_command_runner(tree, test)) for test in tests]
    rules = SideRules.from_tree(tree, commands, side)
    side_paths = [path for path in sorted(tree.entries) if rules.is_side(path) or rules.is_shared(path)]
    if side and tree.entries and len(side_paths) == len(tree.entries):
        default_rules = SideRules.from_tree(tree, commands)
        detected = [path for path in tree.entries if default_rules.is_side(path)]
        raise InvalidRequest(
            f"side: {_quote_patterns(side)} leave no product file: all {len(side_paths)} files of the "
            "repository would be tests",
            where=f"{where} [tests]",
            fix=f"name only what is not found without it; without it there is: {_list_places(default_rules, detected)}",
        )
    unmatched = [pattern for pattern in side if not any(matches(path, pattern) for path in tree.entries)]
    if unmatched:
        matched = f"match{'es' * (len(unmatched) == 1)} nothing"
        return f"[tests] side: {_quote_patterns(unmatched)} {matched}; tests: {_list_places(rules, side_paths)}"
    is_known = bool(tree.entries and commands) and all(rule is not None for _, rule in commands)
    if is_known and not any(rules.holds_tests(path) for path in tree.entries):
        return "no test file is found here: name them in [tests] side"
    return ""


def find_tests_outside(
    repository: Repository, commit: str, tests: Sequence[TestCommand], reported: Collection[str]
) -> tuple[str, ...]:
    """Return the files, of those that a report names, which define tests and are no test side of the commit, and which
    its product does not import: they belong into `[tests] side`. Tests that stand inside the product, as in Rust, do
    not. Raises GitError when there is no such commit."""
    tree = CommitTree.from_commit(repository, commit)
    rules = SideRules.from_tree(tree, [(test, find_command_runner(tree, test)) for test in tests])
    outside = [path for path in sorted({*reported}) if path in tree.entries and not path.endswith(".rs")]
    outside = [path for path in outside if not rules.is_side(path) and not rules.is_shared(path)]
    code = [path for path in tree.entries if CODE.fullmatch(path) and not rules.is_side(path)] if outside else []
    texts = tree.read_texts(code)
    product = {path: text for path, text in texts.items() if path not in outside}
    imported = quoted_words(product.values()).union(*(imported_modules(path, text) for path, text in product.items()))
    names = {name.rpartition(".")[2] for name in imported} | {name.partition(".")[0] for name in imported}
    return tuple(
        path for path in outside if find_tests(path, texts.get(path, "")) and PurePosixPath(path).stem not in names
    )


def _quote_patterns(patterns: Sequence[str]) -> str:
    """Return the first patterns in quotes for people, and the number of the others."""
    shown = ", ".join(f'"{pattern}"' for pattern in patterns[:_NAMES_SHOWN])
    return shown + (f" and {len(patterns) - _NAMES_SHOWN} more" if len(patterns) > _NAMES_SHOWN else "")


def _list_places(rules: SideRules, paths: Sequence[str]) -> str:
    """List the directories and files that these paths are in, for people: `tests/ (12 files), conftest.py`; the first
    _NAMES_SHOWN, then how many more there are; "nothing" without any."""
    counts = dict[str, int]()
    for path in paths:
        root = next((root for root in sorted(rules.roots) if path.startswith(f"{root}/")), "")
        counts[f"{root}/" if root else path] = counts.get(f"{root}/" if root else path, 0) + 1
    places = sorted(counts, key=lambda place: (not place.endswith("/"), place))
    texts = [
        f"{place} ({counts[place]} file{'s' * (counts[place] != 1)})" if place.endswith("/") else place
        for place in places[:_NAMES_SHOWN]
    ]
    return (
        ", ".join(texts) + (f" and {len(places) - _NAMES_SHOWN} more" if len(places) > _NAMES_SHOWN else "")
        or "nothing"
    )
