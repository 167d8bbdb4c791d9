"""Hints for a reviewer: lines of a change that may make tests say less, now or later, and that no experiment shows,
such as settings, skips, commands that hide failures, and product code that looks at its tests. Never a verdict
(docs/adr/0026)."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from perdure.adapters.checks.tamper.missing_tests import (
    CODE,
    added_items,
    limit_hits,
    make_hit,
    minus_lines,
    plus_lines,
)
from perdure.adapters.checks.tamper.source_tests import CHECKS, find_tests
from perdure.adapters.checks.trees import CommitTree, DifferingFiles
from perdure.adapters.git.checkouts import checkout_attributes
from perdure.models.checks.paths import is_test_file
from perdure.models.checks.report import ChangedTest, Tampering, TamperingHit
from perdure.models.limits import TAMPER_HITS_MOST, TAMPER_LINE_CHARS

_TEST_SETTINGS = (
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", "nose.cfg", ".noserc", "tox.toml"),
    *("jest.config.*", "jest.setup.*", "jest.preset.*", "vitest.config.*", "vitest.workspace.*", "vitest.setup.*"),
    *("setupTests.*", ".mocharc*", "karma.conf.*", "ava.config.*", "playwright.config.*", "cypress.config.*"),
    *("cypress.json", ".taprc", ".nycrc*", ".c8rc*", "phpunit.xml*", ".rspec", "nextest.toml"),
    *("junit-platform.properties", "testng.xml", "maven.config", "jvm.config", "init.gradle*", ".testrc*"),
)
_SHARED_SETTINGS = (
    *("pyproject.toml", "setup.cfg", "tox.ini", "setup.py", "entry_points.txt", "package.json", ".npmrc", "Cargo.toml"),
    *("pom.xml", "*.gradle", "*.gradle.kts", "gradle.properties", "go.mod", "vite.config.*"),
)
_RECIPES = ("[Mm]akefile", "GNUmakefile", "*.mk", "[Jj]ustfile", "Taskfile.y*ml", "Rakefile", "noxfile.py", "tasks.py")
_STAND_INS = (
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "pytest.py", "unittest.py", "pluggy.py", "mock.py"),
    *("TEST-*.xml", "junit*.xml", "test-results*.xml"),
)
_STAND_IN_DIRECTORIES = {"node_modules", ".venv", "site-packages", ".pytest_cache", "__pycache__", "surefire-reports",
              "pytest", "_pytest", "unittest"}  # fmt: skip

_TEST_DIRECTORIES = {"test", "tests", "t", "spec", "__tests__", "testdata"}

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
_SKIPS = re.compile(
    r"(?i)\bskip|\bxfail\b|expectedFailure|\b(xit|xtest|xdescribe|fit|fdescribe)\s?\(|\.(only|todo|failing)\b|only:\s?true"
    r"|@(Disabled|Ignore)\b|#\[(ignore|should_panic|cfg)|//go:build|\+build|importorskip|__test__|\bpending\("
)
_LOOKS_AT_TESTS = re.compile(
    r"PYTEST_\w+|PERDURE_\w+|library[_ ]snapshot"
    r"|sys\._getframe|inspect\.(stack|currentframe|getouterframes)|sys\.modules|NODE_TEST_CONTEXT"
    r"|JEST_WORKER_ID|\bVITEST\b|NODE_ENV\W{1,20}test|testing\.Testing\(|Lookup\(.test\.|\.test['\"]\)|cfg!?\(test\)"
    r"|\bimport (pytest|_pytest|unittest)\b|from (pytest|_pytest|unittest)\b|<testsuites?\b|junit_?-?xml|currentframe"
    r"|\bctypes\b|\bmeta_path\b|\bbuiltins\b|Object\.is\s?=[^=]|JEST_STATE|\b(afterEach|beforeEach|expect)\b(\?\.|[.(])"
    r"|__code__|__build_class__|gc\.(callbacks|get_)|set(trace|profile)\(|(from|require\()\s?['\"](vitest|chai|@jest/|node:test)"
    r"|Error\([^()]{0,40}\)\.stack|(prepare|capture)StackTrace|extract_stack|walk_stack|runtime\.Callers?\(|debug\.Stack\("
)
_DEPENDS_ON_RUN = re.compile(
    r"\bsys\.(?:argv\[0\]|orig_argv)|\bos\.Args\[0\]|\bprocess\.(?:argv0\b|argv\[1\])|\bcurrent_exe\(|os\.Executable\("
    r"|/proc/self|\bgetppid\b|\benviron[^\n]{0,9}['\"]CI['\"]|\b[gG]etenv\(['\"]CI['\"]|\bprocess\.env\.CI\b|gethostname\("
    r"|(?:\b__file__|\b__dirname|\b(?:get)?cwd\(\)|import\.meta\.(?:url|dirname))[^\n]{0,20}"
    r"(?:[!=]=|\bin\b|(?:starts|ends)[wW]ith|includes|match)"
    r"|['\"] in (?:__file__|os\.getcwd\(\))"
    r"|(?:\b(?:today|now|utcnow|time|Now)\([^()\n]{0,20}\)|new Date\(\))[^\n]{0,20}"
    r"[<>]=? ?(?:['\"\d]|date(?:time)?\(|new Date\(.)"
)
_READS_CONDITIONS = re.compile(
    r"\b(?:import|from) (?:time|datetime)\b|\b(?:time|today|now|utcnow|localtime|gmtime|c?time|strftime)\(|argv\b"
    r"|\b(?:environb?|getenv|Date)\b|\bprocess\.env\b"
)
SCRIPT = re.compile(r"\.(?:py|[cm]?[jt]sx?)$")
"""Files of languages whose clock and program name a run can change."""

_READS_PLACE = re.compile(
    r"\b(?:__file__|__FILE__|__DIR__|__dirname|import\.meta|getcwd|Getwd|cwd|current_dir|current_exe|FindBin|PWD)\b"
    r"|\bPath\(\)|\.(?:resolve|absolute)\(\)|[pP]ath\.resolve\(|\bos\.Executable|\bruntime\.Caller|filepath\.Abs|\babspath|\brealpath|canonicalize\(|CARGO_MANIFEST|user\.dir"
    r"|\b[gG]etenv\b|\bLookupEnv|\benv::var|\bENV\b|\$_(?:ENV|SERVER)\b|[\"'{$]CI\b"
)
_READS_OTHER_CLOCKS = re.compile(
    r"st_[mca]time|get[mca]time|utime|\bl?stat(?:Sync)?\(|birthtime|[mca]time(?:Ms)?\b(?<!\btime)|(?i:timestamp)|['\"]now['\"]"
    r"|clock_gettime|monotonic|perf_counter|hrtime|performance\b|uuid[17]|datetime64|subprocess|child_process|sqlite"
)
_EQUALS = re.compile(
    r"__eq__|__ne__|__bool__|__(instance|subclass)(check|hook)__|def equals\(|boolean equals\(|Symbol\.toPrimitive"
    r"|valueOf\s?[(:=]"
)
_SUPPRESSES = re.compile(
    r"#\s?(?:type|pyright|mypy|ty|pyrefly):\s?ignore|#\s?noqa\b|#\s?(?:ruff|flake8):\s?noqa|#\s?pylint:\s?disable|#\s?nosec\b"
    r"|#\s?fmt:\s?(?:off|skip)|\beslint-disable|@ts-(?:ignore|nocheck|expect-error)"
    r"|(?:biome|oxlint|prettier|stylelint)-(?:ignore|disable)"
    r"|//\s?nolint\b|//\s?lint:ignore|#nosec\b|\bNOLINT|clang-format off"
    r"|@SuppressWarnings|@Suppress\(|@phpstan-ignore|phpcs:(?:ignore|disable)"
    r"|@psalm-suppress|rubocop:\s?disable|shellcheck disable|#!?\[(?:allow|expect)\("
    r"|(?:istanbul|c8|v8) ignore|pragma: no cover"
)
_ENDS = re.compile(r"\b_exit\(|\batexit\b|process\.(exit|reallyExit)\(|os\.Exit\(0|process::exit\(0|System\.exit\(0")


@dataclass(frozen=True)
class ReviewHints:
    """Hints for a reviewer: places, and tests of the base that check something else now."""

    places: tuple[TamperingHit, ...] = ()
    changed_tests: tuple[ChangedTest, ...] = ()


@dataclass(frozen=True)
class _ChangedFile:
    """A file that differs: the lines it lost, and those that are new in it, each with its number."""

    path: str
    lost_lines: Sequence[tuple[int, str]]
    added_lines: Sequence[tuple[int, str]]

    @property
    def name(self) -> str:
        """Return the file's name, without its directory."""
        return self.path.rpartition("/")[2]

    def matches_any(self, patterns: Sequence[str]) -> bool:
        """Return whether the file's name matches one of these patterns."""
        return any(fnmatch.fnmatchcase(self.name, pattern) for pattern in patterns)

    def make_hint(
        self, rule: Tampering, title: str, pattern: re.Pattern[str] | None = None, with_lost: bool = True
    ) -> Iterator[TamperingHit]:
        """Yield one hint with the lines in which a pattern is found (None: all lines); none where there is no such
        line.

        with_lost  lines that the file lost count, too
        """
        lost = [line for _, line in self.lost_lines if with_lost and (pattern is None or pattern.search(line))]
        added = [(number, line) for number, line in self.added_lines if pattern is None or pattern.search(line)]
        if lost or added:
            evidence = minus_lines("\n".join(lost[:10])), plus_lines("\n".join(line for _, line in added[:10]))
            yield make_hit(rule, f"{self.path}: {title}", self.path, added[0][0] if added else None, *evidence)


def find_hints(before: DifferingFiles, after: DifferingFiles, run_files: Collection[str]) -> ReviewHints:
    """Find hints for a reviewer in the files that differ between two commits, and return them.

    run_files  the files that test commands run, or name as tests

    They are places, and tests of the base that lost asserting lines; at most TAMPER_HITS_MOST of each. The git process
    that reads is ended. Raises GitError when a commit cannot be read.
    """
    paths = sorted(before.changed)
    before.preload(paths)
    after.preload(paths)
    places, changed_tests = list(_attribute_hints(before, after)), list[ChangedTest]()
    try:
        for path in paths:
            places += _name_hints(before, after, path)
            old, new = before.read_text(path), after.read_text(path)
            if old is not None or new is not None:
                places += _file_hints(_compare_lines(path, old or "", new or ""), run_files)
            if old and new and (is_test_file(path) or path.endswith(".rs")):
                changed_tests += _find_changed_tests(path, old, new)
    finally:
        before.close()
    return ReviewHints(limit_hits(places), tuple(changed_tests[:TAMPER_HITS_MOST]))


def reads_conditions(path: str, old: str, new: str) -> bool:
    """Return whether a changed file of the product reads what other conditions change, in lines that are new: its place
    or variables; in Python and JavaScript clock and arguments, too."""
    patterns = (_READS_CONDITIONS, _READS_PLACE) if SCRIPT.search(path) else (_READS_PLACE,)
    added_lines = _compare_lines(path, old, new).added_lines
    return any(pattern.search(line) for _, line in added_lines for pattern in patterns)


def reads_other_clocks(text: str) -> bool:
    """Return whether a program may compare the time with that of another clock: of files, of a database, since the
    start, or of other programs."""
    return _READS_OTHER_CLOCKS.search(text) is not None


def _file_hints(file: _ChangedFile, run_files: Collection[str]) -> Iterator[TamperingHit]:
    """Yield hints about one text file, by its name and the lines that differ.

    They are about settings of tests, files that run the tests, tests that are left out, remarks of linters and type
    checkers that are suppressed, and product code that looks at what tests it, depends on where, when or under which
    name it runs, defines its own equality, or may end the process.

    run_files  as for find_hints
    """
    if file.matches_any(_TEST_SETTINGS):
        yield from file.make_hint(Tampering.CONFIGURATION, "settings of the tests differ")
    elif file.matches_any(_SHARED_SETTINGS):
        yield from file.make_hint(Tampering.CONFIGURATION, "settings of the tests differ", _SETTING)
    if file.matches_any(_RECIPES) or (file.path in run_files and not is_test_file(file.path)):
        yield from file.make_hint(
            Tampering.COMMAND, "it runs the tests, and may hide that they fail", _MASKS, with_lost=False
        )
        yield from file.make_hint(Tampering.COMMAND, "it runs the tests, and differs")
    if CODE.fullmatch(file.path):
        yield from file.make_hint(
            Tampering.SKIPPED, "a linter or type checker is told to say nothing", _SUPPRESSES, with_lost=False
        )
    if is_test_file(file.path) or file.path.endswith(".rs"):
        yield from file.make_hint(Tampering.SKIPPED, "tests may be left out", _SKIPS, with_lost=False)
    elif CODE.fullmatch(file.path) and file.name != "conftest.py":
        yield from file.make_hint(Tampering.REPORT, "it looks at what tests it", _LOOKS_AT_TESTS, with_lost=False)
        yield from file.make_hint(
            Tampering.REPORT, "it depends on where, when or as what it runs", _DEPENDS_ON_RUN, with_lost=False
        )
        yield from file.make_hint(Tampering.HOLLOW, "it decides what it is equal to", _EQUALS, with_lost=False)
        yield from file.make_hint(Tampering.COMMAND, "it may end the process", _ENDS, with_lost=False)


def _attribute_hints(before: DifferingFiles, after: DifferingFiles) -> Iterator[TamperingHit]:
    """Yield one hint about a .gitattributes by which tests of the base, or their data, have other bytes in a checkout
    or an archive of the change; none where there is none such."""
    attributes = sorted(path for path in before.changed if path.rpartition("/")[2] == ".gitattributes")
    if not attributes:
        return
    old, new = (
        checkout_attributes(files.repository, files.commit, ("filter", "export-subst")) for files in (before, after)
    )
    entries = CommitTree.from_commit(before.repository, before.commit).entries
    paths = sorted(
        path for path in {*old, *new} if path in entries and old.get(path) != new.get(path) and _is_of_tests(path)
    )
    if paths:
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        file = _compare_lines(
            attributes[0], before.read_text(attributes[0]) or "", after.read_text(attributes[0]) or ""
        )
        yield from file.make_hint(Tampering.CONFIGURATION, f"it changes the bytes of tests: {shown}")


def _is_of_tests(path: str) -> bool:
    """Return whether a path is of a test or its data, by its own name or that of a directory above it."""
    return is_test_file(path) or not _TEST_DIRECTORIES.isdisjoint(path.split("/")[:-1])


def _name_hints(before: DifferingFiles, after: DifferingFiles, path: str) -> Iterator[TamperingHit]:
    """Yield at most one hint about a file of the change, by its name or kind: it may be loaded or read in the place of
    what tests use or report, or it is a link among the tests. None where the change has no such file."""
    if not after.has(path):
        return
    *directories, name = path.split("/")
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _STAND_INS) or _STAND_IN_DIRECTORIES & set(directories):
        yield make_hit(Tampering.CONFIGURATION, f"{path}: it may stand in for what the tests load or report", path)
    elif not before.has(path) and (other := _find_hidden_file(path, after)):
        yield make_hit(Tampering.CONFIGURATION, f"{path}: it may stand in for {other}", path)
    elif after.is_link(path) and (is_test_file(path) or name == "conftest.py"):
        yield make_hit(Tampering.CONFIGURATION, f"{path}: a link among the tests", path)


def _find_hidden_file(path: str, after: DifferingFiles) -> str:
    """Return what would no longer be loaded because of a new file: a module of Python's own of that name, or a
    differing file of the same name at the top, below `src` or `lib`, or with another JavaScript ending. Empty where
    there is none."""
    stem, _, ending = path.rpartition(".")
    if ending == "py" and stem in sys.stdlib_module_names:
        return f"Python's {stem}"
    endings = ("js", "jsx", "ts", "tsx", "mjs", "cjs") if ending in ("js", "mjs", "cjs") else (ending,)
    others = (f"{top}{stem}.{other_ending}" for top in ("", "src/", "lib/") for other_ending in endings)
    return next((other for other in others if other != path and after.has(other)), "")


def _compare_lines(path: str, old: str, new: str) -> _ChangedFile:
    """Return the lines that a file lost and those that are new in it, empty ones left out; indentation and order do not
    matter, so that what was only moved is in neither."""
    old_lines, new_lines = _normal_lines(old), _normal_lines(new)
    lost = added_items(old_lines, new_lines)
    added = added_items(new_lines, old_lines)
    return _ChangedFile(path, _number_lines(old_lines, lost), _number_lines(new_lines, added))


def _normal_lines(text: str) -> list[str]:
    """Return a text's lines, each cut to TAMPER_LINE_CHARS, with one blank in the place of several."""
    return [" ".join(line[:TAMPER_LINE_CHARS].split()) for line in text.splitlines()]


def _number_lines(lines: Sequence[str], chosen: Sequence[str]) -> list[tuple[int, str]]:
    """Return the lines of `chosen` that are not empty, each with its number in `lines` from 1; `chosen` has to be in
    the order of `lines`."""
    pending = list(reversed(chosen))
    numbered = []
    for number, line in enumerate(lines, start=1):
        if pending and line == pending[-1]:
            pending.pop()
            if line:
                numbered.append((number, line))
    return numbered


def _find_changed_tests(path: str, old: str, new: str) -> Iterator[ChangedTest]:
    """Yield each test of the base that is still there by name, does something else and lost a line that asserts; with
    the asserting lines that it lost and that are new in it, each cut to 1,000 characters."""
    before = {test.leaf: test for test in find_tests(path, old)}
    for test in find_tests(path, new):
        old_test = before.get(test.leaf)
        if old_test is None or old_test.body == test.body:
            continue
        lost = added_items(_asserting_lines(old_test.text), _asserting_lines(test.text))
        if lost:
            added = added_items(_asserting_lines(test.text), _asserting_lines(old_test.text))
            texts = "\n".join(lost)[:1000], "\n".join(added)[:1000]
            yield ChangedTest(name=test.leaf, file=path, line=test.line, before=texts[0], after=texts[1])


def _asserting_lines(text: str) -> list[str]:
    """Return the lines of a text that assert something."""
    return [line for line in _normal_lines(text) if CHECKS.search(line)]
