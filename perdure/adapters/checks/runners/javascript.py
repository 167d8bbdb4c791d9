"""Jest and Vitest; canaries in JavaScript and TypeScript: where one can stand first, every form of `expect`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import (
    Canaries,
    Invocation,
    Named,
    ReportedCommand,
    Runner,
    escaped,
    last_part,
)
from perdure.adapters.checks.runners.javascript_settings import jest, vitest
from perdure.adapters.checks.runners.leads import There
from perdure.models.report import TestCase

_HEAD = re.compile(r"(#!.*\n)?(\s*/\*[\s\S]*?\*/)?(\s*['\"]use strict['\"];?)?")
"""The parts of a file that count only at its beginning: the interpreter, settings in its first comment, strictness."""

_EXPECT = """\
  const fails = [
    () => E(1).toBe(2), () => E(1).not.toBe(1), () => E([1]).toEqual([2]), () => E([1]).not.toEqual([1]),
    () => E([1]).toStrictEqual([2]), () => E(0).toBeTruthy(), () => E(1).toBeFalsy(), () => E(1).toBeNull(),
    () => E(1).toBeUndefined(), () => E(undefined).toBeDefined(), () => E([]).toContain(1),
    () => E([]).toContainEqual(1), () => E([]).toHaveLength(1), () => E('a').toMatch(/b/),
    () => E({}).toMatchObject({ a: 1 }), () => E({}).toHaveProperty('a'), () => E(() => {}).toThrow(),
    () => E(1).toBeGreaterThan(2), () => E(2).toBeLessThan(1), () => E(1).toBeCloseTo(2),
    () => E(1).toBeInstanceOf(String), () => E(Promise.resolve(1)).resolves.toBe(2),
    () => E(Promise.resolve(1)).rejects.toThrow(),
  ];
"""

ALL_FAIL = """\
  for (const one of fails) {
    let failed = false;
    try { await one(); } catch { failed = true; }
    if (!failed) return;
  }
  throw new Error('x');
"""


_CHAI = (
    "((e) => e ? [e, Object.getPrototypeOf(e(1))].map(Object.getOwnPropertyDescriptors) : [])"
    "(globalThis[Symbol.for('expect-global')])"
)
_REPLACED = (
    "Object.keys(one).some((key) => one[key].value !== now[at][key]?.value || one[key].get !== now[at][key]?.get)"
)
_STATE = "globalThis[Symbol.for('$$jest-matchers-object')]"
_MATCHERS = f"{_STATE}?.matchers"


_MODULES = ("js", "cjs", "mjs", "ts", "cts", "mts")
_BABEL = [f"{name}.{end}" for name in (".babelrc", "babel.config") for end in (*_MODULES, "json")]
"""Settings by which tests are compiled along with the product; nothing else that jest loads has such a name."""

_SAME = "[Object.is, Error[Symbol.hasInstance], %s?.customEqualityTesters?.length]"
"""Expressions that decide whether two values are equal, beside matchers."""


def expecting(name: str, load: str, test: str, expect: str) -> str:
    """A test of this name that always fails. `load`: a statement before it; `test`, `expect`: how they are called."""
    return f"{load}\n{test}('{name}', async () => {{\n{_EXPECT.replace('E(', f'{expect}(')}{ALL_FAIL}}});"


def planted(
    files: Mapping[str, str],
    token: str,
    ending: str,
    module: str,
    canary: Callable[[str, str, str], str],
    intact: Callable[[str, str, str], tuple[str, str]] = lambda name, path, text: ("", ""),
    end: str = "",
) -> Canaries:
    """In each file of such a name, first and last, and at the end of each test of it.

    module  what its tests are imported from
    canary  makes one from its name, the file's path and its text
    intact  as canary, in two parts: what remembers at the beginning what it uses, and a test that fails as long as
            that is what is still there
    end     see Canaries.ends; empty: not known of this runner
    """
    planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if re.search(ending, path) is None:
            continue
        first, last = f"{token}{number}a", f"{token}{number}z"
        imported = "@jest/globals" if module == "jest" and "@jest/globals" in text else module
        helper, own = failing.javascript(text, imported, token, end)
        bodies |= {failing.EVERY} if helper else set()
        found = _HEAD.match(own or text)
        at = found.end() if found else 0
        head, rest = (own or text)[:at], (own or text)[at:]
        typed = "// @ts-nocheck\n" if re.search(r"\.[cm]?tsx?$", path) else ""  # our lines are not the project's style
        kept, held = f"{token}{number}i", intact(f"{token}{number}i", path, text)
        top = f"{typed}{held[0]}\n{helper}{canary(first, path, text)}"
        planting[path] = f"{head}\n{top}\n{rest}\n{canary(last, path, text)}\n{held[1]}\n"
        names |= {first: path, last: path} | ({kept: path} if held[1] else {})
    return Canaries(planting, names, bodies, ends={failing.EVERY: end} if end else {})


class Jest(Runner):
    name = "jest"
    early = r"\s(--bail|-b)(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"jest\.(config|setup)\.[^/]*"
    shared = frozenset({"package.json", ".npmrc", "tsconfig.json", "Makefile", ".swcrc", ".babelrc", *_BABEL})

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
        return jest(simple, there)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """By its globals: an import would have to be of the file's own kind of module."""

        def canary(name: str, path: str, text: str) -> str:
            return expecting(name, "", "globalThis.test", "globalThis.expect")

        def intact(name: str, path: str, text: str) -> tuple[str, str]:
            held = f"[globalThis.expect, globalThis.test, globalThis.it, ...{_SAME % _STATE}]"
            other = f"Object.keys(m{name}).some((key) => m{name}[key] !== {_MATCHERS}[key])"
            check = f"if ({held}.some((one, at) => one !== k{name}[at]) || {other}) return;"
            failing = f"globalThis.test('{name}', () => {{ {check} throw new Error('x'); }});"
            return f"const k{name} = {held}, m{name} = {{ ...{_MATCHERS} }};", failing

        return planted(files, token, r"\.[cm]?[jt]sx?$", "jest", canary, intact)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-t", f"(^| ){escaped(last_part(case))}$"


class Vitest(Runner):
    name = "vitest"
    early = r"\s--bail(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"vitest\.(config|setup|workspace)\.[^/]*"
    shared = frozenset(
        {"package.json", ".npmrc", "tsconfig.json", "Makefile", *(f"vite.config.{end}" for end in _MODULES)}
    )
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
        return vitest(simple, there)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        def canary(name: str, path: str, text: str) -> str:
            test, expect = f"t{name}", f"e{name}"
            return expecting(name, f"import {{ test as {test}, expect as {expect} }} from 'vitest';", test, expect)

        def intact(name: str, path: str, text: str) -> tuple[str, str]:
            """Its import stands first and runs first, and a URL of this kind brings its own text."""
            there = f"[...{_CHAI}, Object.getOwnPropertyDescriptors({_SAME % _STATE})]"
            kept = f"import k{name} from 'data:text/javascript,{quote(f'export default {there};')}';"
            check = f"const now = {there}; if (k{name}.some((one, at) => {_REPLACED})) return;"
            failing = f"i{name}('{name}', () => {{ {check} throw new Error('x'); }});"
            return kept, f"import {{ test as i{name} }} from 'vitest';\n{failing}"

        return planted(files, token, r"\.[cm]?[jt]sx?$", "vitest", canary, intact)

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        return "-t", f"(^| ){escaped(last_part(case).replace(' > ', ' '))}$"
