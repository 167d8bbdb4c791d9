"""Maven: surefire and failsafe write reports by themselves, inside the tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner, group_and_method
from perdure.adapters.checks.runners.java import planted, source
from perdure.models.report import TestCase

_TESTS = {"test", "package", "verify", "install", "integration-test", "surefire:test"}


class Maven(Runner):
    name = "maven"

    tests = r"(?:.*/)?src/(test|\w+Test)/.*"
    shared = frozenset({"pom.xml"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("mvn", "mvnw") and not _TESTS.isdisjoint(rest)

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None:
            return None
        line, left = f"{asked.command} --fail-at-end", ("target/surefire-reports", "target/failsafe-reports")
        return Invocation(line, self.name, {}, None, left, more=asked.passes, extended=True)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

    def place(self, classname: str, root: Path) -> str:
        return source(classname, root)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        group, method = group_and_method(case)
        return "-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={group}#{method}"
