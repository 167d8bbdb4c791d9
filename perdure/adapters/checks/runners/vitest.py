"""vitest: asked by arguments, where they reach it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perdure.adapters.checks.runners.base import (
    Canaries,
    Invocation,
    Named,
    ReportedCommand,
    Runner,
    escaped,
    last_part,
)
from perdure.adapters.checks.runners.javascript import expecting, planted
from perdure.adapters.checks.runners.javascript_settings import vitest
from perdure.adapters.checks.runners.leads import There
from perdure.models.report import TestCase


class Vitest(Runner):
    name = "vitest"
    early = r"\s--bail(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"vitest\.(config|setup|workspace)\.[^/]*"
    shared = frozenset({"package.json", ".npmrc", "tsconfig.json", "Makefile", "vite.config.ts", "vite.config.js"})
    inside = r"\bimport\.meta\.vitest\b"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "vitest" and "watch" not in rest[:1]

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None or re.search(r"--reporter|--outputFile", asked.command):
            return None
        options = f"--reporter=default --reporter=junit --outputFile.junit={asked.quoted}"
        line = f"{asked.command}{asked.passes} {options}"
        return Invocation(line, self.name, {}, asked.file, more=asked.passes, extended=True, written="once")

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        return vitest(there)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        def canary(name: str, path: str, text: str) -> str:
            test, expect = f"t{name}", f"e{name}"
            return expecting(name, f"import {{ test as {test}, expect as {expect} }} from 'vitest';", test, expect)

        return planted(files, token, r"\.[cm]?[jt]sx?$", "vitest", canary)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-t", f"(^| ){escaped(last_part(case).replace(' > ', ' '))}$"
