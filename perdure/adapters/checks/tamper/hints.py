"""Changes that a reviewer should look at, with their lines: what may make tests say less. Never a verdict."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.adapters.checks.tamper.files import Files
from perdure.adapters.checks.tamper.inventory import at_most, hit, is_now, is_test, only_new, was
from perdure.adapters.checks.tamper.names import CHECKS, tests
from perdure.models.config import TestCommand
from perdure.models.limits import TAMPER_HITS_MOST, TAMPER_LINE_CHARS
from perdure.models.report import ChangedTest, Tampering, TamperingHit

_WHOLE = (
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", "nose.cfg", ".noserc", "tox.toml"),
    *("jest.config.*", "jest.setup.*", "jest.preset.*", "vitest.config.*", "vitest.workspace.*", "vitest.setup.*"),
    *("setupTests.*", ".mocharc*", "karma.conf.*", "ava.config.*", "playwright.config.*", "cypress.config.*"),
    *("cypress.json", ".taprc", ".nycrc*", ".c8rc*", "phpunit.xml*", ".rspec", "nextest.toml"),
    *("junit-platform.properties", "testng.xml", "maven.config", "jvm.config", "init.gradle*", ".testrc*"),
)
_SHARED = (
    *("pyproject.toml", "setup.cfg", "tox.ini", "setup.py", "entry_points.txt", "package.json", ".npmrc", "Cargo.toml"),
    *("pom.xml", "*.gradle", "*.gradle.kts", "gradle.properties", "go.mod", "vite.config.*"),
)
_RECIPES = ("[Mm]akefile", "GNUmakefile", "*.mk", "[Jj]ustfile", "Taskfile.y*ml", "Rakefile", "noxfile.py", "tasks.py")
_IN_FRONT = (
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "pytest.py", "unittest.py", "pluggy.py", "mock.py"),
    *("TEST-*.xml", "junit*.xml", "test-results*.xml"),
)
_INSTALLED = {"node_modules", ".venv", "site-packages", ".pytest_cache", "__pycache__", "surefire-reports", "pytest",
              "_pytest", "unittest"}  # fmt: skip

_SETTING = re.compile(
    r"(?i)test|addopts|coverage|python_(files|classes|functions)|norecursedirs|\bomit\b|exclude|markers|filterwarnings"
    r"|jest|mocha|surefire|failsafe|harness|ignoreFailures|enabled|node.options|script.shell|testify|=>"
)
_MASKS = re.compile(
    r"\|\|\s?(true|:|exit 0|return 0|echo|printf)|;\s?(true|:|exit( 0)?)\s?$|^\s?@?-"
    r"|set \+\w?e|set \+o (errexit|pipefail)"
    r"|\btrap\b|\|\s?(tee|cat|tail|head|grep|sed|awk)\b|[^&>]&\s?$|^\s?(exit|return)( 0)?\s?$|^\s?(if|!)\s|\(\)\s?\{"
    r"|\b(PATH|SHELL|MAKEFLAGS)\s?[:+?]?=|\.IGNORE|\.ONESHELL"
)
_STEERS = re.compile(
    r"def pytest_|autouse|collect_ignore|pytest_plugins|pytestmark|sys\.modules|_exit\b|atexit|pytest\.exit|hookimpl"
)
_SKIPS = re.compile(
    r"(?i)\bskip|\bxfail\b|expectedFailure|\b(xit|xtest|xdescribe|fit|fdescribe)\s?\(|\.(only|todo|failing)\b|only:\s?true"
    r"|@(Disabled|Ignore)\b|#\[(ignore|should_panic|cfg)|//go:build|\+build|importorskip|__test__|\bpending\("
)
_BENDS = re.compile(
    r"\b_exit\(|\bsys\.exit\(|SystemExit|\batexit\b|process\.exit|exitCode\s?=|os\.Exit\(|TestMain|process::exit"
    r"|System\.exit|load_tests|(unittest|TestCase|pytest|assert|expect)(\.\w{1,40})?\s?=[^=>]|sys\.modules|globals\(\)"
    r"|setattr\(\s?(pytest|unittest)|except( (Base)?Exception| AssertionError)?\s?:|suppress\("
    r"|raises\(\s?(Base)?Exception"
)
_ASKS = re.compile(
    r"PYTEST_\w+|PERDURE_\w+|sys\._getframe|inspect\.(stack|currentframe|getouterframes)|sys\.modules|NODE_TEST_CONTEXT"
    r"|JEST_WORKER_ID|\bVITEST\b|NODE_ENV\W{1,20}test|testing\.Testing\(|Lookup\(.test\.|\.test['\"]\)|cfg!?\(test\)"
    r"|\bimport (pytest|_pytest|unittest)\b|from (pytest|_pytest|unittest)\b|<testsuites?\b|junit_?-?xml|currentframe"
    r"|\bctypes\b|\bmeta_path\b|\bbuiltins\b|Object\.is\s?=[^=]|JEST_STATE|\b(afterEach|beforeEach|expect)\b(\?\.|[.(])"
    r"|__code__|__build_class__|gc\.(callbacks|get_)|set(trace|profile)\(|(from|require\()\s?['\"](vitest|chai|@jest/|node:test)"
    r"|Error\([^()]{0,40}\)\.stack|(prepare|capture)StackTrace|extract_stack|walk_stack|runtime\.Callers?\(|debug\.Stack\("
)
_EQUALS = re.compile(
    r"__eq__|__ne__|__bool__|__(instance|subclass)(check|hook)__|def equals\(|boolean equals\(|Symbol\.toPrimitive"
    r"|valueOf\s?[(:=]"
)
_ENDS = re.compile(r"\b_exit\(|\batexit\b|process\.(exit|reallyExit)\(|os\.Exit\(0|process::exit\(0|System\.exit\(0")
_CODE = re.compile(r".*\.(py|[cm]?[jt]sx?|go|rs|java|kt|kts|groovy|scala|rb|php|cs|sh|bash|c|cc|cpp|pl|ex|exs|swift)")


@dataclass(frozen=True)
class Hints:
    """Hints for a reviewer: places, and tests of the base that check something else now."""

    places: tuple[TamperingHit, ...] = ()
    changed_tests: tuple[ChangedTest, ...] = ()


@dataclass(frozen=True)
class _Changed:
    """One file: the lines it lost, and those it has more, each with its number."""

    path: str
    lost: Sequence[tuple[int, str]]
    more: Sequence[tuple[int, str]]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_one(self, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(self.name, pattern) for pattern in patterns)

    def hint(
        self, rule: Tampering, title: str, about: re.Pattern[str] | None = None, lost: bool = True
    ) -> Iterator[TamperingHit]:
        """One hint with the lines that a pattern is found in; none without any."""
        gone = [line for _, line in self.lost if lost and (about is None or about.search(line))]
        here = [(number, line) for number, line in self.more if about is None or about.search(line)]
        if gone or here:
            evidence = was("\n".join(gone[:10])), is_now("\n".join(line for _, line in here[:10]))
            yield hit(rule, f"{self.path}: {title}", self.path, here[0][0] if here else None, *evidence)


def hints(before: Files, after: Files, commands: Sequence[TestCommand]) -> Hints:
    """The differences between two commits that are worth a look. Raises GitError when a commit cannot be read."""
    words = " ".join(command.command for command in commands)
    paths = sorted(before.changed)
    before.load(paths)
    after.load(paths)
    places, changed = list[TamperingHit](), list[ChangedTest]()
    try:
        for path in paths:
            places += _named(before, after, path)
            old, new = before.text(path), after.text(path)
            if old is not None or new is not None:
                places += _hints(_differing(path, old or "", new or ""), words)
            if old and new and (is_test(path) or path.endswith(".rs")):
                changed += _checking_something_else(path, old, new)
    finally:
        before.close()
    return Hints(at_most(places), tuple(changed[:TAMPER_HITS_MOST]))


def _hints(file: _Changed, words: str) -> Iterator[TamperingHit]:
    if file.is_one(_WHOLE):
        yield from file.hint(Tampering.CONFIGURATION, "settings of the tests differ")
    elif file.is_one(_SHARED):
        yield from file.hint(Tampering.CONFIGURATION, "settings of the tests differ", _SETTING)
    if file.is_one(_RECIPES) or (file.path in words or file.name in words.split()):
        yield from file.hint(Tampering.COMMAND, "it runs the tests, and may hide that they fail", _MASKS, lost=False)
        yield from file.hint(Tampering.COMMAND, "it runs the tests, and differs")
    elif file.name == "conftest.py":
        yield from file.hint(Tampering.CONFIGURATION, "it decides what runs, and how", _STEERS)
    if is_test(file.path) or file.path.endswith(".rs"):
        yield from file.hint(Tampering.SKIPPED, "tests may be left out", _SKIPS, lost=False)
        yield from file.hint(Tampering.HOLLOW, "it may end the run, or swallow what fails", _BENDS, lost=False)
        fewer = _count(file.lost) - _count(file.more)
        if fewer > 0 and file.more:
            title = f"{fewer} assertion{'s' if fewer > 1 else ''} fewer"
            yield from file.hint(Tampering.HOLLOW, title, CHECKS)
    elif _CODE.fullmatch(file.path) and file.name != "conftest.py":
        yield from file.hint(Tampering.REPORT, "it looks at what tests it", _ASKS, lost=False)
        yield from file.hint(Tampering.HOLLOW, "it decides what it is equal to", _EQUALS, lost=False)
        yield from file.hint(Tampering.COMMAND, "it may end the process", _ENDS, lost=False)


def _named(before: Files, after: Files, path: str) -> Iterator[TamperingHit]:
    """Files that get in front of what tests load, or stand for reports, by what they are called; links among tests."""
    if not after.has(path):
        return
    *above, name = path.split("/")
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _IN_FRONT) or _INSTALLED & set(above):
        yield hit(Tampering.CONFIGURATION, f"{path}: it may stand in for what the tests load or report", path)
    elif not before.has(path) and (other := _in_front_of(path, after)):
        yield hit(Tampering.CONFIGURATION, f"{path}: it may stand in for {other}", path)
    elif after.is_link(path) and (is_test(path) or name == "conftest.py"):
        yield hit(Tampering.CONFIGURATION, f"{path}: a link among the tests", path)


def _in_front_of(path: str, after: Files) -> str:
    """The file that a new one is found before, of those that differ as well: below src or lib, or of another ending; or
    a module of Python itself. Empty where there is none."""
    stem, _, end = path.rpartition(".")
    if end == "py" and stem in sys.stdlib_module_names:
        return f"Python's {stem}"
    ends = ("js", "jsx", "ts", "tsx", "mjs", "cjs") if end in ("js", "mjs", "cjs") else (end,)
    others = (f"{top}{stem}.{one}" for top in ("", "src/", "lib/") for one in ends)
    return next((other for other in others if other != path and after.has(other)), "")


def _differing(path: str, old: str, new: str) -> _Changed:
    """Lines without their indentation; order does not matter, so that what was only moved is no news."""
    had, has = _lines(old), _lines(new)
    left = only_new(had, has)
    more = only_new(has, had)
    return _Changed(path, _numbered(had, left), _numbered(has, more))


def _lines(text: str) -> list[str]:
    return [" ".join(line[:TAMPER_LINE_CHARS].split()) for line in text.splitlines()]


def _numbered(lines: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, str]]:
    left = list(reversed(wanted))
    found = []
    for number, line in enumerate(lines, start=1):
        if left and line == left[-1]:
            left.pop()
            if line:
                found.append((number, line))
    return found


def _count(lines: Sequence[tuple[int, str]]) -> int:
    return sum(CHECKS.search(line) is not None for _, line in lines)


def _checking_something_else(path: str, old: str, new: str) -> Iterator[ChangedTest]:
    """Tests that lost a line that asserts, by their name."""
    before = {test.leaf: test for test in tests(path, old)}
    for test in tests(path, new):
        had = before.get(test.leaf)
        if had is None or had.body == test.body:
            continue
        lost = only_new(_asserting(had.text), _asserting(test.text))
        if lost:
            more = only_new(_asserting(test.text), _asserting(had.text))
            told = "\n".join(lost)[:1000], "\n".join(more)[:1000]
            yield ChangedTest(name=test.leaf, file=path, line=test.line, before=told[0], after=told[1])


def _asserting(text: str) -> list[str]:
    return [line for line in _lines(text) if CHECKS.search(line)]
