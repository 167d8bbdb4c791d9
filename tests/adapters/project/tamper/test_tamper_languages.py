"""The same rules in JavaScript, Go, Rust, Java and shell."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import JS, NODE, edited

ADDS = "  assert.equal(add(1, 2), 3);"


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        (f"test('adds', () => {{\n{ADDS}\n}});\n", "", "gone: adds is gone"),
        ("test('adds'", "xtest('adds'", "skipped: adds is skipped or expected to fail"),
        ("test('adds'", "test.skip('adds'", "skipped: adds is skipped or expected to fail"),
        ("test('adds', ()", "test('adds', { todo: 'later' }, ()", "skipped: adds is skipped or expected to fail"),
        ("() => {\n  assert", "(t) => {\n  t.skip();\n  assert", "skipped: adds is skipped or expected to fail"),
        ("describe('p", "describe.skip('p", "skipped: takes zero, refuses are skipped or expected to fail"),
        ("it('refuses'", "it.only('refuses'", "skipped: calc.test.js: only some tests are run"),
        (ADDS, "  add(1, 2);", "hollow: adds checks nothing any more"),
        (ADDS, "  assert.ok(true);", "hollow: adds checks nothing any more"),
        (ADDS, "  assert.equal(3, 3);", "hollow: adds checks nothing any more"),
        (ADDS, f"  // {ADDS}", "hollow: adds checks nothing any more"),
        (ADDS, f"  return;\n{ADDS}", "hollow: adds checks nothing any more"),
        (ADDS, f"  if (false) {{\n{ADDS}\n  }}", "hollow: adds checks nothing any more"),
        (ADDS, f"  try {{\n{ADDS}\n  }} catch {{}}", "hollow: adds checks nothing any more"),
        (
            "test('adds'",
            "process.exit(0);\ntest('adds'",
            "command: calc.test.js: the process can end before a test fails",
        ),
        ("'node:assert/strict'", "'./quiet.js'", "hollow: calc.test.js loads ./quiet.js instead of assert"),
    ],
)
def test_javascript_tests_that_say_less_are_hits(hits: Judge, old: str, new: str, want: str) -> None:
    assert hits(NODE, {"calc.test.js": edited(JS, old, new)}, "npm test") == [want]


@pytest.mark.parametrize(
    "after",
    [
        {"calc.test.js": edited(JS, "'adds'", "'sums'")},
        {"calc.test.js": None, "test/calc.test.js": JS},
        {"calc.test.js": edited(JS, "test('adds'", "test('more', () => assert.ok(add(2, 2)));\ntest('adds'")},
        {"calc.test.js": edited(JS, ADDS, "  check(3);") + "\nfunction check(x) {\n  assert.equal(add(1, 2), x);\n}\n"},
        {"calc.test.js": edited(JS, ADDS, f"  // as everybody does: {{\n{ADDS}")},
        {"calc.test.js": edited(JS, "node:assert/strict", "assert")},
    ],
    ids=["renamed", "moved", "new", "helper", "comment", "the same library"],
)
def test_a_refactor_of_javascript_tests_passes(hits: Judge, after: dict[str, str | None]) -> None:
    assert hits(NODE, after, "npm test") == []


GO = """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Errorf("no %d", 3)
	}
}
"""
RUST = """\
pub fn add(a: u8) -> u8 { a }
#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(add(1), 1);
    }
}
"""
JAVA = """\
class CalcTest {
    @Test
    @DisplayName("adds (well)")
    void adds() throws Exception {
        assertEquals(3, Calc.add(1, 2));
    }
}
"""
SHELL = '#!/bin/sh\nset -e\nout=$(./calc add 1 2)\n[ "$out" = 3 ] || exit 1\n'
FILES = {"go": "calc_test.go", "rust": "src/lib.rs", "java": "src/test/java/CalcTest.java", "sh": "tests/test_add.sh"}
TEXTS = {"go": GO, "rust": RUST, "java": JAVA, "sh": SHELL}


@pytest.mark.parametrize(
    ("language", "old", "new", "want"),
    [
        ("go", "func TestAdd", "func testAdd", "gone: TestAdd is gone"),
        ("go", "\tif Add", "\tt.Skip()\n\tif Add", "skipped: TestAdd is skipped or expected to fail"),
        ("go", "package", "//go:build never\n\npackage", "skipped: TestAdd is skipped or expected to fail"),
        ("go", 't.Errorf("no %d", 3)', "_ = 3", "hollow: TestAdd checks nothing any more"),
        ("go", "\tif Add", "\treturn\n\tif Add", "hollow: TestAdd checks nothing any more"),
        (
            *("go", "func TestAdd", "func TestMain(m *testing.M) {\n\tos.Exit(0)\n}\n\nfunc TestAdd"),
            "command: calc_test.go: the process can end before a test fails",
        ),
        ("rust", "    #[test]\n", "", "gone: adds is gone"),
        ("rust", "#[test]", "#[test]\n    #[ignore]", "skipped: adds is skipped or expected to fail"),
        ("rust", "assert_eq!(add(1), 1);", "assert!(true);", "hollow: adds checks nothing any more"),
        ("java", "    @Test\n", "", "gone: adds is gone"),
        ("java", "@Test\n", "@Test\n    @Disabled\n", "skipped: adds is skipped or expected to fail"),
        ("java", "class", "@Disabled\nclass", "skipped: adds is skipped or expected to fail"),
        ("java", "assertEquals(3, Calc.add(1, 2));", "assertTrue(true);", "hollow: adds checks nothing any more"),
        ("sh", '[ "$out" = 3 ] || exit 1', "echo ok", "hollow: test_add.sh checks nothing for certain any more"),
        ("sh", "out=", "exit 0\nout=", "hollow: test_add.sh checks nothing any more"),
    ],
)
def test_tests_in_other_languages_that_say_less_are_hits(
    hits: Judge, language: str, old: str, new: str, want: str
) -> None:
    path, text = FILES[language], TEXTS[language]
    assert hits({path: text}, {path: edited(text, old, new)}, "run") == [want]


@pytest.mark.parametrize(
    ("language", "old", "new"),
    [
        ("go", "TestAdd", "TestAddition"),
        ("go", "func TestAdd", "func TestMain(m *testing.M) {\n\tos.Exit(m.Run())\n}\n\nfunc TestAdd"),
        ("rust", "{ a }", "{ a + 0 }"),
        ("java", "void adds", "void sums"),
        ("sh", "[ ", '[ -n "$out" ] || exit 1\n[ '),
    ],
)
def test_refactors_in_other_languages_pass(hits: Judge, language: str, old: str, new: str) -> None:
    path, text = FILES[language], TEXTS[language]
    assert hits({path: text}, {path: edited(text, old, new)}, "run") == []


def test_a_shell_test_may_move_with_the_recipe_that_names_it(hits: Judge) -> None:
    before = {"tests/test_add.sh": SHELL, "Makefile": "test:\n\tsh tests/test_add.sh\n"}
    after = {"tests/test_add.sh": None, "tests/test_sum.sh": SHELL, "Makefile": "test:\n\tsh tests/test_sum.sh\n"}
    assert hits(before, after, "make test") == []
    assert hits(before, {"tests/test_add.sh": None, "Makefile": "test:\n\ttrue\n"}, "make test")


@pytest.mark.parametrize(("begins", "hollow"), [("", True), ("set -e\n", False)])
def test_a_command_checks_something_in_a_shell_function_only_where_its_failure_ends_it(
    hits: Judge, begins: str, hollow: bool
) -> None:
    before = begins + 'test_add() {\n  out=$(add 1 2)\n  [ "$out" = 3 ] || return 1\n}\ntest_add\n'
    after = begins + "test_add() {\n  add 1 2\n  echo ok\n}\ntest_add\n"
    makefile = {"Makefile": "test:\n\tsh tests/test_add.sh\n"}
    found = hits({"tests/test_add.sh": before, **makefile}, {"tests/test_add.sh": after}, "make test")
    assert ("hollow: test_add checks nothing any more" in found) is hollow, found
