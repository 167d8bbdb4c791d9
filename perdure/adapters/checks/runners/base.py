"""One class a test runner: its name on a command line, its report, one test alone."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from perdure.adapters.checks.runners.failing import EVERY
from perdure.adapters.checks.runners.leads import There
from perdure.models.limits import SIDE_PATTERN_CHARS, SIDE_PATTERNS
from perdure.models.report import TestCase


@dataclass(frozen=True)
class Invocation:
    """A command as it really runs.

    script   the command, with arguments appended where a runner takes no variable
    env      variables that ask for a report, on top of the caller's
    runner   the name of the runner that was recognised, or empty
    report   the JUnit file that must be there afterwards; None: there is none, or it is in `collect`
    collect  directories, by the last parts of their paths, in which the runner leaves JUnit files inside the tree;
             none of them there afterwards: the exit code is all there is
    owed     whether a `report` that is not there afterwards makes a failure
    files    what must be written, outside the tree, before it runs
    more     what goes between the command and more arguments of the runner (` --` for npm); None: something else
             stands last
    extended whether `script` ends in arguments already
    partial  whether the first failure keeps something else from running
    events   `report` is not JUnit but the events of `go test -json`, or the lines of `cargo test`; what the tests print
             is in there, too
    written  how its runner writes `report`: from its beginning to its end, so that it may be a pipe; opened once, also
             to be read, and closed once; or nobody knows
    """

    script: str
    runner: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    report: Path | None = None
    collect: tuple[str, ...] = ()
    owed: bool = True
    files: Mapping[Path, str] = field(default_factory=dict)
    more: str | None = None
    extended: bool = False
    partial: bool = False
    events: Literal["", "go", "libtest"] = ""
    written: Literal["through", "once", "anyhow"] = "anyhow"

    def moved(self, seen: Path, reports: Path) -> Invocation:
        """The same with its files where this process finds them: the command sees `reports` at `seen`."""
        files = {reports / file.relative_to(seen): text for file, text in self.files.items()}
        report = reports / self.report.relative_to(seen) if self.report else None
        return replace(self, report=report, files=files)


@dataclass(frozen=True)
class ReportedCommand:
    """A command that is to write a report.

    passes     what goes between the command and more arguments of the runner; None: something else stands last
    file       where the JUnit file is wanted
    tree       what is tested
    installed  the worktree setup ran in
    env        what the command would see anyway
    """

    command: str
    passes: str | None
    file: Path
    tree: Path
    installed: Path
    env: Mapping[str, str]

    @property
    def quoted(self) -> str:
        return shlex.quote(str(self.file))

    def added(self, name: str, options: str) -> dict[str, str]:
        """A variable with these options behind those it has."""
        return {name: added(self.env, name, options)}


def added(env: Mapping[str, str], name: str, options: str) -> str:
    return f"{env[name]} {options}" if env.get(name) else options


@dataclass(frozen=True)
class Named:
    """The places of its tests that a repository names.

    tests   more patterns of test files, as regular expressions that are matched in bounded time
    roots   more directories
    files   more files: settings, plugins, set-up
    unread  patterns that are beyond reading
    """

    tests: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def __add__(self, other: Named) -> Named:
        return Named(
            self.tests + other.tests, self.roots + other.roots, self.files + other.files, self.unread + other.unread
        )


def bounded(patterns: Iterable[str], translate: Callable[[str], Sequence[str]]) -> Named:
    """Patterns of a repository's settings. `translate`: the regular expressions of one; none: it is beyond reading."""
    tests, unread = list[str](), list[str]()
    for number, pattern in enumerate(patterns):
        found = translate(pattern) if len(pattern) <= SIDE_PATTERN_CHARS and number < SIDE_PATTERNS else ()
        tests += found
        if not found:
            unread.append(pattern[:SIDE_PATTERN_CHARS])
    return Named(tests=tuple(tests), unread=tuple(unread[:SIDE_PATTERNS]))


@dataclass(frozen=True)
class Canaries:
    """Tests that must fail.

    files   path → text, in the place of what is there
    names   parts of the names under which new ones are reported, each with the test file that it was made for
    bodies  names of the functions of tests that were there and fail now, or EVERY
    unplanted  test files that take none
    env     options for them, by the variable that takes them: to report each of many failures costs most of a run
    ends    by the file (Go's: none) and the name of a test that was there, what it says when its body came to its end,
            and nothing but the runner looks at how it ended; those that are run or looked at otherwise are not in it.
            EVERY: all say so, each with its name behind it
    witnesses  of `names`, what they say where the runner is by itself: no plugin that is not known looks at outcomes
    """

    files: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    bodies: frozenset[str] = frozenset()
    unplanted: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict)
    witnesses: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Canaries) -> Canaries:
        files, names = {**self.files, **other.files}, {**self.names, **other.names}
        env, ends = {**self.env, **other.env}, {**self.ends, **other.ends}
        witnesses = {**self.witnesses, **other.witnesses}
        return Canaries(files, names, self.bodies | other.bodies, (), env, ends, witnesses)

    def only(self, files: Collection[str], left_out: Mapping[str, str]) -> Canaries:
        """Those of these files. `left_out`: the text of each other one, of which no test is to run."""
        names = {name: path for name, path in self.names.items() if path in files}
        witnesses = {name: words for name, words in self.witnesses.items() if name in names}
        over = {path: text if path in files else left_out[path] for path, text in self.files.items()}
        return replace(self, files=over, names=names, witnesses=witnesses)

    def end(self, file: str, name: str) -> str:
        """The words that the test a report names so says at its end; empty where that is not known."""
        place = name.partition("::")[2].partition("[")[0]
        if EVERY in self.ends:
            return f"{self.ends[EVERY]} {name}"
        return self.ends.get(f"{file}::{place}") or self.ends.get(f"::{place}", "")

    def expects(self, name: str) -> bool:
        """True for a test that was there, by the name in a report, and fails now."""
        function = re.split(r"[\[( ]", name.rpartition("::")[2])[0]
        return EVERY in self.bodies or function in self.bodies


class Runner(ABC):
    """One test runner; adding one is a file with such a class, and a line in RUNNERS.

    early     options, as a regular expression, that end a run at its first failure; empty where the report goes on
    yields    it counts only where no other runner is on the line
    tests     paths of files that hold tests, as a regular expression
    roots     names of directories that are its test side as a whole where they hold such files
    settings  names of files that steer it and belong to nothing else, as a regular expression
    shared    names of files that steer it and other things as well
    inside    text of tests that stand in product files, as a regular expression; empty where it has none
    inside_if a word of its command or settings without which it does not look there
    looking   text of product files that look at who calls them, or at other tests' failures, as a regular expression
    cache     the variable that names what it has compiled, which it finds again by the contents that was made of
    believed  a file of that: results of tests from before the time that stands there, in ns, are none
    """

    name: ClassVar[str]
    early: ClassVar[str] = ""
    yields: ClassVar[bool] = False
    tests: ClassVar[str]
    roots: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[str] = ""
    shared: ClassVar[frozenset[str]] = frozenset()
    inside: ClassVar[str] = ""
    inside_if: ClassVar[str] = ""
    looking: ClassVar[str] = ""
    cache: ClassVar[str] = ""
    believed: ClassVar[str] = ""

    @abstractmethod
    def runs(self, program: str, rest: list[str]) -> bool:
        """True when this simple command, wrappers removed, starts it."""

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        """The command, made to write its report. None where asking could change what runs, or it asks for its own."""
        return None

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        """The places of tests that commands and the settings in their directory name.

        `simple`: the words of each simple command that is run in the end
        """
        return Named()

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Tests of this runner's kind that always fail, first and last in each of these test files, whose own fail too.

        `token`: random, part of each of their names
        """
        return Canaries()

    def is_blind(self, path: str, before: str, after: str, own: frozenset[str]) -> bool:
        """True where what a change made of a product file cannot look at the tests, nor at what became of them.

        `own`: the names of files and directories at the top of the tree, and below `src`
        """
        return False

    def minds(self, path: str, text: str) -> bool:
        """True where a file of the test side may look at how a test ended."""
        return True

    def left_out(self, text: str) -> str:
        """Text for a test file of which no test is to run; empty where the others could not be run without them."""
        return ""

    def said(self, message: str) -> str:
        """The words of a failure, of all that the runner tells of it."""
        return message

    def place(self, classname: str, root: Path) -> str:
        """See perdure.adapters.checks.runners.place."""
        return ""

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        """Arguments that narrow a run to one test; none where a test has no name of its own."""
        return ()

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        """See perdure.adapters.checks.runners.alone."""
        selected = shlex.join(self.arguments(case))
        if not selected or call.more is None:
            return None
        return replace(call, script=f"{call.script}{'' if call.extended else call.more} {selected}")

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        """See perdure.adapters.checks.runners.reproduction."""
        selected = shlex.join(self.arguments(case))
        return f"{command}{call.more} {selected}" if selected and call.more is not None else ""


def group_and_method(case: TestCase) -> tuple[str, str]:
    """A case's class and its method; of a parametrised test, all of its cases."""
    group, _, name = case.name.rpartition("::")
    return group, re.split(r"[(\[{]", name)[0]


def last_part(case: TestCase) -> str:
    """The rest of its name, behind its file or class."""
    return case.name.rpartition("::")[2]


def escaped(name: str) -> str:
    """For a JavaScript regular expression."""
    return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", name)
