"""Canaries: test files in which each test fails at its end, beside all that honest tests do."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.checks.junit import read_junit
from perdure.adapters.checks.runners.base import EVERY, Invocation, Runner, RunPlace, case_identifier
from perdure.adapters.checks.runners.go import fail_go_tests
from perdure.adapters.checks.runners.java import plant_java_canaries
from perdure.adapters.checks.runners.javascript import fail_javascript_tests
from perdure.adapters.checks.runners.node import Node
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.runners.python import Unittest, plant_python_canaries, python_fail_helper
from perdure.adapters.checks.runners.rust import plant_rust_canaries as in_rust
from tests.needs import require

PYTHON = """\
# -*- coding: utf-8 -*-
'''What stands first.'''
from __future__ import annotations
import unittest
from unittest import mock

TEXT = '''
def test_in_a_text(): pass
'''

class Case(unittest.TestCase):
    @mock.patch("os.getcwd")
    def test_method(self, getcwd):
        def test_inner():
            return 1
        return test_inner()

    async def test_late(self): pass

if True:
\tdef test_function(): return

def help(): return 1
"""


def test_each_test_of_a_python_file_fails_at_its_end_and_nothing_else_does() -> None:
    found = plant_python_canaries(PYTHON, "token", python_fail_helper("token") + "FIRST = 1", "LAST = 1")
    assert found is not None
    text = found.text
    assert found.own_names == {"test_method", "test_late", "test_function"}
    made: dict[str, Any] = {"__name__": "made"}
    exec(compile(text, "made.py", "exec"), made)
    assert made["__doc__"] == "What stands first."
    assert made["help"]() == made["FIRST"] == made["LAST"] == 1
    with pytest.raises(AssertionError):
        made["test_function"]()
    with pytest.raises(AssertionError):
        made["Case"]("test_method").test_method()
    with pytest.raises(AssertionError):
        asyncio.run(made["Case"]("test_late").test_late())
    result = unittest.TestResult()
    made["Case"]("test_method").run(result)
    assert len(result.failures) == 1


@pytest.mark.parametrize("text", ["def test_a(:\n", "a = '\x00'\n", "(" * 5_000, "\r\rdef test_a():\r\n\tpass\r"])
def test_a_python_file_that_cannot_be_read_takes_none_and_ends_of_lines_are_pythons(text: str) -> None:
    found = plant_python_canaries(text, "token", "", "")
    assert (found is None) == ("\r" not in text)
    assert found is None or found.own_names == {"test_a"}


def test_each_test_of_a_go_file_fails_at_its_end() -> None:
    text = (
        "package a\n\nfunc TestA(t *testing.T) {\n}\n\nfunc TestMain(m *testing.M) {\n}\n"
        "func Testing(t *testing.T) {}\n"
    )
    changed, names = fail_go_tests(text)
    assert names == {"TestA"}
    assert changed.count("defer") == 1
    assert 'func TestA(t *testing.T) { defer t.Error("x");' in changed


GO = """\
package a

import (
	"fmt"
	"testing"
)

func Example_one() {
	fmt.Println(1)
	// Output: 1
}

func Example_lines() {
	fmt.Println("{")
	fmt.Println(2)
	// Unordered output:
	// 2
	// {
}

func Example_withoutOutput() {
	panic("never run")
}

func FuzzNumber(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, number int) {})
}
"""


def test_go_s_examples_and_fuzz_tests_fail_when_go_runs_them(tmp_path: Path) -> None:
    require("go")
    changed, names = fail_go_tests(GO)
    assert names == {"Example_one", "Example_lines", "FuzzNumber"}
    (tmp_path / "go.mod").write_text("module example.org/a\n\ngo 1.19\n")
    for text, outcome in ((GO, "PASS"), (changed, "FAIL")):
        (tmp_path / "a_test.go").write_text(text)
        told = subprocess.run(["go", "test", "-v", "."], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert set(re.findall(rf"^--- {outcome}: (\w+)", told.stdout, re.MULTILINE)) == names, told


def test_each_test_of_a_rust_file_fails_at_its_end_whatever_it_is_decorated_with() -> None:
    text = (
        "//! Tests.\n#![allow(dead_code)]\n#[test]\n#[ignore]\nfn a() {\n}\n"
        '#[tokio::test(flavor = "x")]\npub async fn b() {}\nfn c() {}\n'
    )
    found = in_rust({"tests/a.rs": text, "tests/common/mod.rs": "pub fn a() {}\n"}, "token")
    assert found.failing_functions == {"a", "b"}
    assert list(found.files) == ["tests/a.rs"]
    assert found.files["tests/a.rs"].startswith("//! Tests.\n#![allow(dead_code)]\n")


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("const test = require('node:test');\n", "node:test"),
        ("const { describe, it: test } = require('node:test'), b = 1;\n", "node:test"),
        ("const test = require('node:test').it\n", "node:test"),
        ("import test, { describe } from 'node:test';\n", "node:test"),
        ("import type { A } from 'vitest';\nimport { vi, it as test } from 'vitest'\n", "vitest"),
        ("import { test } from '@jest/globals';\n", "@jest/globals"),
        ("// its globals\n", "jest"),
    ],
)
def test_the_test_function_of_a_javascript_file_is_another_one(text: str, module: str) -> None:
    helper, changed = fail_javascript_tests(text, module, "token")
    assert "test = ftoken(() => " in helper + changed


@pytest.mark.parametrize("text", ["import * as t from 'node:test';\n", "const t = load('node:test');\n", "test('a')\n"])
def test_what_is_taken_in_another_way_stays_as_it_is(text: str) -> None:
    assert fail_javascript_tests(text, "node:test", "token") == ("", "")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "func ExampleA() {\n" * 20_000,
        "import {" + " a," * 50_000,
        "const {" * 20_000,
        "#[test]\n" * 20_000,
        "import" + " " * 90_000,
    ],
)
def test_hostile_test_files_are_planted_in_bounded_time(text: str) -> None:
    for module in ("node:test", "vitest", "jest"):
        fail_javascript_tests(text, module, "token")
    in_rust({"tests/a.rs": text}, "token")
    fail_go_tests(text)


JS = """\
'use strict';
const t = require('node:test'), assert = require('node:assert');
const { describe, it } = require('node:test');
t.test('a', () => {});
t('late', (context, done) => { setTimeout(done, 1); });
t('outer', async (context) => { await context.test('inner', async () => {}); });
describe('many', () => {
  it('b', { timeout: 10_000 }, async () => assert.ok(true));
  it.skip('never', () => {});
  it.todo('later');
});
"""


@pytest.mark.timeout(60)
def test_each_test_that_node_runs_fails_at_its_end(tmp_path: Path) -> None:
    require("node")
    found = Node().make_canaries({"a.test.js": JS}, "token")
    assert found.failing_functions == {EVERY}
    (tmp_path / "a.test.js").write_text(found.files["a.test.js"])
    command = ["node", "--test", "--test-reporter=tap", "a.test.js"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False).stdout
    lines = [line.strip().partition(" - ") for line in said.splitlines() if "ok " in line]
    red = {name for head, _, name in lines if head.startswith("not ok")}
    assert red >= {*found.names, "a", "late", "inner", "outer", "b"}
    assert {name.partition(" #")[0] for head, _, name in lines if head.startswith("ok")} <= {"never", "later"}


JAVA = """\
package calc;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;

// class Other {
public class CalcTest {
    static final String BRACE = "\\"}";  // }

    @Test
    void adds() throws Exception {
        if (BRACE.isEmpty()) { return; }
        char quote = '}'; /* } */
    }
}
"""


def test_each_test_of_a_java_class_fails_at_its_end() -> None:
    found = plant_java_canaries(
        {"src/test/java/calc/CalcTest.java": JAVA, "src/test/java/calc/Help.java": "class Help {}"}, "t"
    )
    (text,) = found.files.values()
    assert (found.failing_functions, sorted(found.names)) == ({"adds"}, ["a0t0", "zzt0"])
    lines = text.splitlines()
    assert lines[7].startswith("public class CalcTest { @org.junit.jupiter.api.Test public void a0t")
    assert lines[11] == "    void adds() throws Exception { try {"
    assert lines[14] == '    } finally { if (true) throw new AssertionError("x"); } }'
    assert lines[15].endswith("}")
    assert "zzt" in lines[15]


@pytest.mark.parametrize(
    "text", ["/*" * 100_000, '"' + '\\\\"' * 100_000, "@Test " * 50_000, "class x " * 50_000, "{" * 200_000]
)
@pytest.mark.timeout(60)
def test_java_that_is_made_to_choke_on_is_read_in_bounded_time(text: str) -> None:
    plant_java_canaries({"A.java": f"import org.junit.Test;\n{text}"}, "t")


MADE_TO_FAIL = """\
import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_a(number):
    assert number


class TestB:
    def test_a(self):
        pass
"""


@pytest.mark.timeout(60)
def test_each_test_that_pytest_runs_fails_at_its_end_and_each_canary_by_itself(tmp_path: Path) -> None:
    found = Pytest().make_canaries({"test_a.py": MADE_TO_FAIL}, "token")
    (tmp_path / "test_a.py").write_text(found.files["test_a.py"])
    report = tmp_path / "report.xml"
    asked = [sys.executable, "-m", "pytest", "--strict-markers", "-o", "junit_family=xunit1", f"--junit-xml={report}"]
    subprocess.run(asked, cwd=tmp_path, capture_output=True, timeout=50, check=False)
    said = {
        case.name.removeprefix("test_a.py::"): case
        for case in read_junit(report, case_identifier(RunPlace(tmp_path, "", tmp_path)))
    }
    assert {case.outcome for case in said.values()} == {"failed"}
    assert all(re.search("assert 1 == 2|libraries: ", said[name].message) for name in found.names)
    assert {case.message for name, case in said.items() if name not in found.names} == {"x"}


COUNTS_COMPILED = """\
import collections, sys
compiled = collections.Counter()
sys.addaudithook(lambda event, given: compiled.update([given[1]] if event == 'compile' else []))
def pytest_unconfigure():
    print('compiled:', compiled['<canaries>'])
"""


def test_what_many_files_of_pytest_are_given_is_compiled_once_and_by_no_assertion_rewriter(tmp_path: Path) -> None:
    canaries = Pytest().make_canaries({f"test_{name}.py": MADE_TO_FAIL for name in "abcdef"}, "tok")
    own = len(list(ast.walk(ast.parse(MADE_TO_FAIL))))
    assert all(len(list(ast.walk(ast.parse(text)))) < own + 300 for text in canaries.files.values())
    assert canaries.startup is not None
    call = canaries.startup.add_to(Invocation(""), tmp_path, {})
    texts = {**call.files, **{tmp_path / path: text for path, text in canaries.files.items()}}
    for file, text in {**texts, tmp_path / "conftest.py": COUNTS_COMPILED}.items():
        file.write_text(text)
    argv, env = [sys.executable, "-m", "pytest", "-q", "--tb=line"], {**os.environ, **call.env}
    ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "39 failed" in ran.stdout, ran.stdout
    assert "compiled: 2" in ran.stdout  # in the last two there is more of it


HELPERS = """\
import functools

def common(self):
    self.x = 1

def decorated(real):
    @functools.wraps(real)
    def inner(self):
        return real(self)
    return inner

class Asserting:
    def assertFoo(self, x):
        self.assertTrue(x)
"""
HONEST = """\
import dataclasses
import unittest
from unittest import mock

from helpers import Asserting, common, decorated

@dataclasses.dataclass
class Thing:
    a: int = 1

class Base(unittest.TestCase):
    setUp = common

    def assertOwn(self, x):
        self.assertTrue(x)

class First(Asserting, Base):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.late = lambda self: 1

    @decorated
    def tearDown(self):
        self.longMessage = True

    def test_one(self):
        self.assertFoo(True)
        self.assertOwn(Thing() == Thing())
        with mock.patch.object(First, "assertOwn"), mock.patch("helpers.common"):
            self.assertOwn(False)

    @mock.patch("os.getcwd")
    def test_two(self, getcwd):
        self.assertEqual(self.x, 1)

class Late(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.y = 1

    async def test_it(self):
        self.assertEqual(self.y, 1)
"""


@pytest.mark.parametrize(
    ("runner", "command", "said"),
    [(Pytest(), "-m pytest -q --tb=line -p no:cacheprovider", "14 failed"), (Unittest(), "-m unittest", "failures=14")],
)
def test_all_are_red_beside_what_honest_tests_do_with_their_classes(
    tmp_path: Path, runner: Runner, command: str, said: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "helpers.py").write_text(HELPERS)
    canaries = runner.make_canaries({f"tests/test_{name}.py": HONEST for name in "ab"}, "tok")
    for path, text in canaries.files.items():
        (tmp_path / path).write_text(text)
    assert canaries.startup is not None
    call = canaries.startup.add_to(Invocation(""), tmp_path, {})
    for file, text in call.files.items():
        file.write_text(text)
    argv, env = [sys.executable, *command.split()], {**os.environ, **call.env}
    ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert said in ran.stdout + ran.stderr
    assert not re.search(r"libraries: [a-z]", ran.stdout + ran.stderr)
