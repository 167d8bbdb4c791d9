"""The base class of test runners: how one is recognised on a command line, made to write a report, narrowed to one
test, and given canaries (tests that must fail); and the data that runners take and return. No runner is defined
here."""

from __future__ import annotations

import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from perdure.adapters.checks.junit import CaseIdentifier
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.models.checks.report import TestCase
from perdure.models.limits import JUNIT_CASES, SIDE_PATTERN_CHARS, SIDE_PATTERNS
from perdure.text import shell_word


@dataclass(frozen=True)
class Invocation:
    """A command as it really runs.

    script            the command, with arguments appended where a runner takes no variable
    env               variables that ask for a report, on top of the caller's
    runner            the name of the runner that was recognised, or empty
    report            the report file that must be there afterwards; None: there is none, or it is in `collect`
    collect           directories, by the last parts of their paths, in which the runner leaves JUnit files inside
                      the tree; none of them there afterwards: the exit code is all there is
    report_required   whether a `report` that is not there afterwards makes a failure
    files             texts that must be written, outside the tree, before it runs, by their paths
    separator         what goes between the command and more arguments of the runner (` --` for npm); None:
                      something else stands last
    has_arguments     whether `script` ends in arguments of ours already
    partial           whether the first failure keeps something else from running
    events            `report` is not JUnit but the events of `go test -json`, the lines of `cargo test`, or TAP
                      (`titled`: its comments are titles of tests); what the tests print is in there, too
    writing           how its runner writes `report`: from its beginning to its end, so that it may be a pipe;
                      opened once, also to be read, and closed once; or nobody knows
    """

    script: str
    runner: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    report: Path | None = None
    collect: tuple[str, ...] = ()
    report_required: bool = True
    files: Mapping[Path, str] = field(default_factory=dict)
    separator: str | None = None
    has_arguments: bool = False
    partial: bool = False
    events: Literal["", "go", "libtest", "tap", "titled tap", "nested tap"] = ""
    writing: Literal["through", "once", "anyhow"] = "anyhow"

    def with_host_paths(self, shown_at: Path, reports: Path) -> Invocation:
        """Return the same with `report` and `files` at the paths where this process finds them: the command sees
        `reports` at `shown_at`."""
        files = {reports / file.relative_to(shown_at): text for file, text in self.files.items()}
        report = reports / self.report.relative_to(shown_at) if self.report else None
        return replace(self, report=report, files=files)


@dataclass(frozen=True)
class ReportRequest:
    """A command that is to write a report.

    separator  what goes between the command and more arguments of the runner; None: something else stands last
    file       where the JUnit file is wanted
    tree       what is tested
    installed  the worktree setup ran in
    env        what the command would see anyway
    """

    command: str
    separator: str | None
    file: Path
    tree: Path
    installed: Path
    env: Mapping[str, str]

    @property
    def quoted_file(self) -> str:
        """Return the path of the report's file, quoted for the shell."""
        return shell_word(str(self.file))

    def env_with_options(self, name: str, options: str) -> dict[str, str]:
        """Return an environment of one variable: these options behind those that it has."""
        return {name: append_options(self.env, name, options)}


def append_options(env: Mapping[str, str], name: str, options: str) -> str:
    """Return a variable's value in `env` with the options behind it; the options alone where it is unset or empty."""
    return f"{env[name]} {options}" if env.get(name) else options


def quote_for_node(path: Path) -> str:
    """Return a path as a part of one word of NODE_OPTIONS."""
    return json.dumps(str(path), ensure_ascii=False)


@dataclass(frozen=True)
class ConfiguredTestSide:
    """The part of the test side (test files and their data) that a repository's settings and commands name.

    tests   more patterns of test files, as regular expressions that are matched in bounded time
    roots   more directories
    files   more files: settings, plugins, set-up
    unread  patterns that cannot be translated
    """

    tests: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def __add__(self, other: ConfiguredTestSide) -> ConfiguredTestSide:
        return ConfiguredTestSide(
            self.tests + other.tests, self.roots + other.roots, self.files + other.files, self.unread + other.unread
        )


def translate_patterns(patterns: Iterable[str], translate: Callable[[str], Sequence[str]]) -> ConfiguredTestSide:
    """Return the test side that patterns of a repository's settings describe, as regular expressions in `tests`.

    translate  gives the regular expressions of one pattern; none: it cannot be translated

    A pattern that cannot be translated, is longer than SIDE_PATTERN_CHARS, or is beyond the first SIDE_PATTERNS is
    listed in `unread`, cut to that length; at most SIDE_PATTERNS of them are.
    """
    tests, unread = list[str](), list[str]()
    for number, pattern in enumerate(patterns):
        expressions = translate(pattern) if len(pattern) <= SIDE_PATTERN_CHARS and number < SIDE_PATTERNS else ()
        tests += expressions
        if not expressions:
            unread.append(pattern[:SIDE_PATTERN_CHARS])
    return ConfiguredTestSide(tests=tuple(tests), unread=tuple(unread[:SIDE_PATTERNS]))


@dataclass(frozen=True)
class StartupModule:
    """A module that each process of a language loads before anything else: Python as `sitecustomize`, node by
    `--require`, bash by `BASH_ENV`."""

    language: Literal["python", "node", "bash"]
    text: str

    def add_to(self, call: Invocation, reports: Path, env: Mapping[str, str]) -> Invocation:
        """Return the invocation with the module among its files and the variable that names it.

        reports  a directory outside the tree, by the path at which the command sees it
        env      what the command would see anyway
        """
        seen_env = {**env, **call.env}
        if self.language == "python":
            file, name = reports / "sitecustomize.py", "PYTHONPATH"
            value = ":".join(filter(None, (str(reports), seen_env.get(name))))
        elif self.language == "node":
            file, name = reports / "library_snapshot.cjs", "NODE_OPTIONS"
            value = append_options(seen_env, name, f"--require={quote_for_node(file)}")
        else:
            file, name = reports / "startup.sh", "BASH_ENV"
            value = re.sub(r"[$`\\]", r"\\\g<0>", str(file))  # bash expands it
        return replace(call, files={**call.files, file: self.text}, env={**call.env, name: value})


EVERY = "*"
"""Stands in the place of names: every test that a file reports is made to fail."""


@dataclass(frozen=True)
class Canaries:
    """Canaries: tests that must fail, so that a run in which they pass shows that somebody interferes with it.

    files              path → text, in the place of what is there
    names              parts of the names under which new tests are reported, each with the test file that it was
                       made for
    failing_functions  names of the functions of tests that were there and are made to fail, or EVERY
    unplanted          test files into which none could be put
    env                options for them, by the variable that takes them: to report each of many failures costs
                       most of a run
    startup            a module that each Python or node of the run loads first
    """

    files: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    failing_functions: frozenset[str] = frozenset()
    unplanted: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    startup: StartupModule | None = None

    def __add__(self, other: Canaries) -> Canaries:
        files, names = {**self.files, **other.files}, {**self.names, **other.names}
        failing, env = self.failing_functions | other.failing_functions, {**self.env, **other.env}
        return Canaries(files, names, failing, (), env, self.startup or other.startup)

    def is_made_to_fail(self, name: str) -> bool:
        """Return whether a test was there before and is made to fail now, by its name in a report."""
        function = re.split(r"[\[( ]", name.partition("[")[0].rpartition("::")[2])[0]
        return EVERY in self.failing_functions or function in self.failing_functions


class Runner(ABC):
    """A test runner; adding one is a row of `runners.runner_table`, or a file with such a class and a line in RUNNERS.

    early_stop         options, as a regular expression, that end a run at its first failure; empty where the
                       report goes on
    is_fallback        it counts only where no other runner is on the line
    tests              paths of files that hold tests, as a regular expression
    roots              names of directories that are its test side as a whole where they hold such files
    settings           names of files that steer it and belong to nothing else, as a regular expression
    shared             names of files that steer it and other things as well
    inline_tests       text of tests that stand in product files, as a regular expression; empty where it has none
    inline_tests_word  a word of its command or settings without which it does not look for tests in product files
    cache_variable     the variable that names the compiler's cache, in which a result is found by the contents it
                       was made of
    expiry_file        a file of that cache: results of tests from before the time that stands in it, in ns, do not
                       count
    """

    name: str
    early_stop: str = ""
    is_fallback: bool = False
    tests: str
    roots: frozenset[str] = frozenset()
    settings: str = ""
    shared: frozenset[str] = frozenset()
    inline_tests: str = ""
    inline_tests_word: str = ""
    cache_variable: str = ""
    expiry_file: str = ""

    @abstractmethod
    def runs(self, program: str, rest: list[str]) -> bool:
        """Return whether this simple command, wrappers removed, starts the runner."""

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how the command is run so that it writes its report; None where asking could change what runs, or it
        asks for one itself."""
        return None

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        """Return the test side that commands and the settings in their directory name.

        commands   the words of each simple command that is run in the end
        directory  where they run
        """
        return ConfiguredTestSide()

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for these test files (path → text): new tests that always fail, first and last in each, and
        its own made to fail.

        token  random letters, part of each name that is added
        """
        return Canaries()

    def find_test_file(self, classname: str, root: Path) -> str:
        """Find the file of a test whose report names none, by its class; empty where that says nothing. `root`: where
        the command ran."""
        return ""

    def case_identifier(self, place: RunPlace) -> CaseIdentifier:
        """Return what tells which test a `testcase` of this runner's JUnit report is, in a run at this place."""
        return case_identifier(place, self.find_test_file)

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return the arguments that narrow a run to these tests; none where one has no name of its own, or the runner
        cannot select several."""
        return ()

    def narrow_to_tests(
        self, call: Invocation, command: str, cases: Sequence[TestCase], env: Mapping[str, str]
    ) -> Invocation | None:
        """Return the invocation with arguments appended that select these tests; None where they cannot be selected or
        nothing can be appended.

        command  the command as it is written in perdure.toml
        env      what it would see anyway
        """
        selection = shlex.join(self.selection_arguments(*cases))
        if not selection or call.separator is None:
            return None
        return replace(call, script=f"{call.script}{'' if call.has_arguments else call.separator} {selection}")

    def reproduction_command(self, call: Invocation, command: str, case: TestCase) -> str:
        """Return the command that a person types to run one test; empty where it cannot be selected or nothing can be
        appended."""
        selection = shlex.join(self.selection_arguments(case))
        return f"{command}{call.separator} {selection}" if selection and call.separator is not None else ""


@dataclass(frozen=True)
class RunPlace:
    """The place where a test command ran.

    tree       the repository's top, where this process finds it
    directory  where the command ran, relative to the top; empty: at the top
    shown_at   where the command saw the top
    """

    tree: Path
    directory: str
    shown_at: Path


def case_identifier(
    place: RunPlace, find_test_file: Callable[[str, Path], str] = lambda classname, root: ""
) -> CaseIdentifier:
    """Return what tells a test by the attributes that runners agree about: `file`, `classname` and `name`.

    find_test_file  gives the file of a test for which the report names none, by its class and where the command ran;
                    it is called once for each class
    """

    @lru_cache(maxsize=JUNIT_CASES)
    def find_file(classname: str) -> str:
        return find_test_file(classname, place.tree / place.directory)

    def identify_case(attributes: Mapping[str, str]) -> tuple[str, str]:
        file, classname = relative_file(attributes.get("file", ""), place.shown_at), attributes.get("classname", "")
        name = attributes.get("name") or "unnamed"
        group = _group_name(file, classname)
        return file or find_file(classname), f"{group}::{name}" if group else name

    return identify_case


def relative_file(file: str, top: Path) -> str:
    """Return an absolute file name relative to `top` where it is below it; any other as it is."""
    path = Path(file) if file.startswith("/") else None
    return str(path.relative_to(top)) if path is not None and path.is_relative_to(top) else file


def _group_name(file: str, classname: str) -> str:
    """Return what precedes a test's own name: `tests/test_x.py::TestClass` as pytest names it, else the file, else the
    class.

    Empty without a file where the class is `test`: node writes that for every test.
    """
    if not file:
        return "" if classname == "test" else classname  # node's constant says nothing
    inner = classname.removeprefix(file.removesuffix(".py").replace("/", "."))
    return f"{file}::{inner[1:].replace('.', '::')}" if inner.startswith(".") and inner != classname else file


def group_and_method(case: TestCase) -> tuple[str, str]:
    """Return a case's class and the name of its method, without parameters: of a parametrised test, that means all of
    its cases."""
    group, _, name = case.name.rpartition("::")
    return group, re.split(r"[(\[{]", name)[0]


def own_name(case: TestCase) -> str:
    """Return a case's name without the file or class before it."""
    return case.name.partition("::")[2] or case.name


def escape_js_regex(name: str) -> str:
    """Escape a name for use in a JavaScript regular expression."""
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", name)
