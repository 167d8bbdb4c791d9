"""Gradle: it writes reports by itself, inside the tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.checks.runners.base import Canaries, Invocation, ReportedCommand, Runner, group_and_method
from perdure.adapters.checks.runners.java import planted, source
from perdure.models.report import TestCase


class Gradle(Runner):
    name = "gradle"

    tests = r"(?:.*/)?src/(test|\w+Test)/.*"
    shared = frozenset(
        {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties"}
    )

    def runs(self, program: str, rest: list[str]) -> bool:
        tasks = (re.fullmatch(r"(.*:)?(\w*[tT]est|check|build)", word) for word in rest)
        return program in ("gradle", "gradlew") and any(tasks)

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None:
            return None
        line = f"{asked.command} --continue"
        return Invocation(line, self.name, {}, None, ("build/test-results/*",), more=asked.passes, extended=True)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        return planted(files, token)

    def place(self, classname: str, root: Path) -> str:
        return source(classname, root)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        group, method = group_and_method(case)
        return "--tests", f"{group}.{method}"
