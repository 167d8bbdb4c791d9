"""cargo test: its lines are read, one a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.libtest import manifests
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner
from perdure.adapters.checks.runners.rust import INSIDE, planted, program
from perdure.adapters.system.reading import read, read_toml
from perdure.models.report import TestCase

_TEST = re.compile(r"(?<![\w./-])cargo\s+(?:test|t)(?=\s|$)")
_OTHERWISE = re.compile(
    r"[>|]|\s(--no-run|--list|--no-?capture|-q|--quiet|--format|--message-format|--logfile|--bench|-Z)(?=[\s=]|$)"
)
"""Options that change what it prints."""


class Cargo(Runner):
    name = "cargo"
    yields = True

    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})
    inside = INSIDE

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

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

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
