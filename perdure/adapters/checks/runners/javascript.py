"""Jest and Vitest; canaries in JavaScript and TypeScript, each of which tries every form of `expect`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    escape_js_regex,
    own_name,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.checks.runners.javascript_settings import jest_test_side, vitest_test_side
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
_IS_REPLACED = (
    "Object.keys(one).some((key) => one[key].value !== now[at][key]?.value || one[key].get !== now[at][key]?.get)"
)
_STATE = "globalThis[Symbol.for('$$jest-matchers-object')]"
_MATCHERS = f"{_STATE}?.matchers"


_MODULES = ("js", "cjs", "mjs", "ts", "cts", "mts")
_BABEL = [f"{name}.{end}" for name in (".babelrc", "babel.config") for end in (*_MODULES, "json")]
"""Settings by which tests are compiled along with the product; nothing else that jest loads has such a name."""

_EQUALITY = "[Object.is, Error[Symbol.hasInstance], %s?.customEqualityTesters?.length]"
"""Expressions that decide whether two values are equal, beside matchers."""


def expect_canary(name: str, load: str, test: str, expect: str) -> str:
    """Return the source of a test of this name that fails as long as every form of `expect` fails when it must.

    load          a statement before it
    test, expect  how these functions are called there
    """
    return f"{load}\n{test}('{name}', async () => {{\n{_EXPECT.replace('E(', f'{expect}(')}{ALL_FAIL}}});"


def plant_javascript_canaries(
    files: Mapping[str, str],
    token: str,
    path_pattern: str,
    module: str,
    make_canary: Callable[[str, str, str], str],
    make_check: Callable[[str, str, str], tuple[str, str]] = lambda name, path, text: ("", ""),
    end_message: str = "",
) -> Canaries:
    """Return canaries for each file with such a path: a failing test first and last in it, a check of the runner, its
    own tests made to fail.

    files         path → text
    token         random letters, part of each name that is added
    path_pattern  a regular expression that is searched for in the paths
    module        what its tests are imported from
    make_canary   makes a test that fails from its name, the file's path and its text
    make_check    likewise in two parts: what records, at the beginning, what it uses, and a test that fails as
                  long as all of that is unchanged
    end_message   what a test says at its end (see Canaries.end_messages); empty: not known of this runner
    """
    planted_files, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if re.search(path_pattern, path) is None:
            continue
        first, last = f"{token}{number}a", f"{token}{number}z"
        imported_from = "@jest/globals" if module == "jest" and "@jest/globals" in text else module
        helper, changed = failing.fail_javascript_tests(text, imported_from, token, end_message)
        bodies |= {failing.EVERY} if helper else set()
        head_match = _HEAD.match(changed or text)
        offset = head_match.end() if head_match else 0
        head, rest = (changed or text)[:offset], (changed or text)[offset:]
        directive = (
            "// @ts-nocheck\n" if re.search(r"\.[cm]?tsx?$", path) else ""
        )  # our lines are not the project's style
        check_name, check = f"{token}{number}i", make_check(f"{token}{number}i", path, text)
        preamble = f"{directive}{check[0]}\n{helper}{make_canary(first, path, text)}"
        planted_files[path] = f"{head}\n{preamble}\n{rest}\n{make_canary(last, path, text)}\n{check[1]}\n"
        names |= {first: path, last: path} | ({check_name: path} if check[1] else {})
    return Canaries(planted_files, names, bodies, end_messages={failing.EVERY: end_message} if end_message else {})


class Jest(Runner):
    """Jest, which writes a report only where jest-junit is installed."""

    name = "jest"
    early_stop = r"\s(--bail|-b)(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"jest\.(config|setup)\.[^/]*"
    shared = frozenset({"package.json", ".npmrc", "tsconfig.json", "Makefile", ".swcrc", ".babelrc", *_BABEL})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "jest"

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how jest is run with jest-junit as one more reporter, which its variables tell where to write.

        None where arguments cannot be appended, the command chooses reporters itself, or jest-junit is not installed.
        """
        if request.separator is None or "--reporters" in request.command:
            return None
        if not (request.installed / "node_modules" / "jest-junit").is_dir():
            return None
        variables = {
            "JEST_JUNIT_OUTPUT_FILE": str(request.file),
            "JEST_JUNIT_ADD_FILE_ATTRIBUTE": "true",
            "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS": "true",  # else a file that does not load is absent
            "JEST_JUNIT_CLASSNAME": "{filepath}",
            "JEST_JUNIT_TITLE": "{title}",
        }
        line = f"{request.command}{request.separator} --ci --reporters=default --reporters=jest-junit"
        return Invocation(
            line, self.name, variables, request.file, separator=request.separator, has_arguments=True, writing="through"
        )

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return jest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries that use jest's globals, as an import would have to be of the file's own kind of module."""

        def make_canary(name: str, path: str, text: str) -> str:
            return expect_canary(name, "", "globalThis.test", "globalThis.expect")

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            expressions = f"[globalThis.expect, globalThis.test, globalThis.it, ...{_EQUALITY % _STATE}]"
            matchers_changed = f"Object.keys(m{name}).some((key) => m{name}[key] !== {_MATCHERS}[key])"
            check = f"if ({expressions}.some((one, at) => one !== k{name}[at]) || {matchers_changed}) return;"
            test = f"globalThis.test('{name}', () => {{ {check} throw new Error('x'); }});"
            return f"const k{name} = {expressions}, m{name} = {{ ...{_MATCHERS} }};", test

        return plant_javascript_canaries(files, token, r"\.[cm]?[jt]sx?$", "jest", make_canary, make_check)

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        """Return `-t` with a pattern that ends in the test's own name."""
        return "-t", f"(^| ){escape_js_regex(own_name(case))}$"


class Vitest(Runner):
    """Vitest."""

    name = "vitest"
    early_stop = r"\s--bail(?=[\s=]|$)"

    tests = r"(?:.*/)?[^/]*\.(test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/(?:.*/)?[^/]*\.[cm]?[jt]sx?"
    roots = frozenset({"__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec", "e2e"})
    settings = r"vitest\.(config|setup|workspace)\.[^/]*"
    shared = frozenset(
        {"package.json", ".npmrc", "tsconfig.json", "Makefile", *(f"vite.config.{end}" for end in _MODULES)}
    )
    inline_tests = r"\bimport\.meta\.vitest\b"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "vitest" and "watch" not in rest[:1]

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how vitest is run with its JUnit reporter beside the default one.

        None where arguments cannot be appended, or the command chooses a reporter or its output file itself.
        """
        if request.separator is None or re.search(r"--reporter|--outputFile", request.command):
            return None
        options = f"--reporter=default --reporter=junit --outputFile.junit={request.quoted_file}"
        line = f"{request.command}{request.separator} {options}"
        return Invocation(
            line, self.name, {}, request.file, separator=request.separator, has_arguments=True, writing="once"
        )

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return vitest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries that import their own `test` and `expect` from vitest."""

        def make_canary(name: str, path: str, text: str) -> str:
            test, expect = f"t{name}", f"e{name}"
            return expect_canary(name, f"import {{ test as {test}, expect as {expect} }} from 'vitest';", test, expect)

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            """Make the check of what tests and matchers use; its import stands first and runs first, and a URL of this
            kind brings its own text."""
            current = f"[...{_CHAI}, Object.getOwnPropertyDescriptors({_EQUALITY % _STATE})]"
            record = f"import k{name} from 'data:text/javascript,{quote(f'export default {current};')}';"
            check = f"const now = {current}; if (k{name}.some((one, at) => {_IS_REPLACED})) return;"
            failing_test = f"i{name}('{name}', () => {{ {check} throw new Error('x'); }});"
            return record, f"import {{ test as i{name} }} from 'vitest';\n{failing_test}"

        return plant_javascript_canaries(files, token, r"\.[cm]?[jt]sx?$", "vitest", make_canary, make_check)

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        """Return `-t` with a pattern that ends in the test's own name, its suites before it."""
        return "-t", f"(^| ){escape_js_regex(own_name(case).replace(' > ', ' '))}$"
