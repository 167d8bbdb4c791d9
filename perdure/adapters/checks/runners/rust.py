"""`cargo test` and nextest; canaries in each file of `tests/`: first, last, and at the end of each of its tests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.libtest import cargo_manifests, resolve_package_path
from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportRequest, Runner
from perdure.adapters.system.bounded import read_beginning, read_toml
from perdure.models.report import TestCase

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


def plant_rust_canaries(files: Mapping[str, str], token: str) -> Canaries:
    """Return canaries for Rust files: a failing test first and last, its own tests made to fail.

    files  path → text; one without an attribute is a helper that another one includes, and gets none
    token  random letters, part of each name that is added
    """
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if not path.endswith(".rs") or "#[" not in text:  # a helper that another one includes
            continue
        changed, own = failing.fail_rust_tests(text, token)
        head = _HEAD.match(changed)
        end = head.end() if head else 0
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        helper = failing.rust_helper(token) if own else ""
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
        """Return how `cargo test` is run with its standard output, to which cargo's own lines do not go, written to a
        file.

        With `--no-fail-fast`, programs behind one that fails run, too. None where options or settings change what is
        printed, a program has a harness of its own, or `cargo test` is not on the line exactly once.
        """
        if _CHANGES_OUTPUT.search(request.command) or re.search(
            r"quiet|NOCAPTURE", read_beginning(request.tree / ".cargo/config.toml")
        ):
            return None
        if any(_has_own_harness(path) for path in cargo_manifests(request.tree)):
            return None
        file = request.file.with_suffix(".txt")
        line, changed = _CARGO_TEST.subn(
            lambda match: f"> {shlex.quote(str(file))} {match[0]} --no-fail-fast", request.command
        )
        if changed != 1:
            return None
        separator = request.separator if " -- " not in request.command else None
        return Invocation(line, self.name, {}, file, events="libtest", separator=separator, writing="through")

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        """Return the options for one test and for its own program, so that another one that does not compile is not
        built; none for doctests."""
        file, _, name = case.name.partition("::")
        return (*program_options(file), "--", name, "--exact") if name else ()


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
        """Return how nextest is run with a settings file of ours that asks for a JUnit report, and with
        `--no-fail-fast`.

        None where arguments cannot be appended, or the repository's own settings ask for such a report.
        """
        has_own_report = "junit" in read_beginning(request.tree / ".config" / "nextest.toml")
        if request.separator is None or " -- " in request.command or has_own_report:
            return None
        settings = request.file.with_name("nextest.toml")
        line = f"{request.command} --no-fail-fast --tool-config-file perdure:{shlex.quote(str(settings))}"
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

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        """Return the options for the test's own program, and a filter for each name that the test may have in it."""
        return *program_options(case.file), "-E", " | ".join(f"test(={end})" for end in _possible_names(case.name))


def _possible_names(name: str) -> list[str]:
    """Return the names that a test may have within its binary: `calc::tests::adds` → `tests::adds`, `adds`.

    Nothing says where the binary's name ends and the test's begins.
    """
    parts = name.split("::")
    return ["::".join(parts[start:]) for start in range(min(1, len(parts) - 1), len(parts))]
