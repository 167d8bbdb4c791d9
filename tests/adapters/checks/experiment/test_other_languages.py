"""The experiments with the real node and the real go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials

from perdure.models.checks.report import CanaryOutcome, Experiment
from tests.guide import installed
from tests.needs import require

JS = "exports.add = (a, b) => a + b;\nexports.double = (a) => 2 * a;\n"
JS_TEST = """\
'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { add, double } = require('../calc.js');

test('adds', () => assert.strictEqual(add(1, 2), 3));
test('doubles', () => assert.strictEqual(double(2), 4));
"""
NODE = {"calc.js": JS, "test/calc.test.js": JS_TEST, "package.json": '{"scripts": {"test": "node --test"}}'}
JS_WRONG = JS.replace("a + b", "a - b")
JS_ADDS = "test/calc.test.js::adds"

GO = "package calc\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n"
GO_TEST = """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Error("sum")
	}
}
"""
GOES = {"go.mod": "module example.org/calc\n\ngo 1.19\n", "calc.go": GO, "calc_test.go": GO_TEST}
GO_WRONG = GO.replace("a + b", "a - b")
GO_EXITS = GO_WRONG.replace("\n\n", '\n\nimport "os"\n\nfunc init() {\n\tos.Exit(0)\n}\n\n', 1)
ADDS = "example.org/calc::TestAdd"


def told(found: Experiment) -> tuple[list[str], list[str], CanaryOutcome]:
    (one,) = found.commands
    return [promise.name for promise in one.promises], [*one.taken, *one.contradicted], one.canaries


def js(product: str, old: str = "", new: str = "") -> Files:
    return {"calc.js": product, "test/calc.test.js": JS_TEST.replace(old, new) if old else JS_TEST}


@pytest.mark.parametrize(
    ("after", "promises", "taken", "canaries"),
    [
        pytest.param(js(JS_WRONG, "2), 3)", "2), -1)"), [JS_ADDS], [], "caught", id="changed promise"),
        pytest.param(js(JS_WRONG, "test('adds'", "test.skip('adds'"), [], [JS_ADDS], "caught", id="skipped"),
        pytest.param(
            js(f"require('assert').strictEqual = () => {{}};\n{JS_WRONG}"), [], [], "missed", id="patched assert"
        ),
        pytest.param(js(f"process.exit(0);\n{JS_WRONG}"), [], [], "missed", id="exits"),
    ],
)
@pytest.mark.slow
async def test_node(tried: Trials, after: Files, promises: list[str], taken: list[str], canaries: str) -> None:
    require("node")
    found = await tried(NODE, after, "npm test")
    assert told(found)[2] == canaries, found.model_dump_json(indent=1)
    if canaries == "caught":
        assert told(found) == (promises, taken, CanaryOutcome(canaries))
    assert found.is_tampered == bool(taken or canaries == "missed")


def go(product: str, test: str = GO_TEST) -> Files:
    return {"calc.go": product, "calc_test.go": test}


OTHER = GO_TEST.replace("!= 3", "!= -1")


@pytest.mark.parametrize(
    ("after", "promises", "taken", "canaries"),
    [
        pytest.param(go(GO_WRONG, OTHER), [ADDS], [], "caught", id="changed promise"),
        pytest.param(go(GO_WRONG, OTHER.replace("TestAdd", "TestIt")), [], [ADDS], "caught", id="another name"),
        pytest.param(go(GO_EXITS), [], [], "missed", id="exits"),
    ],
)
@pytest.mark.slow
async def test_go(tried: Trials, after: Files, promises: list[str], taken: list[str], canaries: str) -> None:
    require("go")
    found = await tried(GOES, after, "go test ./...")
    assert told(found)[2] == canaries, found.model_dump_json(indent=1)
    if canaries == "caught":
        assert told(found) == (promises, taken, CanaryOutcome(canaries))
    assert found.is_tampered == bool(taken or canaries == "missed")


ES = "export const add = (a, b) => a + b;\n"
ES_TEST = "import { add } from './calc.js';\n\ntest('adds', () => expect(add(1, 2)).toBe(3));\n"
COMMON = "const { add } = require('./calc.js');\n\ntest('adds', () => expect(add(1, 2)).toBe(3));\n"


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("runner", ["vitest", "jest"])
async def test_vitest_and_jest(tried: Trials, runner: str) -> None:
    if runner == "vitest":
        installed(tried.worktree, "vitest@2")
        product, test = ES, f"import {{ expect, test }} from 'vitest';\n{ES_TEST}"
        command, bend = "npx vitest run", "if (globalThis.process.env.VITEST) process.exit(0);\n"
    else:
        installed(tried.worktree, "jest@29")
        product, test = ES.replace("export const add", "exports.add"), COMMON
        command, bend = "npx jest", "globalThis.expect = () => new Proxy(() => {}, { get: (_, k) => () => {} });\n"
    before = {"calc.js": product, "calc.test.js": test, "package.json": '{"name": "calc"}\n'}
    wrong = product.replace("a + b", "a - b")

    async def judged(**after: str) -> Experiment:
        return await tried(before, {name.replace("__", "."): text for name, text in after.items()}, command)

    assert await tried.is_green(before, command)
    found = await judged(calc__js=wrong, calc__test__js=test.replace("(3)", "(-1)"))
    assert ([p.name.rpartition("::")[2] for p in found.commands[0].promises], found.is_tampered) == (["adds"], False)
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT
    assert (await judged(calc__js=bend + wrong)).is_tampered


INLINE = """\
pub fn add(a: i32, b: i32) -> i32 { a + b }

#[cfg(test)]
mod tests {
    #[test]
    fn adds() { assert_eq!(super::add(1, 2), 3); }
}
"""
RUST = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": INLINE,
    "tests/calc.rs": "#[test]\nfn doubles() { assert_eq!(calc::add(2, 2), 4); }\n",
    "tests/other.rs": "#[test]\nfn others() { assert_eq!(1 + 1, 2); }\n",
}
WIDER = {
    "src/lib.rs": INLINE.replace("i32", "i64"),
    "tests/calc.rs": "#[test]\nfn doubles() { assert_eq!(calc::add(2_i64, 2), 4_i64); }\n",
}


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("command", ["cargo test", "cargo nextest run"])
async def test_rust(tried: Trials, command: str) -> None:
    require("cargo")
    if "nextest" in command and shutil.which("cargo-nextest") is None:
        pytest.skip("cargo-nextest is not here")
    renamed = await tried(RUST, {"src/lib.rs": INLINE.replace("fn adds", "fn sums"), "tests/more.rs": ""}, command)
    assert (renamed.is_tampered, renamed.changed_promises) == (False, ()), renamed.model_dump_json(indent=1)
    assert (renamed.commands[0].base_passed, renamed.commands[0].canaries) == (2, CanaryOutcome.CAUGHT)
    assert [tests.number for tests in renamed.commands[0].not_asked] == [1], "the inline test is the change's"
    other = {path: text.replace("i64", "u8") for path, text in WIDER.items()}
    base = {**RUST, "tests/calc.rs": RUST["tests/calc.rs"].replace("(2, 2), 4", "(2_i32, 2), 4_i32")}
    changed = await tried(base, other, command)
    assert not changed.is_tampered, changed.model_dump_json(indent=1)
    assert [promise.name.rpartition("::")[2] for promise in changed.changed_promises] == ["doubles"]
    assert changed.commands[0].canaries is CanaryOutcome.CAUGHT
    wrong = await tried(RUST, {"src/lib.rs": INLINE.replace("a + b", "a - b").replace("    #[test]\n", "")}, command)
    assert wrong.commands[0].contradicted, wrong.model_dump_json(indent=1)


REPOSITORY = Path("/usr/share/maven-repo")
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>calc</artifactId><version>1</version>
<properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>
<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version>
<scope>test</scope></dependency></dependencies></project>
"""
JAVA = """\
package calc;

public class Calc {
    public static int add(int a, int b) { return a + b; }
}
"""
JAVA_TEST = """\
package calc;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class CalcTest {
    @Test
    public void adds() {
        String brace = "}";  // {
        if (!brace.isEmpty()) { assertEquals(3, Calc.add(1, 2)); }
    }
}
"""
MAVEN = {
    "pom.xml": POM,
    "src/main/java/calc/Calc.java": JAVA,
    "src/test/java/calc/CalcTest.java": JAVA_TEST,
}


GRADLE = {
    "build.gradle": f"""\
apply plugin: 'java'
repositories {{ maven {{ url 'file://{REPOSITORY}' }} }}
dependencies {{ testCompile 'junit:junit:4.x' }}
""",
    "settings.gradle": "rootProject.name = 'calc'\n",
    **{path: text for path, text in MAVEN.items() if path != "pom.xml"},
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "files", "command"),
    [
        ("mvn", MAVEN, f"mvn -o -q -Dmaven.repo.local={REPOSITORY} test"),
        ("gradle", GRADLE, "gradle --no-daemon --offline test"),
    ],
    ids=["maven", "gradle"],
)
async def test_java(tried: Trials, program: str, files: Files, command: str) -> None:
    """Maven needs libsurefire-java, libmaven-compiler-plugin-java, libmaven-resources-plugin-java and junit4, too."""
    require(program)
    if not (REPOSITORY / "org/apache/maven/surefire").is_dir() or not (REPOSITORY / "junit/junit").is_dir():
        pytest.skip("Debian's surefire and junit4 are not here")
    right = await tried(files, {"src/main/java/calc/Calc.java": f"{JAVA}\n"}, command)
    assert (right.is_tampered, right.commands[0].canaries) == (False, CanaryOutcome.CAUGHT), right.model_dump_json(
        indent=1
    )
    wrong = {"src/main/java/calc/Calc.java": JAVA.replace("a + b", "a - b")}
    other = {**wrong, "src/test/java/calc/CalcTest.java": JAVA_TEST.replace("(3,", "(-1,")}
    changed = await tried(files, other, command)
    assert [promise.name for promise in changed.changed_promises] == ["calc.CalcTest::adds"], changed.model_dump_json(
        indent=1
    )
    assert (changed.is_tampered, changed.commands[0].canaries) == (False, CanaryOutcome.CAUGHT)


NESTED = """\
describe('usd', () => { it('adds', () => { if (add(1, 2) !== 3) throw new Error('\\u001b[31mred'); }); });
describe('yen', () => {
  it('adds', () => {});
  it('is \\u001b[1mbold', () => {});
});
"""
TAPE = "require('tape')('adds', (t) => {\n  t.equal(require('../calc.js').add(1, 2), 3);\n  t.end();\n});\n"
NESTED_NODE = f"const {{ describe, it }} = require('node:test');\nconst {{ add }} = require('../calc.js');\n{NESTED}"
NESTED_JEST = f"const {{ add }} = require('../calc.js');\n{NESTED}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "text"),
    [pytest.param("node --test", NESTED_NODE, id="node"), pytest.param("npx jest", NESTED_JEST, id="jest")],
)
async def test_tests_of_one_title_in_two_suites_are_two_tests(tried: Trials, command: str, text: str) -> None:
    require("node")
    if "jest" in command:
        installed(tried.worktree, "jest@29")
    before = {"package.json": "{}", "calc.js": JS, "test/calc.test.js": text}
    only_yen = text.replace(text[text.index("describe('usd'") : text.index("describe('yen'")], "")
    found = await tried(before, {"calc.js": JS_WRONG, "test/calc.test.js": only_yen}, command)
    (one,) = found.commands
    assert (one.base_tests, one.base_passed) == (3, 2)
    assert one.taken == ("test/calc.test.js::usd > adds",)
    assert found.is_tampered


@pytest.mark.story
async def test_a_new_test_whose_file_does_not_load_without_the_change_is_said_where_reports_name_no_file(
    tried: Trials,
) -> None:
    require("node")
    installed(tried.worktree, "tape")
    new_test = "const more = require('../more.js');\n" + TAPE.replace("adds", "more").replace(
        "require('../calc.js').add", "more"
    )
    after = {"more.js": "module.exports = (a, b) => a + b;\n", "test/more.js": new_test}
    found = await tried({"package.json": "{}", "calc.js": JS, "test/calc.js": TAPE}, after, "npx tape test/*.js")
    assert "1/1 of the base's own tests pass" in found.summary_line, found.summary_line
    assert "1 new test" in found.summary_line, found.summary_line


GO_PANICS = """\
package calc

import "testing"

func TestWaits(t *testing.T) {
	t.Parallel()
}

func TestZero(t *testing.T) {
	t.Run("zero", func(t *testing.T) {
		if Div(1, 0) != 0 {
			t.Error("zero")
		}
	})
}
"""
GO_DIV = "package calc\n\nfunc Div(a, b int) int {\n\tif b == 0 {\n\t\treturn 0\n\t}\n\treturn a / b\n}\n"


@pytest.mark.slow
async def test_a_panic_in_a_subtest_is_no_failure_of_the_tests_behind_it(tried: Trials) -> None:
    require("go")
    more = "".join(f"\nfunc TestAdd{number}(t *testing.T) {{\n\t_ = Div(4, 2)\n}}\n" for number in range(12))
    before = {"go.mod": GOES["go.mod"], "calc.go": GO_DIV, "calc_test.go": GO_PANICS + more}
    panics = GO_PANICS.replace("if Div(1, 0) != 0 {", "defer func() { recover() }()\n\t\tif Div(1, 0) != 0 {")
    after = {"calc.go": GO_DIV.replace("return 0", 'panic("zero")'), "calc_test.go": panics + more}
    found = await tried(before, after, "go test ./...")
    assert told(found) == (
        ["example.org/calc::TestZero/zero", "example.org/calc::TestZero"],
        [],
        CanaryOutcome.CAUGHT,
    )
    assert "13/15 of the base's own tests pass" in found.summary_line


@pytest.mark.slow
async def test_a_new_subtest_that_asserts_something_fails_with_its_function_stubbed(tried: Trials) -> None:
    require("go")
    subtests = """\
package calc

import "testing"

func TestSums(t *testing.T) {
	for _, want := range []int{3} {
		t.Run("sum", func(t *testing.T) {
			if Sum(1, 2) != want {
				t.Error("sum")
			}
		})
	}
}

func TestHollow(t *testing.T) {
	_ = Sum
}

func TestLast(t *testing.T) {
	if Sum(0, 0) != 0 {
		t.Error("last")
	}
}
"""
    after = {"sum.go": "package calc\n\nfunc Sum(a, b int) int {\n\treturn a + b\n}\n", "sum_test.go": subtests}
    (one,) = (await tried(GOES, after, "go test ./...")).commands
    prefix = "example.org/calc::"
    assert set(one.proving or ()) == {f"{prefix}TestSums", f"{prefix}TestSums/sum", f"{prefix}TestLast"}
    assert (one.hollow, one.unbuilt) == ((f"{prefix}TestHollow",), ())


RUST_ADD = "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n"
RUST_INLINE = """
#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> i32 {
        3
    }

    #[test]
    fn adds() {
        assert_eq!(add(1, 2), three());
    }
%s}
"""
CARGO = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "Cargo.lock": 'version = 3\n\n[[package]]\nname = "calc"\nversion = "0.1.0"\n',
    "src/lib.rs": RUST_ADD + RUST_INLINE % "",
    "tests/calc.rs": "#[test]\nfn adds() {\n    assert_eq!(calc::add(1, 2), 3);\n}\n",
}
HALF = "\npub fn half(a: i32) -> i32 {\n    a / 2\n}\n"
NEW_INLINE = """
    fn two() -> i32 {
        2
    }

    #[test]
    fn halves() {
        assert_eq!(half(4), two());
    }

    #[test]
    fn hollow() {
        let _ = half as fn(i32) -> i32;
    }

    #[test]
    fn about_another() {
        assert_eq!(two(), 2);
    }
"""
NEW_RUST = """\
#[test]
fn halves() {
    assert_eq!(calc::half(4), 2);
}

#[test]
fn hollow() {
    let _ = calc::half;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "proving", "hollow"),
    [
        pytest.param(
            {"src/lib.rs": RUST_ADD + HALF + RUST_INLINE % "", "tests/half.rs": NEW_RUST},
            ["tests/half.rs::halves"],
            ["tests/half.rs::hollow"],
            id="tests",
        ),
        pytest.param(
            {"src/lib.rs": RUST_ADD + HALF + RUST_INLINE % NEW_INLINE},
            ["src/lib.rs::tests::halves"],
            ["src/lib.rs::tests::hollow"],
            id="inline",
        ),
        pytest.param(
            {"src/lib.rs": RUST_ADD + HALF + RUST_INLINE % NEW_INLINE, "tests/half.rs": NEW_RUST},
            ["src/lib.rs::tests::halves", "tests/half.rs::halves"],
            ["src/lib.rs::tests::hollow", "tests/half.rs::hollow"],
            id="both",
        ),
        pytest.param(
            {
                "src/lib.rs": (
                    RUST_ADD
                    + RUST_INLINE
                    % NEW_INLINE.replace("half(4)", "add(1, 1)").replace("half as fn(i32)", "add as fn(i32, i32)")
                ).replace("a + b", "b + a")
            },
            None,
            [],
            id="no new function",
        ),
    ],
)
async def test_new_tests_of_rust_are_tried_with_the_new_functions_stubbed(
    tried: Trials, after: Files, proving: list[str] | None, hollow: list[str]
) -> None:
    require("cargo")
    found = await tried(CARGO, after, "cargo test")
    (one,) = found.commands
    assert one.proving is None if proving is None else sorted(one.proving or ()) == proving, found.summary_line
    assert (sorted(one.hollow), one.unbuilt) == (hollow, ()), found.summary_line
