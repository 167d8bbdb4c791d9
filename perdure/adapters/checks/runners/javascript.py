"""The runners Jest and Vitest; the test side that their settings name, as far as it is written out there (nothing is
executed); and canaries (tests that must fail) in JavaScript and TypeScript, each of which tries every form of `expect`.
`node --test` has a module of its own and uses these canaries as well."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perdure.adapters.checks.globs import expand_alternatives, path_regex, search_regexes
from perdure.adapters.checks.runners.base import (
    EVERY,
    Canaries,
    ConfiguredTestSide,
    StartupModule,
    translate_patterns,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.checks.runners.runner_table import TableRunner
from perdure.adapters.system.bounded import parse_json
from perdure.models.limits import SIDE_PATTERNS, SIDE_READ_FILES

_STRING = r"""(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|`[^`\n]{0,300}`)"""
_JEST_FILES = (
    *("setupFiles", "setupFilesAfterEnv", "globalSetup", "globalTeardown", "testEnvironment", "runner", "testRunner"),
    *("testSequencer", "reporters", "resolver", "snapshotResolver", "snapshotSerializers", "preset", "transform"),
    *("testResultsProcessor", "moduleNameMapper", "dependencyExtractor"),
)
_VITEST_FILES = ("setupFiles", "globalSetup", "environment", "runner", "reporters", "snapshotSerializers", "sequencer")
_OTHERS = ("coverage", "optimizeDeps", "ssr", "build", "typecheck", "benchmark")
"""Blocks of a vite configuration that have an `include` of their own."""


def jest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that jest's settings name: `jest` in package.json, `jest.config.*`, and the files behind
    `--config`, with their `projects`.

    A `testRegex` that cannot be matched in bounded time is listed in `unread`.
    """
    side, in_package = ConfiguredTestSide(), _parse_object(directory.text("package.json")).get("jest")
    configs = [("", in_package if isinstance(in_package, dict) else {})]
    for path in [
        *_find_configs(directory, r"jest\.config\.(?:json|[cm]?[jt]s)"),
        *_chosen_configs(commands, directory),
    ]:
        text, keys = directory.text(path), ("testMatch", "testRegex", "roots", *_JEST_FILES)
        configs.append((path, _parse_object(text) if path.endswith("json") else _literals_by_key(text, keys)))
    for path, config in configs:
        for settings in [config, *(p for p in config.get("projects", ()) if isinstance(p, dict))]:
            side += _jest_config_side(settings, path, directory)
    return side


def _chosen_configs(commands: Sequence[list[str]], directory: CommandDirectory) -> list[str]:
    """Return the existing settings files that commands name with `--config` or `-c`, at most SIDE_READ_FILES."""
    pairs = [(word, following) for argv in commands for word, following in itertools.pairwise([*argv, ""])]
    candidates = [
        following if word in ("--config", "-c") else word.partition("--config=")[2] for word, following in pairs
    ]
    return [path for path in map(_relative_path, candidates) if path in directory.paths][:SIDE_READ_FILES]


def _jest_config_side(settings: dict[str, Any], path: str, directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that one configuration of jest names: its patterns, its roots, and files that it loads.

    path  the settings' own file; empty for package.json
    """
    roots = [root for root in map(_relative_path, _all_strings(settings.get("roots"))) if root not in ("", ".")]
    side = _pattern_side(map(_relative_path, _all_strings(settings.get("testMatch"))), roots)
    side += translate_patterns(map(_javascript_regex, _all_strings(settings.get("testRegex"))), search_regexes)
    return side + _existing_files(
        (word for key in _JEST_FILES for word in _all_strings(settings.get(key))), path, directory
    )


def vitest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that vitest's settings name: files named `vitest.config.*`, `vite.config.*` and the like,
    and those behind `--config`."""
    side = ConfiguredTestSide()
    usual_paths = _find_configs(directory, r"(?:vitest|vite)\.(?:config|workspace|projects)\.[cm]?[jt]s")
    for path in [*usual_paths, *_chosen_configs(commands, directory)]:
        text = _without_other_blocks(directory.text(path))
        settings = _literals_by_key(text, ("include", "dir", *_VITEST_FILES))
        roots = [root for root in map(_relative_path, _all_strings(settings.get("dir"))) if root not in ("", ".")]
        side += _pattern_side(map(_relative_path, _all_strings(settings.get("include"))), roots)
        side += _existing_files(
            (word for key in _VITEST_FILES for word in _all_strings(settings.get(key))), path, directory
        )
    return side


def _pattern_side(patterns: Iterable[str], roots: list[str]) -> ConfiguredTestSide:
    """Return the test side of these glob patterns, each below one of `roots` where there are any; those that begin with
    `!` are left out."""
    lookahead = f"(?={'|'.join(re.escape(root) + '/' for root in roots)})" if roots else ""
    positive = [pattern for pattern in patterns if not pattern.startswith("!")]
    return translate_patterns(
        positive, lambda pattern: [lookahead + path_regex(alternative) for alternative in expand_alternatives(pattern)]
    )


def _javascript_regex(pattern: str) -> str:
    """Return a regular expression as JavaScript has it, from one written as a string or between slashes."""
    in_slashes = re.fullmatch(r"/(.+)/", pattern)
    return in_slashes[1].replace("\\/", "/") if in_slashes else pattern.replace("\\\\", "\\")


def _existing_files(names: Iterable[str], settings_path: str, directory: CommandDirectory) -> ConfiguredTestSide:
    """Return a test side of those of these names that are files here, written with an ending or without, at the top or
    beside the settings."""
    endings = ("", ".js", ".ts", ".cjs", ".mjs", "/index.js", "/index.ts", "/jest-preset.js", "/jest-preset.json")
    parents = {"", settings_path.rpartition("/")[0]}
    stems = {posixpath.normpath(posixpath.join(top, _relative_path(word))) for word in names for top in parents}
    files = {path for place in stems for end in endings if (path := place + end) in directory.paths}
    return ConfiguredTestSide(files=tuple(sorted(files)))


def _find_configs(directory: CommandDirectory, pattern: str) -> list[str]:
    """Return the settings files at the top whose names match the pattern, sorted, at most SIDE_READ_FILES."""
    return sorted(path for path in directory.paths if "/" not in path and re.fullmatch(pattern, path))[:SIDE_READ_FILES]


def _relative_path(word: str) -> str:
    """Return a path of the settings relative to the root: without `<rootDir>`, a slash or `./` at its beginning."""
    return word.removeprefix("<rootDir>").lstrip("/").removeprefix("./")


def _all_strings(value: object) -> list[str]:
    """Return all strings in a value, however deep: `[["jest-junit", {}], "./reporter.js"]`, `{"^.+$":
    "./transform.js"}`."""
    pending, strings = [value], list[str]()
    while pending:
        item = pending.pop(0)
        if isinstance(item, str):
            strings.append(item)
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            pending += item.values()
    return strings


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a text as a JSON object; empty where it is none."""
    try:
        value = parse_json(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _literals_by_key(text: str, keys: Iterable[str]) -> dict[str, list[str]]:
    """Return key → strings that stand behind it in a source: one, or those of a list or object without another in it. A
    key that is not there is absent.

    A regular expression between slashes counts as a string, slashes included.
    """
    literals = dict[str, list[str]]()
    key_pattern = "|".join(keys)
    collection = rf"""[\[{{](?:{_STRING}|[^\]}}'"`]){{0,1000}}+"""
    assignment = rf"""\b({key_pattern})["']?\s{{0,80}}:\s{{0,80}}({_STRING}|/[^/\n]{{1,300}}/|{collection})"""
    for key, value in re.findall(assignment, text):
        values = [value] if value.startswith("/") else [word[1:-1] for word in re.findall(_STRING, value)]
        literals.setdefault(key, []).extend(values)
    return literals


def _without_other_blocks(text: str) -> str:
    """Return a vite configuration without the blocks whose `include` says nothing about tests (`coverage`, `build`
    …)."""
    for name in _OTHERS:
        head = re.search(rf"\b{name}\s{{0,80}}:\s{{0,80}}\{{", text)
        if head is None:
            continue
        depth, position = 1, head.end()
        while position < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            position += 1
        text = text[: head.start()] + text[position:]
    return text


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


_EQUALITY = "[Object.is, Error[Symbol.hasInstance], %s?.customEqualityTesters?.length]"
"""Expressions that decide whether two values are equal, beside matchers."""


def expect_canary(name: str, load: str, test: str, expect: str) -> str:
    """Return the source of a test of this name that fails as long as every form of `expect` fails when it must.

    load          a statement before it
    test, expect  how these functions are called there
    """
    return f"{load}\n{test}('{name}', async () => {{\n{_EXPECT.replace('E(', f'{expect}(')}{ALL_FAIL}}});"


_HELPER = """\
const F = (get, late) => {
  const fail = () => { throw new Error('x'); };
  const body = (one) => typeof one !== 'function' ? one : new Proxy(one, { apply(target, self, given) {
    if (given.length > late && typeof given[late] === 'function') {
      const done = given[late];
      const failed = Object.assign((error) => done(error ?? new Error('x')), done);
      return Reflect.apply(target, self, [...given.slice(0, late), failed]);
    }
    for (const inner of given) {
      if (typeof inner?.test !== 'function') continue;
      const real = inner.test.bind(inner);
      try { inner.test = (...more) => real(...more.map(body)); } catch {}
    }
    const found = Reflect.apply(target, self, given);
    return typeof found?.then === 'function' ? found.then(fail) : fail();
  } });
  const call = (real, owner = () => undefined) => new Proxy(function () {}, {
    apply(_, self, given) {
      const found = Reflect.apply(real(), owner(), given.map(body));
      return typeof found === 'function' ? call(() => found) : found;
    },
    get(_, key) {
      const found = real()[key];
      const tests = /^(test|it|only|each|concurrent|sequential|skipIf|runIf|for|extend)$/.test(String(key));
      return tests && typeof found === 'function' ? call(() => real()[key], real) : found;
    },
  });
  return call(get);
};
"""
"""A test function that fails at the end of each body. `get`: the real one, asked for at each use, as the file would;
`late`: the place of the callback that ends a test, where a runner gives it one."""

_LATE = {"node:test": 1, "@jest/globals": 0, "vitest": 99, "jest": 0, "mocha": 0}


def fail_javascript_tests(text: str, module: str, token: str) -> tuple[str, str]:
    """Make the tests of a JavaScript file fail at their ends, by replacing its `test` and `it`; return the lines to put
    in front of the file, and its new text.

    module  where its tests come from: `node:test`, `vitest`, `@jest/globals`, `jest` or `mocha`; but for the first,
            they may be globals that the file does not import
    token   makes the names of the added helpers unlike those of the file; it is in no message

    Both are empty where the file takes its tests in a way that is not read here, such as `import * as`, or defines all
    of these names itself.
    """
    callback_index, names = _LATE[module], dict[str, str]()
    alias_count = 0

    def new_alias(name: str) -> str:
        nonlocal alias_count
        alias_count += 1
        names[name] = f"r{token}{alias_count}"
        return names[name]

    def pop_declarations() -> list[str]:
        declarations = [f"{name} = f{token}(() => {real}, {callback_index})" for name, real in names.items()]
        names.clear()
        return declarations

    def rename_list(items: str, separator: str) -> str:
        return ", ".join(_rename_import(item, separator, new_alias) for item in items.split(",") if item.strip())

    def rewrite_import(match: re.Match[str]) -> str:
        default, listed = match[1], match[2]
        default_alias = new_alias(default) if default else ""
        clauses = [
            part
            for part in (default_alias, f"{{ {rename_list(listed, ' as ')} }}" if listed is not None else "")
            if part
        ]
        shadowing = "".join(f" const {declaration};" for declaration in pop_declarations())
        return f"import {', '.join(clauses)} from '{module}';{shadowing}"

    def rewrite_require(match: re.Match[str]) -> str:
        listed = new_alias(match[2]) if match[2] else f"{{ {rename_list(match[3], ': ')} }}"
        return ", ".join([f"{match[1]}{listed} = require('{module}'){match[4] or ''}", *pop_declarations()])

    quoted = rf"""["']{re.escape(module)}["']"""
    listing = r"""\{([^}"']{0,1000})\}"""
    import_head = (
        rf"^[ \t]{{0,40}}import\s{{1,9}}(?!type\b)(\w+)?\s{{0,9}},?\s{{0,9}}(?:{listing})?\s{{0,9}}from\s{{0,9}}"
    )
    declaration_head = rf"^([ \t]{{0,40}}(?:const|let|var)\s{{1,9}})(?:(\w+)|{listing})\s{{0,9}}=\s{{0,9}}"
    changed, import_count = re.subn(rf"{import_head}{quoted};?", rewrite_import, text, flags=re.MULTILINE)
    require_call = rf"require\({quoted}\)(\.(?:test|it)\b)?(?!\s{{0,99}}[.(\[])"
    changed, require_count = re.subn(rf"{declaration_head}{require_call}", rewrite_require, changed, flags=re.MULTILINE)
    if import_count or require_count:
        return _javascript_helper(token), changed
    if module == "node:test" or re.search(rf"""["'](?:{re.escape(module)}|@jest/globals|bun:test)["']""", text):
        return "", ""
    own_names = set(
        re.findall(r"\b(?:const|let|var|function|class)\s{1,9}(?:\{[^}]{0,300}\b)?(test|it)\b", text)[:SIDE_PATTERNS]
    )
    for name in sorted({"test", "it"} - own_names):
        names[name] = f"globalThis.{name}"
    return (
        (_javascript_helper(token) + "".join(f"const {import_count};\n" for import_count in pop_declarations()), text)
        if names
        else ("", "")
    )


def _rename_import(item: str, separator: str, new_alias: Callable[[str], str]) -> str:
    """Return an item of an import list, with its local name replaced by a new alias where it is a test function (`it as
    works`); any other as it is."""
    name, _, own = (
        part.strip() for part in item.strip().partition(separator.strip() if separator == ": " else separator)
    )
    tests = name in ("test", "it", "default")
    return f"{name}{separator}{new_alias(own or name)}" if tests else item.strip()


def _javascript_helper(token: str) -> str:
    """Return the source of the function `f<token>` that wraps a test function so that each of its tests fails."""
    return _HELPER.replace("const F =", f"const f{token} =", 1)


def plant_javascript_canaries(
    files: Mapping[str, str],
    token: str,
    path_pattern: str,
    module: str,
    make_canary: Callable[[str, str, str], str],
    make_check: Callable[[str, str, str], tuple[str, str]] = lambda name, path, text: ("", ""),
) -> Canaries:
    """Return canaries for each file with such a path: a failing test first and last in it, a check of the runner, its
    own tests made to fail.

    files         path → text
    token         random letters, part of each name that is added
    path_pattern  a regular expression that is searched for in the paths
    module        what its tests are imported from
    make_canary   makes a test that fails from its name, the file's path and its text
    make_check    makes two texts from the same: statements for the file's beginning that record what tests use, and a
                  test for its end that fails as long as all of that is unchanged; both empty for no check
    """
    planted_files, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
    for number, (path, text) in enumerate(sorted(files.items())):
        if re.search(path_pattern, path) is None:
            continue
        first, last = f"{token}{number}a", f"{token}{number}z"
        imported_from = "@jest/globals" if module == "jest" and "@jest/globals" in text else module
        helper, changed = fail_javascript_tests(text, imported_from, token)
        bodies |= {EVERY} if helper else set()
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
    snapshot = StartupModule("node", Path(__file__).with_name("library_snapshot.js").read_text())
    return Canaries(planted_files, names, bodies, startup=snapshot if names else None)


def throw_replaced(text: str) -> str:
    """Return the statement of a canary that fails, and says what has been replaced in what a test file with this text
    uses."""
    modules = sorted(set(re.findall(rf"""["'](?:node:)?({_CORE_MODULES})["']""", text)))
    return (
        f"throw new Error('libraries: ' + (globalThis[Symbol.for('library snapshot')]?.({json.dumps(modules)}) ?? ''));"
    )


_CORE_MODULES = r"buffer|events|fs(?:/promises)?|os|path|stream|timers(?:/promises)?|url"


class Jest(TableRunner):
    """Jest."""

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return jest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for JavaScript and TypeScript files: failing tests first and last, its own tests made to
        fail, and a test that fails as long as nobody has replaced jest's functions or matchers.

        They use jest's globals, for an import would have to be of the file's own kind of module.
        """

        def make_canary(name: str, path: str, text: str) -> str:
            return expect_canary(name, "", "globalThis.test", "globalThis.expect")

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            expressions = f"[globalThis.expect, globalThis.test, globalThis.it, ...{_EQUALITY % _STATE}]"
            matchers_changed = f"Object.keys(m{name}).some((key) => m{name}[key] !== {_MATCHERS}[key])"
            check = f"if ({expressions}.some((one, at) => one !== k{name}[at]) || {matchers_changed}) return;"
            test = f"globalThis.test('{name}', () => {{ {check} {throw_replaced(text)} }});"
            return f"const k{name} = {expressions}, m{name} = {{ ...{_MATCHERS} }};", test

        return plant_javascript_canaries(files, token, r"\.[cm]?[jt]sx?$", "jest", make_canary, make_check)


class Vitest(TableRunner):
    """Vitest."""

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return vitest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for JavaScript and TypeScript files, which import `test` and `expect` from vitest: failing
        tests first and last, its own tests made to fail, and a test that fails as long as nobody has replaced what
        matchers use."""

        def make_canary(name: str, path: str, text: str) -> str:
            test, expect = f"t{name}", f"e{name}"
            return expect_canary(name, f"import {{ test as {test}, expect as {expect} }} from 'vitest';", test, expect)

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            """Make the check of what tests and matchers use; its import stands first and runs first, and a URL of this
            kind brings its own text."""
            current = f"[...{_CHAI}, Object.getOwnPropertyDescriptors({_EQUALITY % _STATE})]"
            record = f"import k{name} from 'data:text/javascript,{quote(f'export default {current};')}';"
            check = f"const now = {current}; if (k{name}.some((one, at) => {_IS_REPLACED})) return;"
            failing_test = f"i{name}('{name}', () => {{ {check} {throw_replaced(text)} }});"
            return record, f"import {{ test as i{name} }} from 'vitest';\n{failing_test}"

        return plant_javascript_canaries(files, token, r"\.[cm]?[jt]sx?$", "vitest", make_canary, make_check)
