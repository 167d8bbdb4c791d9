"""node:test: asked through NODE_OPTIONS; options only in front of file names."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from perdure.adapters.checks.findings.globs import alternatives, exactly
from perdure.adapters.checks.runners import blind, failing
from perdure.adapters.checks.runners.base import (
    Canaries,
    Invocation,
    Named,
    ReportedCommand,
    Runner,
    bounded,
    last_part,
)
from perdure.adapters.checks.runners.javascript import ALL_FAIL, planted
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.checks.runners.words import around, package_scripts, parts, script, unwrapped
from perdure.models.report import TestCase


class Node(Runner):
    name = "node"

    tests = (
        r"(?:.*/)?[^/]*[._-]test\.[cm]?[jt]s|(?:.*/)?test(-[^/]*)?\.[cm]?[jt]s|(?:.*/)?test/(?:.*/)?[^/]*\.[cm]?[jt]s"
    )
    looking = r"\.stack\b|(prepare|capture)StackTrace|getCallSites|async_hooks|getTestContext|NODE_TEST|node:test"
    roots = frozenset({"test", "tests", "__tests__", "__snapshots__"})
    shared = frozenset({"package.json", ".npmrc", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "node" and "--test" in rest

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if "--test-reporter" in asked.command or " " in str(asked.file):
            return None
        options = (
            f"--test-reporter=junit --test-reporter-destination={asked.file} "
            "--test-reporter=spec --test-reporter-destination=stdout"
        )
        more = asked.passes if _takes_options(asked.command, asked.tree) else None
        return Invocation(
            asked.command, self.name, asked.added("NODE_OPTIONS", options), asked.file, more=more, written="through"
        )

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        """Patterns behind `--test`, and what `--import` and `--require` load first."""
        words = [word for words in simple if self.runs(words[0], words[1:]) for word in words[1:]]
        loaded = [
            word.partition("=")[2] or behind
            for word, behind in zip(words, [*words[1:], ""], strict=True)
            if re.match(r"(-r|--import|--require|--loader|--experimental-loader|--env-file)(=|$)", word)
        ]
        plain = [word.removeprefix("./") for word in loaded]
        found = bounded(
            [word for word in words if "*" in word and word[0] != "-"],
            lambda word: [exactly(one) for one in alternatives(word)],
        )
        return found + Named(files=tuple(word for word in plain if word in there.paths))

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        def module(path: str, text: str) -> bool:
            return path.endswith(".mjs") or re.search(r"^\s{0,40}(import|export)\b", text, re.MULTILINE) is not None

        def canary(name: str, path: str, text: str) -> str:
            return _canary(name, module(path, text))

        def intact(name: str, path: str, text: str) -> tuple[str, str]:
            if module(path, text):  # what is imported first runs first, and a URL of this kind brings its own text
                kept = f"import k{name} from '{_KEPT}';"
                load = f"import {{ test as i{name} }} from 'node:test'; {_LOADED.replace('A', f'n{name}')}"
                now, test = _NOW.replace("A", f"n{name}"), f"i{name}"
            else:
                kept = f"const k{name} = [{_REQUIRED}].map((one) => ({{ ...one }}));"
                load, now, test = "", _REQUIRED, "require('node:test')"
            check = f"const now = [{now}]; if (k{name}.some((one, at) => {_OTHER})) return;"
            return kept, f"{load}\n{test}('{name}', () => {{ {check} throw new Error('x'); }});"

        return planted(files, token, r"\.[cm]?js$", "node:test", canary, intact, failing.end())

    def is_blind(self, path: str, before: str, after: str, own: frozenset[str]) -> bool:
        return blind.javascript(path, before, after)

    def left_out(self, text: str) -> str:
        return "// no test\n"

    def minds(self, path: str, text: str) -> bool:
        return _MINDS.search(text) is not None

    def said(self, message: str) -> str:
        found = _SAID.fullmatch(message)
        return found[1] if found else message

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        # node escapes what it writes twice, and not everything the same way in all releases
        plain = re.sub(r"[^A-Za-z0-9_]", ".", html.unescape(last_part(case)))
        return (f"--test-name-pattern=^{plain}$",)

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if call.more is not None:
            return super().alone(call, command, case, env)
        return replace(call, script=narrowed) if (narrowed := self._narrowed(command, case)) else None

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        if call.more is not None:
            return super().reproduction(call, command, case)
        return self._narrowed(command, case)

    def _narrowed(self, command: str, case: TestCase) -> str:
        """Node takes options only in front of file names, this one in no variable; empty where `--test` is not seen."""
        option = shlex.join(self.arguments(case))
        narrowed, changed = re.subn(r"(?<=\s)--test(?=\s|$)", lambda _: f"--test {option}", command)
        return narrowed if changed == 1 else ""


_MINDS = re.compile(r"\bafter|\bplan\b|\bprocess\b|exitCode|(?i:uncaught|unhandled)|\bgetTestContext\b|import \* as")
"""Hooks that run behind a test, which node does not hear of where the test has failed itself, and the like."""

_SAID = re.compile(
    r"\[?Error \[ERR_TEST_FAILURE\]: ([^\n]*?)(?:\] \{|(?:\n    at [^\n]*)+ \{)\s*code: 'ERR_TEST_FAILURE',"
    r"\s*failureType: 'testCodeFailure',\s*cause: [\s\S]*"
)

_FORMS = """\
  const fails = [
    () => A.equal(1, 2), () => A.notEqual(1, 1), () => A.strictEqual(1, 2), () => A.notStrictEqual(1, 1),
    () => A.deepEqual([1], [2]), () => A.deepStrictEqual([1], [2]), () => A.notDeepEqual([1], [1]),
    () => A.notDeepStrictEqual([1], [1]), () => A.ok(false, 'x'), () => A(false, 'x'), () => A.fail('x'),
    () => A.match('a', /b/), () => A.throws(() => {}), () => A.ifError(1), () => A.doesNotMatch('a', /a/),
    () => A.rejects(async () => {}), () => A.strict.equal(1, 2), () => A.strict.deepEqual([1], [2]),
  ];
"""
"""With messages: for one that is not given node parses the whole file again, which took longer than the tests."""


_REQUIRED = "require('node:assert'), require('node:assert').strict"
_LOADED = "import * as A from 'node:assert'; import * as AA from 'node:assert/strict';"
_NOW = "A, A.default, AA, AA.default"
_KEPT = "data:text/javascript," + quote(f"{_LOADED} export default [{_NOW}].map((one) => ({{ ...one }}));")
_OTHER = "Object.keys(one).some((key) => one[key] !== now[at][key])"


def _canary(name: str, module: bool) -> str:
    test, check = f"t{name}", f"a{name}"
    body = _FORMS.replace("A.", f"{check}.").replace("A(", f"{check}(")
    if module:
        load = f"import {test} from 'node:test'; import {check} from 'node:assert';"
    else:
        load = f"const {test} = require('node:test'), {check} = require('node:assert');"
    return f"{load}\n{test}('{name}', async () => {{\n{body}{ALL_FAIL}}});"


def _takes_options(command: str, tree: Path) -> bool:
    """True when arguments that npm and the like append reach node as options: behind a file's name they would not."""
    words = unwrapped(parts(command)[-1])
    named = script(Path(words[0]).name, words[1:]) if words else ""
    inner = parts(package_scripts(tree).get(named, ""))
    return bool(inner) and all(word.startswith("-") for word in around(inner[-1], "--test")[2])
