"""The runners `cargo test` and nextest; a reader of what `cargo test` prints (libtest and rustdoc, one line a test),
which the tested process writes and which is therefore added up here; and canaries (tests that must fail) in each file
of `tests/`: first, last, and at the end of each of its tests.

The names of the source files stand in what cargo itself prints on its error output, in the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from perdure.adapters.checks.junit import BadReport
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportRequest, Runner
from perdure.adapters.system.bounded import read_beginning, read_toml
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS, JUNIT_CASES
from perdure.text import shell_word, shorten

LIBTEST_BYTES = 32 * 1024 * 1024
"""Of what `cargo test` prints, whose lines are held together: half a million tests. What passing tests print is not in
it."""

_SUITE_START = re.compile(r"^running (\d{1,9}) tests?$")
_TEST_START = re.compile(r"^test (.{1,1000}?)(?: - should panic)? \.\.\. ")
_TEST_OUTCOME = re.compile(r"(?:^|\s)(ok|FAILED|ignored(?:, .*)?)$")
_SUITE_TOTALS = re.compile(r"^test result: \w+\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_FAILURE_HEAD = re.compile(r"^---- (.{1,1000}?) stdout ----$")
_PROGRAM_LINE = re.compile(rb"^ {3,8}(?:Running (?:unittests )?(\S{1,500}) \(.{1,1000}\)|Doc-tests \S+)$", re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_OUTCOMES = {"ok": "passed", "FAILED": "failed"}


def read_libtest_output(
    path: Path, cargo_output: Path, root: Path, command: Callable[[str], str] = lambda _: ""
) -> tuple[TestCase, ...]:
    """Read the test cases from a command's standard output; each program that ended before its tests did adds one
    errored case.

    path          the standard output of `cargo test`
    cargo_output  all that the command printed, cargo's own lines among it
    root          where it ran
    command       gives what a person types to run a test alone, by its name

    Raises BadReport where no test and no program is named, a program's totals are not what its lines add up to, the
    output is too large or unreadable, or there are more than JUNIT_CASES cases.
    """
    programs, all_cases = _program_sources(cargo_output, root), list[TestCase]()
    blocks = list(_program_blocks(_read_text(path)))
    for number, lines in enumerate(blocks):
        file = programs[number] if number < len(programs) else ""
        cases, is_complete = _parse_block(lines, file, command)
        all_cases += cases
        if not is_complete:
            all_cases.append(_cut_off_case(file))
        if len(all_cases) > JUNIT_CASES:
            raise BadReport(f"the report has more than {JUNIT_CASES:,} cases")
    all_cases += [_cut_off_case(file) for file in programs[len(blocks) :]]
    if not all_cases and not programs:
        raise BadReport("its output tells of no tests")
    return tuple(all_cases)


def _cut_off_case(file: str) -> TestCase:
    """Return the errored case that stands for a program which ended before its tests did."""
    return TestCase(name=f"{file or 'doctests'}: ended before its tests", file=file, outcome="errored", is_program=True)


def _read_text(path: Path) -> str:
    """Return a file's text without colours; empty where there is none. Raises BadReport where it is larger than
    LIBTEST_BYTES or unreadable."""
    try:
        if path.stat().st_size > LIBTEST_BYTES:
            raise BadReport(f"its output is larger than {LIBTEST_BYTES // 1024**2} MiB")
        return _COLOURS.sub(b"", path.read_bytes()).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadReport(f"its output cannot be read: {error}") from None


def _program_blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each program, from the line with the number of its tests on.

    Such a line begins a new block only where the block before has its totals: tests may print one, too.
    """
    block, has_totals = list[str](), True
    for line in text.split("\n"):
        if has_totals and _SUITE_START.match(line):
            if block:
                yield block
            block, has_totals = [line], False
        elif block:
            block.append(line)
            has_totals = has_totals or _SUITE_TOTALS.match(line) is not None
    if block:
        yield block


def _parse_block(lines: list[str], file: str, command: Callable[[str], str]) -> tuple[list[TestCase], bool]:
    """Return (test cases, whether it came to its end) of one program's lines. It came to its end where they have its
    totals, and only one line with the number of its tests.

    file     the program's source; empty for doctests
    command  gives what a person types to run a test alone, by its name

    Raises BadReport where the totals that it prints are not those of its lines.
    """
    outcomes, open_test, totals, start_count, printed = list[tuple[str, str]](), "", None, 0, list[str]()
    for line in lines:
        if totals is None and (totals := _SUITE_TOTALS.match(line)) is not None:
            break
        if printed or line in ("failures:", "successes:"):  # what tests have printed
            printed.append(line)
            continue
        start_count += _SUITE_START.match(line) is not None
        if (test_start := _TEST_START.match(line)) is not None:
            open_test, line = test_start[1], line[test_start.end() - 1 :]
        if open_test and (outcome_end := _TEST_OUTCOME.search(line)) is not None:
            outcomes.append((open_test, _OUTCOMES.get(outcome_end[1], "skipped")))
            open_test = ""
    is_complete, suite_start = totals is not None and start_count == 1, _SUITE_START.match(lines[0])
    counts = [sum(outcome == kind for _, outcome in outcomes) for kind in ("passed", "failed", "skipped")]
    if (
        is_complete
        and totals is not None
        and [*map(int, totals.groups()), int(suite_start[1]) if suite_start else 0] != [*counts, len(outcomes)]
    ):
        raise BadReport(f"{file or 'a program'} adds its tests up to another number than it tells of")
    messages = _failure_messages(printed)
    cases = []
    for name, outcome in outcomes:
        full_name, test_file = (f"{file}::{name}", file) if file else (name, name.partition(" - ")[0])
        reproduce = command(full_name)
        cases.append(
            TestCase(name=full_name, file=test_file, outcome=outcome, message=messages.get(name, ""), command=reproduce)
        )
    return cases, is_complete


def _failure_messages(lines: list[str]) -> dict[str, str]:
    """Return what failing tests printed, by their names, each cut to CASE_MESSAGE_CHARS."""
    texts, name = dict[str, list[str]](), ""
    for line in lines:
        if (head := _FAILURE_HEAD.match(line)) is not None:
            name = head[1]
        elif line == "failures:":
            name = ""
        elif name:
            texts.setdefault(name, []).append(line)
    return {name: shorten("\n".join(text).strip(), CASE_MESSAGE_CHARS) for name, text in texts.items()}


def _program_sources(cargo_output: Path, root: Path) -> list[str]:
    """Return the source file of each program that cargo ran, in order, as cargo's own lines name it; an empty name for
    doctests, whose own names begin with their files.

    No source at all where the output cannot be read; only its first LIBTEST_BYTES are looked at.
    """
    try:
        with cargo_output.open("rb") as file:
            text = _COLOURS.sub(b"", file.read(LIBTEST_BYTES))
    except OSError:
        return []
    return [
        resolve_package_path(root, match[1].decode(errors="replace")) if match[1] else ""
        for match in _PROGRAM_LINE.finditer(text)
    ]


def resolve_package_path(root: Path, path: str) -> str:
    """Return the path of a package's file relative to `root`; as it is where more than one package has such a file, or
    none."""
    directories = [file.parent for file in cargo_manifests(root) if (file.parent / path).is_file()]
    return str((directories[0] / path).relative_to(root)) if len(directories) == 1 else path


def cargo_manifests(root: Path) -> list[Path]:
    """Return the files Cargo.toml in `root`, in its subdirectories and in theirs."""
    return [file for stars in ("", "*/", "*/*/") for file in sorted(root.glob(f"{stars}Cargo.toml"))]


INSIDE = r"#\[cfg\(test\)\]|^\s{0,80}//[/!].{0,20}```"
_HEAD = re.compile(r"(?:\s*+(?://[^\n]*\n|#!\[[^\]\n]*\]))*+\s*+")
"""The parts of a file that count only at its beginning: its comments, its attributes."""

_FORMS = """\
    let forms: Vec<fn()> = vec![
        || assert!(false), || assert_eq!(1, 2), || assert_ne!(1, 1), || panic!("x"), || unreachable!(),
        || { Option::<i32>::None.unwrap(); }, || { Result::<i32, i32>::Err(1).unwrap(); },
    ];
    for form in forms {
        if std::panic::catch_unwind(form).is_ok() {
            return;
        }
    }
    panic!("x");
"""


def program_options(file: str) -> tuple[str, ...]:
    """Return the options of cargo that build no other program than the one of this test file: another one may not
    compile.

    Empty for a file that is neither in `tests/` nor `src/lib.rs`.
    """
    match = re.search(r"(?:^|/)tests/([^/]+?)(?:\.rs|/main\.rs)$", file)
    return ("--test", match[1]) if match else ("--lib",) if file.endswith("src/lib.rs") else ()


def fail_rust_tests(text: str, token: str) -> tuple[str, frozenset[str]]:
    """Put a guard into each test function of a Rust file that makes it fail when it ends; return the new text and the
    names of the tests.

    The guard's type is `Fails<token>` (see rust_helper). Functions with parameters are left as they are.
    """
    pattern = re.compile(
        r"(#\[(?:\w+::)*test(?:\([^)\n]{0,200}\))?\]\s{0,200}(?:#\[[^\]\n]{0,200}\]\s{0,200}){0,20}"
        r"(?:pub\s{1,20})?(?:async\s{1,20})?fn\s{1,20}(\w+)\s{0,20}\(\s{0,20}\)[^{;]{0,200}\{)"
    )
    names = frozenset(match[2] for match in pattern.finditer(text))
    return pattern.sub(lambda m: f"{m[1]} let _{token} = Fails{token};", text), names


def rust_helper(token: str) -> str:
    """Return the source of the type `Fails<token>`: a value of it panics when it is dropped, unless its thread already
    panics."""
    guarded = 'if !std::thread::panicking() { panic!("x") }'
    return f"struct Fails{token};\nimpl Drop for Fails{token} {{ fn drop(&mut self) {{ {guarded} }} }}\n"


def plant_rust_canaries(files: Mapping[str, str], token: str) -> Canaries:
    """Return canaries for Rust files: a failing test first and last, its own tests made to fail.

    files  path → text; a file without an attribute (`#[`) is taken for a helper that another one includes, and gets
           none
    token  random letters, part of each name that is added
    """
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if not path.endswith(".rs") or "#[" not in text:  # a helper that another one includes
            continue
        changed, own = fail_rust_tests(text, token)
        head = _HEAD.match(changed)
        end = head.end() if head else 0
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        helper = rust_helper(token) if own else ""
        planting[path] = f"{changed[:end]}\n{helper}{_canary(first)}\n{changed[end:]}\n{_canary(last)}"
        bodies |= own
        names |= {first: path, last: path}
    return Canaries(planting, names, bodies)


def _canary(name: str) -> str:
    return f"#[allow(warnings)]\n#[test]\nfn {name}() {{\n{_FORMS}}}\n"


_CARGO_TEST = re.compile(r"(?<![\w./-])cargo\s+(?:test|t)(?=\s|$)")
_CHANGES_OUTPUT = re.compile(
    r"[>|]|\s(--no-run|--list|--no-?capture|-q|--quiet|--format|--message-format|--logfile|--bench|-Z)(?=[\s=]|$)"
)
"""Options that change what it prints."""


class _Rust(Runner):
    """The rules that `cargo test` and nextest share."""

    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})
    inline_tests = INSIDE

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return plant_rust_canaries(files, token)


class Cargo(_Rust):
    """`cargo test`."""

    name = "cargo"
    is_fallback = True

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:1] in (["test"], ["t"])

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how `cargo test` is run with `--no-fail-fast`, so that programs behind one that fails run too, and
        with its standard output in a file; cargo's own lines do not go there.

        None where options or settings change what is printed, a program has a test harness of its own, or `cargo test`
        is not on the line exactly once.
        """
        if _CHANGES_OUTPUT.search(request.command) or re.search(
            r"quiet|NOCAPTURE", read_beginning(request.tree / ".cargo/config.toml")
        ):
            return None
        if any(_has_own_harness(path) for path in cargo_manifests(request.tree)):
            return None
        file = request.file.with_suffix(".txt")
        line, changed = _CARGO_TEST.subn(
            lambda match: f"> {shell_word(str(file))} {match[0]} --no-fail-fast", request.command
        )
        if changed != 1:
            return None
        separator = request.separator if " -- " not in request.command else None
        return Invocation(line, self.name, {}, file, events="libtest", separator=separator, writing="through")

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return the options for tests of one program and for that program, so that another one that does not compile
        is not built; none for doctests, and for tests of several."""
        (file, *others), names = (
            {case.name.partition("::")[0] for case in cases},
            [case.name.partition("::")[2] for case in cases],
        )
        return (*program_options(file), "--", *names, "--exact") if not others and all(names) else ()


def _has_own_harness(manifest: Path) -> bool:
    """Return whether the library or a test program of a Cargo.toml has `harness = false`, and so prints what it
    likes."""
    settings = read_toml(manifest)
    test_targets = settings.get("test", [])
    targets = [settings.get("lib"), *(test_targets if isinstance(test_targets, list) else [])]
    return any(isinstance(target, dict) and target.get("harness") is False for target in targets)


class Nextest(_Rust):
    """`cargo nextest run`."""

    name = "nextest"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:2] == ["nextest", "run"]

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how nextest is run with `--no-fail-fast`, and with a settings file of ours, among `files`, that asks
        for a JUnit report.

        None where arguments cannot be appended, or the repository's own settings ask for such a report.
        """
        has_own_report = "junit" in read_beginning(request.tree / ".config" / "nextest.toml")
        if request.separator is None or " -- " in request.command or has_own_report:
            return None
        settings = request.file.with_name("nextest.toml")
        line = f"{request.command} --no-fail-fast --tool-config-file perdure:{shell_word(str(settings))}"
        files = {settings: f"[profile.default.junit]\npath = {json.dumps(str(request.file))}\n"}
        return Invocation(
            line,
            self.name,
            {},
            request.file,
            files=files,
            separator=request.separator,
            has_arguments=True,
            writing="through",
        )

    def find_test_file(self, classname: str, root: Path) -> str:
        """Find the file of a test by its class: `calc` is a package's own tests, `calc::it` those of `tests/it.rs`,
        `calc::bin/it` a program's.

        Empty where the class says nothing.
        """
        package, _, program = classname.partition("::")
        kind, _, program_name = program.rpartition("/")
        files = {"": "src/lib.rs" if not program else f"tests/{program_name}.rs", "bin": f"src/bin/{program_name}.rs"}
        return resolve_package_path(root, files.get(kind, "")) if package else ""

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return the options for the tests' own program, and a filter for each name that a test may have in it; none
        for tests of several programs."""
        names = [end for case in cases for end in _possible_names(case.name)]
        file, *others = {case.file for case in cases}
        return (*program_options(file), "-E", " | ".join(f"test(={end})" for end in names)) if not others else ()


def _possible_names(name: str) -> list[str]:
    """Return the names that a test may have within its binary: `calc::tests::adds` → `tests::adds`, `adds`.

    Nothing says where the binary's name ends and the test's begins.
    """
    parts = name.split("::")
    return ["::".join(parts[start:]) for start in range(min(1, len(parts) - 1), len(parts))]
