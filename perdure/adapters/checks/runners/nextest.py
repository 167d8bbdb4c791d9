"""cargo nextest: asked by a settings file of its own (`cargo test` has no report)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.libtest import in_package
from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner
from perdure.adapters.checks.runners.rust import INSIDE, planted, program
from perdure.adapters.system.reading import read
from perdure.models.report import TestCase


class Nextest(Runner):
    name = "nextest"

    tests = r"(?:.*/)?tests/(?:.*/)?[^/]*\.rs"
    roots = frozenset({"tests"})
    settings = r"nextest\.toml"
    shared = frozenset({"Cargo.toml", "Cargo.lock", "Makefile"})
    inside = INSIDE

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

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

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
