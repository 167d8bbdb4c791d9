"""`cargo test` and nextest; canaries in each file of `tests/`: first, last, at the end of each test of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.libtest import in_package, manifests
from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner
from perdure.adapters.system.bounded import read, read_toml
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


def program(file: str) -> tuple[str, ...]:
    """Options that build no other program than the one of these tests, which may not compile."""
    found = re.search(r"(?:^|/)tests/([^/]+?)(?:\.rs|/main\.rs)$", file)
    return ("--test", found[1]) if found else ("--lib",) if file.endswith("src/lib.rs") else ()


def planted(files: Mapping[str, str], token: str) -> Canaries:
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if not path.endswith(".rs") or "#[" not in text:  # a helper that another one includes
            continue
        changed, own = failing.rust(text, token)
        found = _HEAD.match(changed)
        end = found.end() if found else 0
        first, last = f"a0{token}{number}", f"zz{token}{number}"
        helper = failing.rust_helper(token) if own else ""
        planting[path] = f"{changed[:end]}\n{helper}{_canary(first)}\n{changed[end:]}\n{_canary(last)}"
        bodies |= own
        names |= {first: path, last: path}
    return Canaries(planting, names, bodies)


def _canary(name: str) -> str:
    return f"#[allow(warnings)]\n#[test]\nfn {name}() {{\n{_FORMS}}}\n"


_TEST = re.compile(r"(?<![\w./-])cargo\s+(?:test|t)(?=\s|$)")
_OTHERWISE = re.compile(
    r"[>|]|\s(--no-run|--list|--no-?capture|-q|--quiet|--format|--message-format|--logfile|--bench|-Z)(?=[\s=]|$)"
)
"""Options that change what it prints."""


class _Rust(Runner):
    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})
    inside = INSIDE

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)


class Cargo(_Rust):
    name = "cargo"
    yields = True

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:1] in (["test"], ["t"])

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        """Its standard output, which its own words do not go to; programs behind one that fails run, too."""
        if _OTHERWISE.search(asked.command) or re.search(r"quiet|NOCAPTURE", read(asked.tree / ".cargo/config.toml")):
            return None
        if any(_has_harness(path) for path in manifests(asked.tree)):
            return None
        file = asked.file.with_suffix(".txt")
        line, changed = _TEST.subn(lambda found: f"> {shlex.quote(str(file))} {found[0]} --no-fail-fast", asked.command)
        if changed != 1:
            return None
        more = asked.passes if " -- " not in asked.command else None
        return Invocation(line, self.name, {}, file, events="libtest", more=more, written="through")

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        """Of its own program, so that another one that does not compile is not asked; none for doctests."""
        file, _, name = case.name.partition("::")
        return (*program(file), "--", name, "--exact") if name else ()


def _has_harness(manifest: Path) -> bool:
    """True where a program prints what it likes."""
    found = read_toml(manifest)
    tests = found.get("test", [])
    some = [found.get("lib"), *(tests if isinstance(tests, list) else [])]
    return any(isinstance(one, dict) and one.get("harness") is False for one in some)


class Nextest(_Rust):
    name = "nextest"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "cargo" and rest[:2] == ["nextest", "run"]

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        own = "junit" in read(asked.tree / ".config" / "nextest.toml")
        if asked.passes is None or " -- " in asked.command or own:
            return None
        settings = asked.file.with_name("nextest.toml")
        line = f"{asked.command} --no-fail-fast --tool-config-file perdure:{shlex.quote(str(settings))}"
        wanted = {settings: f"[profile.default.junit]\npath = {json.dumps(str(asked.file))}\n"}
        return Invocation(
            line, self.name, {}, asked.file, files=wanted, more=asked.passes, extended=True, written="through"
        )

    def place(self, classname: str, root: Path) -> str:
        """`calc` is a package's own tests, `calc::it` those of `tests/it.rs`, `calc::bin/it` a program's."""
        package, _, program = classname.partition("::")
        kind, _, named = program.rpartition("/")
        files = {"": "src/lib.rs" if not program else f"tests/{named}.rs", "bin": f"src/bin/{named}.rs"}
        return in_package(root, files.get(kind, "")) if package else ""

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return *program(case.file), "-E", " | ".join(f"test(={end})" for end in _ends(case.name))


def _ends(name: str) -> list[str]:
    """`calc::tests::adds` → `tests::adds`, `adds`: nothing says where the binary's name ends and the test's begins."""
    parts = name.split("::")
    return ["::".join(parts[at:]) for at in range(min(1, len(parts) - 1), len(parts))]
