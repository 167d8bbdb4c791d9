"""Rules that tell the test side of a commit (tests, their data, and what steers them) from its product, made from the
runners' own rules and settings and from `[tests] side`; and a search for data outside of all directories of tests that
only the tests name. Experiments mix the trees of two commits by these rules and mount the test side read-only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from perdure.adapters.checks.globs import last_match
from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.checks.runners.base import ConfiguredTestSide, Runner
from perdure.adapters.checks.runners.command_trace import LINTERS, trace_command
from perdure.adapters.checks.tamper.missing_tests import CODE
from perdure.adapters.checks.trees import CommitTree, TreeEntry
from perdure.models.checks.paths import is_test_file
from perdure.models.config.repository import TestCommand
from perdure.models.limits import SIDE_READ_FILES

EXPERIMENT_HELD = 500
"""The most paths of the test side that are mounted read-only, each a directory with all that is in it where it can be:
a mount takes some 0.1 ms. What is beyond is only compared afterwards."""


ANSWERS_KEPT = 100_000
"""The most answers about paths that are kept: each path is looked up before and after each run, and a test may make any
number of them."""

_DATA_DIRECTORIES = {"testdata", "test_data", "test-data", "__snapshots__", "__image_snapshots__", "cassettes"}
"""Names of directories of data that no product is in."""

_TEST_DIRECTORIES = frozenset({"test", "tests", "t", "spec"})
"""Names of directories that are test side as a whole, in any language: at the top where the command runs, where they
hold tests, and `tests` anywhere."""

_LOCK_FILES = {"Cargo.lock", "go.sum", "package-lock.json"}


class _CommandFiles:
    """The files in the directory of a command, of which no more than SIDE_READ_FILES are read."""

    def __init__(self, tree: CommitTree, prefix: str) -> None:
        self._tree, self._prefix, self._texts = tree, prefix, dict[str, str]()
        self.paths = frozenset(path.removeprefix(prefix) for path in tree.entries if path.startswith(prefix))

    def text(self, path: str) -> str:
        """Return the text of a file; empty where there is none, or too many have been read already."""
        if path not in self._texts:
            if path not in self.paths or len(self._texts) >= SIDE_READ_FILES:
                return ""
            self._texts[path] = self._tree.read_text(self._prefix + path)
        return self._texts[path]


@dataclass(frozen=True)
class SideRules:
    """The rules that tell the test side of one commit from its product.

    tests    files that hold tests: a pattern of whole paths
    steers   names of files that steer runners, and belong to nothing else: a pattern
    shared   names of files that steer runners and the product as well
    roots    directories whose whole content is test side
    files    more paths of files that hold tests or steer them
    data     more paths of the test side, which hold no tests
    side     patterns of people (`[tests] side`), which decide before all others
    unread   patterns in settings that cannot be translated
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
    def from_tree(
        cls, tree: CommitTree, commands: Sequence[tuple[TestCommand, Runner | None]], side: Sequence[str] = ()
    ) -> SideRules:
        """Make the rules for a tree from its test commands, each with its runner (None: not known).

        side  patterns of `[tests] side`

        Where no runner is known at all, every runner's rules count together. Files that a command names on its line are
        tests, and so are those that it runs by itself or through recipes and package scripts (see named_files).
        """
        runners, tests, all_named, files = list[Runner](), list[str](), ConfiguredTestSide(), set[str]()
        own_settings, shared_settings = list[str](), set[str]()
        for command, runner in commands:
            prefix = f"{command.directory}/" if command.directory else ""
            directory = _CommandFiles(tree, prefix)
            trace = trace_command(command.command, directory)
            files |= {prefix + file for file in trace.files}
            all_named += ConfiguredTestSide(roots=tuple(prefix + root for root in sorted(trace.directories)))
            for argv in trace.simple_commands:
                if command.required and (linter := LINTERS.get(PurePosixPath(argv[0]).name)):
                    own_settings += [linter[0]] if linter[0] else []
                    shared_settings |= linter[1]
            for candidate in (runner,) if runner is not None else RUNNERS:
                commands_of_runner = [
                    argv for argv in trace.simple_commands if candidate.runs(PurePosixPath(argv[0]).name, argv[1:])
                ]
                if runner is None and not commands_of_runner:
                    continue
                runners.append(candidate)
                configured = candidate.configured_test_side(commands_of_runner, directory)
                tests += [f"(?:{re.escape(prefix)}(?:{pattern}))" for pattern in configured.tests]
                roots_of_tests = [root for root in configured.roots if not _holds_product(root, directory.paths)]
                all_named += ConfiguredTestSide(
                    roots=tuple(prefix + root for root in roots_of_tests), unread=configured.unread
                )
                files |= {prefix + file for file in (*configured.files, *configured.roots)}
        runners = runners or list(RUNNERS)
        tests += [runner.tests for runner in runners]
        pattern = re.compile("|".join(f"(?:{candidate})" for candidate in dict.fromkeys(tests)), re.DOTALL)
        prefixes = {f"{command.directory}/" if command.directory else "" for command, _ in commands} | {""}
        names = frozenset().union(*(runner.roots for runner in runners))
        roots = _find_roots(tree.entries, pattern, names, prefixes)
        steers = [*own_settings, *(runner.settings for runner in runners if runner.settings)]
        return cls(
            pattern,
            re.compile("|".join(f"(?:{candidate})" for candidate in dict.fromkeys(steers)) or r"(?!)", re.DOTALL),
            frozenset(shared_settings).union(*(runner.shared for runner in runners)),
            frozenset({*all_named.roots, *roots}),
            frozenset(file for file in files if file in tree.entries),
            tuple(side),
            tuple(dict.fromkeys(all_named.unread)),
        )

    def configured_side(self, path: str) -> bool | None:
        """Return whether `[tests] side` makes a path test side (True) or product (False); None where it says nothing
        about it."""
        pattern = last_match(path, self.side) if self.side else None
        return None if pattern is None else not pattern.startswith("!")

    def is_shared(self, path: str) -> bool:
        """Return whether a file steers runners and the product alike, by its name; False in a directory that is test
        side as a whole, and where `[tests] side` decides."""
        if self.configured_side(path) is not None:
            return False
        return path.rpartition("/")[2] in self.shared and not self.is_below_root(path)

    def is_side(self, path: str) -> bool:
        """Return whether a path is of the test side: tests, their data, and files that steer runners and nothing else.
        `[tests] side` decides first, where it says anything about the path; settings shared with the product are not
        test side."""
        if (configured := self.configured_side(path)) is not None:
            return configured
        if (
            path in self.files
            or path in self.data
            or self.tests.fullmatch(path) is not None
            or self.is_below_root(path)
        ):
            return True
        return path.rpartition("/")[2] not in self.shared and self.is_steering(path)

    def is_steering(self, path: str) -> bool:
        """Return whether a file steers runners and belongs to nothing else, by its own name or that of a directory
        above it."""
        above, _, name = path.rpartition("/")
        return self._directory_facts(above)[1] or self.steers.fullmatch(name) is not None

    def is_read_only(self, path: str) -> bool:
        """Return whether a path is to be protected from writing: it is test side or shared settings, but no lock file,
        which tools write themselves. Answers are cached."""
        if (answer := self._fixed.get(path)) is None:
            if len(self._fixed) >= ANSWERS_KEPT:
                self._fixed.clear()
            answer = (self.is_side(path) or self.is_shared(path)) and path.rpartition("/")[2] not in _LOCK_FILES
            self._fixed[path] = answer
        return answer

    def holds_tests(self, path: str) -> bool:
        """Return whether a file holds tests, by the runners' patterns or because a command names it; False where
        `[tests] side` makes it product."""
        return self.configured_side(path) is not False and (
            path in self.files or self.tests.fullmatch(path) is not None
        )

    def is_below_root(self, path: str) -> bool:
        """Return whether a path is in a directory whose whole content is test side."""
        return self._directory_facts(path.rpartition("/")[0])[0]

    def _directory_facts(self, path: str) -> tuple[bool, bool]:
        """Return two facts about a directory: it is, or is below, one that is test side as a whole; it, or one above
        it, has a name that steers runners. Answers are cached, for it is asked once for each file of the directory."""
        if (facts := self._directories.get(path)) is None:
            if len(self._directories) >= ANSWERS_KEPT:
                self._directories.clear()
            names = path.split("/") if path else []
            steering = any(self.steers.fullmatch(name) is not None for name in names)
            facts = self._directories[path] = (
                any(p in self.roots for p in (*parent_directories(path), path) if p),
                steering,
            )
        return facts

    def read_only_paths(self, paths: Iterable[str], writes: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the paths to mount read-only so that the test side among these paths cannot be written: directories
        that are test side as a whole, other files one by one, sorted, at most EXPERIMENT_HELD.

        writes  paths that stay writable; a directory with such a path or a product file in it is mounted part by part
        """
        side, product = list[str](), list[str]()
        for path in paths:
            if self.is_read_only(path) and not is_writable(path, writes):
                side.append(path)
            elif path.rpartition("/")[2] not in _LOCK_FILES:
                product.append(path)
        mixed_directories = {
            part for path in (*product, *map(_plain_path, writes)) for part in parent_directories(path)
        }
        mixed_directories |= set(map(_plain_path, writes))
        read_only = {
            next((p for p in parent_directories(path) if p not in mixed_directories and self._is_in_root(p)), path)
            for path in side
        }
        return tuple(sorted(read_only)[:EXPERIMENT_HELD])

    def _is_in_root(self, directory: str) -> bool:
        """Return whether a directory is, or is below, one that is test side as a whole."""
        return directory in self.roots or self.is_below_root(directory)


def command_files(tree: CommitTree, commands: Sequence[TestCommand]) -> frozenset[str]:
    """Return the files of a commit that test commands run, by themselves or through recipes and package scripts, or
    name as tests."""
    files = set[str]()
    for command in commands:
        prefix = f"{command.directory}/" if command.directory else ""
        files |= {prefix + file for file in trace_command(command.command, _CommandFiles(tree, prefix)).files}
    return frozenset(files & tree.entries.keys())


def is_writable(path: str, writes: Sequence[str]) -> bool:
    """Return whether a path is one of `writes`, or below one of them."""
    return any(path == writable or path.startswith(f"{writable}/") for writable in map(_plain_path, writes))


def _plain_path(path: str) -> str:
    """Return a path without `./` at its beginning and slashes at its end."""
    return path.removeprefix("./").rstrip("/")


def mix_trees(side: CommitTree, product: CommitTree, rules: SideRules, *, shared: bool = True) -> dict[str, TreeEntry]:
    """Return the entries of a tree that has the test side of one commit and the product files of another, as `rules`
    tell them apart. With `shared`, settings shared by tests and product count as test side, too."""

    def is_side(path: str) -> bool:
        return rules.is_side(path) or (shared and rules.is_shared(path))

    entries = {path: entry for path, entry in product.entries.items() if not is_side(path)}
    for path, entry in side.entries.items():
        if is_side(path):
            entries[path] = entry
    return entries


def _holds_product(root: str, paths: Collection[str]) -> bool:
    """Return whether a directory that settings name for tests holds the product as well: it is a package of Python with
    modules at its top that hold no tests, and its name says nothing of tests."""
    if f"{root}/__init__.py" not in paths or re.search("test|spec|check", root.rpartition("/")[2].lower()):
        return False
    modules = (path for path in paths if path.startswith(f"{root}/") and path.endswith(".py"))
    return any("/" not in module[len(root) + 1 :] and not is_test_file(module) for module in modules)


_PACKAGE_FILE = re.compile(r".*/(?:__init__\.py|index\.[cm]?[jt]sx?|mod\.rs|[^/]+\.go)")
"""Paths of files that make a package of their directory, which the product may import."""


def _find_roots(
    entries: Mapping[str, TreeEntry], tests: re.Pattern[str], names: Collection[str], prefixes: Collection[str]
) -> list[str]:
    """Find the directories that are test side as a whole: the outermost ones of these names that hold tests, those of
    _TEST_DIRECTORIES, and the outermost ones of test data (`testdata` and the like).

    tests     the pattern of paths of files that hold tests
    prefixes  the directories where commands run, each with a slash, or empty
    """
    roots, packages, with_tests, usual = set[str](), set[str](), set[str](), set[str]()
    top = {f"{prefix}{name}" for prefix in prefixes for name in _TEST_DIRECTORIES}
    for path in entries:
        above = parent_directories(path)
        holds_tests = tests.fullmatch(path) is not None
        if holds_tests:
            root = next((part for part in above if part.rpartition("/")[2] in names), None)
            roots |= {root} if root is not None else set()
        named = [part for part in above if part.rpartition("/")[2] in _TEST_DIRECTORIES]
        if holds_tests or is_test_file(path):
            with_tests |= {*named[:1]}
        elif above and _PACKAGE_FILE.fullmatch(path):
            packages.add(above[-1])
        usual |= {part for part in named if part in top or part.rpartition("/")[2] == "tests"}
    roots |= with_tests | {part for part in usual if part.endswith("tests") or part not in packages}
    for path in entries:  # data beside tests: no test is in it
        root = next((part for part in parent_directories(path) if part.rpartition("/")[2] in _DATA_DIRECTORIES), None)
        roots |= {root} if root is not None else set()
    return sorted(roots)


def parent_directories(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


_DATA = re.compile(
    r"(?!(?:.*/)?(?:LICENSE|CHANGELOG|README)[^/]*).*\.(?:json|jsonl|ndjson|ya?ml|toml|ini|cfg|conf|csv|tsv|txt|xml|dat|bin"
    r"|golden|snap|expected|out|output|in|input|ref|pickle|pkl|np[yz]|parquet|msgpack|pcap|pem|crt|key|gz|bz2|xz|zip|tar)"
    r"|(?:.*/)?(?:fixtures?|goldens?|samples?|corpus|snapshots?|expected|testdata|data)/.*(?<!\.md)(?<!\.rst)"
)
"""Files that may be data of tests. Any other, such as code in a language that is not known here, a template, a text or
a picture for people, is the product's where nothing but its place says so."""

_VENDORED = re.compile(r"(?:.*/)?(?:vendor|_vendor|third_party|node_modules)/")
_QUOTED = re.compile(r"""(?<=["'`/])[\w.@-]{1,200}(?=["'`/])""")


def find_test_data(base: CommitTree, rules: SideRules, differing: Collection[str]) -> frozenset[str]:
    """Find, among differing paths of the base that are product by their places, data and vendored code that only its
    tests name.

    A file of data is named where its own name, or that of a directory which holds no code, stands in quotes or between
    slashes; vendored code by the path that it is imported from. What the product names as well is the product's; so are
    code, files that are no data by their endings or directories, and what `[tests] side` decides. Files are read only
    where such a path differs.
    """
    candidates = [
        path for path in differing if path in base.entries and not rules.is_side(path) and not rules.is_shared(path)
    ]
    vendored = {
        path: _import_path(path) for path in candidates if _VENDORED.match(path) and rules.configured_side(path) is None
    }
    data = [path for path in candidates if path not in vendored and rules.configured_side(path) is None]
    data = [path for path in data if not CODE.fullmatch(path) and _DATA.fullmatch(path)]
    if not vendored and not data:
        return frozenset()
    side = {path for path in base.entries if rules.is_side(path)}
    code = {path for path in base.entries if CODE.fullmatch(path) and path not in side and not _VENDORED.match(path)}
    tests, product = list(base.read_texts(side).values()), list(base.read_texts(code).values())
    code_directories = {part for path in code for part in path.split("/")[:-1]}
    test_words = quoted_words(tests) - code_directories
    product_words = quoted_words(product)
    named_paths = {
        path
        for path in data
        if (parts := {*path.split("/")}) & test_words and not (parts - code_directories) & product_words
    }
    for path, place in vendored.items():
        if place and any(place in text for text in tests) and not any(place in text for text in product):
            named_paths.add(path)
    return frozenset(named_paths)


def quoted_words(texts: Collection[str]) -> set[str]:
    """Return the words in these texts that stand between quotes or slashes."""
    return {word for text in texts for word in _QUOTED.findall(text)}


def _import_path(path: str) -> str:
    """Return the path that vendored code is imported from: `example.org/assert` of `vendor/example.org/assert/a.go`,
    `chai` of `node_modules/chai/index.js`."""
    parts = _VENDORED.sub("", path).split("/")[:-1]
    return "/".join(parts[: 3 if parts and "." in parts[0] else 1])
