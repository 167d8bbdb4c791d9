"""jest: asked by arguments where jest-junit is installed."""

from __future__ import annotations

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
from perdure.adapters.checks.runners.javascript_settings import jest
from perdure.adapters.checks.runners.leads import There
from perdure.models.report import TestCase


class Jest(Runner):
    name = "jest"
    early = r"\s(--bail|-b)(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"jest\.(config|setup)\.[^/]*"
    shared = frozenset({"package.json", ".npmrc", "tsconfig.json", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "jest"

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if asked.passes is None or "--reporters" in asked.command:
            return None
        if not (asked.installed / "node_modules" / "jest-junit").is_dir():
            return None
        variables = {
            "JEST_JUNIT_OUTPUT_FILE": str(asked.file),
            "JEST_JUNIT_ADD_FILE_ATTRIBUTE": "true",
            "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS": "true",  # else a file that does not load is absent
            "JEST_JUNIT_CLASSNAME": "{filepath}",
            "JEST_JUNIT_TITLE": "{title}",
        }
        line = f"{asked.command}{asked.passes} --ci --reporters=default --reporters=jest-junit"
        return Invocation(line, self.name, variables, asked.file, more=asked.passes, extended=True, written="through")

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        return jest(there)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """By its globals: an import would have to be of the file's own kind of module."""

        def canary(name: str, path: str, text: str) -> str:
            return expecting(name, "", "globalThis.test", "globalThis.expect")

        def intact(name: str, path: str, text: str) -> tuple[str, str]:
            held = "[globalThis.expect, globalThis.test, globalThis.it]"
            check = f"if ({held}.some((one, at) => one !== k{name}[at])) return;"
            failing = f"globalThis.test('{name}', () => {{ {check} throw new Error('x'); }});"
            return f"const k{name} = {held};", failing

        return planted(files, token, r"\.[cm]?[jt]sx?$", "jest", canary, intact)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-t", f"(^| ){escaped(last_part(case))}$"
