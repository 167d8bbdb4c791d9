"""The runner `node --test`, made to write its report through NODE_OPTIONS; the test side that its commands name; and
its canaries (tests that must fail). It takes options only in front of file names, which decides how one test is
selected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from perdure.adapters.checks.globs import expand_alternatives, path_regex
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    own_name,
    quote_for_node,
    translate_patterns,
)
from perdure.adapters.checks.runners.command_trace import (
    CommandDirectory,
    package_script_name,
    package_scripts,
)
from perdure.adapters.checks.runners.javascript import ALL_FAIL, plant_javascript_canaries, throw_replaced
from perdure.adapters.checks.runners.runner_table import TableRunner, reporter_source
from perdure.adapters.system.command_lines import split_at_word, split_commands, unwrap_command
from perdure.models.checks.report import TestCase


class Node(Runner):
    """node's own test runner, `node --test`."""

    name = "node"

    tests = (
        r"(?:.*/)?[^/]*[._-]test\.[cm]?[jt]s|(?:.*/)?test(-[^/]*)?\.[cm]?[jt]s|(?:.*/)?test/(?:.*/)?[^/]*\.[cm]?[jt]s"
    )
    roots = frozenset({"test", "tests", "__tests__", "__snapshots__"})
    shared = frozenset({"package.json", ".npmrc", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "node" and "--test" in rest

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how node is run with the reporter of reporters/node.js beside the readable one, by NODE_OPTIONS.

        None where the command chooses a reporter itself, or the path has a backslash, which node imports from nowhere.
        """
        if "--test-reporter" in request.command or "\\" in str(request.file):
            return None
        reporter = request.file.with_name("reporter.mjs")
        options = (
            f"--test-reporter={reporter.as_uri()} --test-reporter-destination={quote_for_node(request.file)} "
            "--test-reporter=spec --test-reporter-destination=stdout"
        )
        separator = request.separator if _takes_options(request.command, request.tree) else None
        return Invocation(
            request.command,
            self.name,
            request.env_with_options("NODE_OPTIONS", options),
            request.file,
            files={reporter: reporter_source("node.js")},
            separator=separator,
            writing="through",
        )

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        """Return the test side that commands name: patterns behind `--test`, and existing files that `--import`,
        `--require` and the like load first."""
        arguments = [word for arguments in commands if self.runs(arguments[0], arguments[1:]) for word in arguments[1:]]
        loaded = [
            word.partition("=")[2] or following
            for word, following in zip(arguments, [*arguments[1:], ""], strict=True)
            if re.match(r"(-r|--import|--require|--loader|--experimental-loader|--env-file)(=|$)", word)
        ]
        loaded_paths = [word.removeprefix("./") for word in loaded]
        side = translate_patterns(
            [word for word in arguments if "*" in word and word[0] != "-"],
            lambda word: [path_regex(alternative) for alternative in expand_alternatives(word)],
        )
        return side + ConfiguredTestSide(files=tuple(word for word in loaded_paths if word in directory.paths))

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for JavaScript files, written as each file is, as an ECMAScript module or for CommonJS:
        failing tests first and last, its own tests made to fail, and a test that fails as long as nobody has replaced
        node:assert."""

        def make_canary(name: str, path: str, text: str) -> str:
            return _node_canary(name, _is_module(path, text), "node:test")

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            if _is_module(path, text):  # what is imported first runs first, and a URL of this kind brings its own text
                record = f"import k{name} from '{_KEPT}';"
                load = f"import {{ test as i{name} }} from 'node:test'; {_LOADED.replace('A', f'n{name}')}"
                current, test = _NOW.replace("A", f"n{name}"), f"i{name}"
            else:
                record = f"const k{name} = [{_REQUIRED}].map((one) => ({{ ...one }}));"
                load, current, test = "", _REQUIRED, "require('node:test')"
            check = f"const now = [{current}]; if (k{name}.some((one, at) => {_OTHER})) return;"
            return record, f"{load}\n{test}('{name}', () => {{ {check} {throw_replaced(text)} }});"

        return plant_javascript_canaries(files, token, r"\.[cm]?js$", "node:test", make_canary, make_check)

    def selection_arguments(self, *cases: TestCase) -> tuple[str, ...]:
        """Return `--test-name-pattern` for the tests' own titles, which node compares without the suites' titles; any
        character stands for one that means something to it. Other tests may have these titles, too."""
        titles = list[str]()
        for case in cases:
            parts = re.sub(r"[^A-Za-z0-9_> ]", ".", own_name(case)).split(" > ")
            titles += [" > ".join(parts[number:]).replace(" ", ".") for number in range(len(parts))]
        pattern = f"({'|'.join(dict.fromkeys(titles))})" if len(titles) > 1 else titles[0]
        return (f"--test-name-pattern=^{pattern}$",)

    def narrow_to_tests(
        self, call: Invocation, command: str, cases: Sequence[TestCase], env: Mapping[str, str]
    ) -> Invocation | None:
        """Return the invocation for these tests, its option appended or put behind `--test`; None where arguments
        cannot be appended and `--test` is not on the line exactly once."""
        if call.separator is not None:
            return super().narrow_to_tests(call, command, cases, env)
        return replace(call, script=narrowed) if (narrowed := self._narrow_command(command, *cases)) else None

    def reproduction_command(self, call: Invocation, command: str, case: TestCase) -> str:
        """Return the command that a person types to run one test, its option appended or put behind `--test`; empty
        where neither is possible."""
        if call.separator is not None:
            return super().reproduction_command(call, command, case)
        return self._narrow_command(command, case)

    def _narrow_command(self, command: str, *cases: TestCase) -> str:
        """Return the command with the option for these tests behind `--test`; empty where that is not on the line
        exactly once.

        Node takes options only in front of file names, and this one in no variable.
        """
        option = shlex.join(self.selection_arguments(*cases))
        narrowed, changed = re.subn(r"(?<=\s)--test(?=\s|$)", lambda _: f"--test {option}", command)
        return narrowed if changed == 1 else ""


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


def _is_module(path: str, text: str) -> bool:
    """Return whether a file is written as an ECMAScript module."""
    return path.endswith(".mjs") or re.search(r"^\s{0,40}(import|export)\b", text, re.MULTILINE) is not None


def _node_canary(name: str, is_module: bool, runner: str) -> str:
    """Return the source of a test of this name that fails as long as every form of node's assertions fails when it
    must. `runner`: the module of the test function, or `mocha`."""
    test, check = f"t{name}", f"a{name}"
    body = _FORMS.replace("A.", f"{check}.").replace("A(", f"{check}(")
    names = {check: "assert"} if runner == "mocha" else {test: runner, check: "assert"}
    if is_module:
        load = " ".join(f"import {alias} from '{module}';" for alias, module in names.items())
    else:
        load = " ".join(f"const {alias} = require('{module}');" for alias, module in names.items())
    test = _MOCHA_TEST if runner == "mocha" else test
    return f"{load}\n{test}('{name}', async () => {{\n{body}{ALL_FAIL}}});"


_CALLS_MOCHA = re.compile(r"\b(?:it|test|specify|describe|context|suite)\s{0,9}[.(]")
_MOCHA_TEST = "(globalThis.it ?? globalThis.test ?? (() => {}))"
"""Mocha's test function; helpers may be loaded before it is there."""


class Mocha(TableRunner):
    """Mocha."""

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for JavaScript files, written as each file is: failing tests first and last, its own
        tests made to fail, and one that says what has been replaced in node's modules."""

        def make_canary(name: str, path: str, text: str) -> str:
            return _node_canary(name, _is_module(path, text), "mocha")

        def make_check(name: str, path: str, text: str) -> tuple[str, str]:
            return "", f";{_MOCHA_TEST}('{name}', () => {{ {throw_replaced(text)} }});"

        suites = {path: text for path, text in files.items() if _CALLS_MOCHA.search(text)}
        planted = plant_javascript_canaries(suites, token, r"\.[cm]?[jt]sx?$", "mocha", make_canary, make_check)
        return replace(planted, files={**files, **planted.files})  # helpers and data stay as they are, and need none


def _takes_options(command: str, tree: Path) -> bool:
    """Return whether options that npm and the like append reach node as options: the command runs a package script
    whose last command has nothing but options behind `--test`. Behind a file's name they would not."""
    commands = split_commands(command)
    argv = unwrap_command(commands[-1]) if commands else []
    script_name = package_script_name(Path(argv[0]).name, argv[1:]) if argv else ""
    script_commands = split_commands(package_scripts(tree).get(script_name, ""))
    return bool(script_commands) and all(
        word.startswith("-") for word in split_at_word(script_commands[-1], "--test")[2]
    )
