"""New functions of a change are stubbed, the others stay as they are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perdure.adapters.checks.experiment.function_stubs import STUB_MESSAGE, recover_go_panics, stub_new_functions
from perdure.adapters.checks.experiment.reduced_tests import find_test_text
from tests.needs import require


def test_new_functions_and_methods_of_python_raise_and_the_others_stay() -> None:
    before = "class A:\n    def old(self):\n        return 1\n\ndef same():\n    return 2\n"
    after = (
        before.replace("class A:", "class A:\n    async def new(self): return 3\n") + "def added(x):\n    return x\n"
    )
    module: dict[str, object] = {}
    stubbed = stub_new_functions("a.py", before, after)
    exec(stubbed, module)  # ours
    assert module["A"]().old() + module["same"]() == 3  # type: ignore[operator]
    assert stubbed.count("raise NotImplementedError") == 2
    assert stub_new_functions("a.py", after, after) == after


@pytest.mark.parametrize("path", ["a.txt", "a.py", "a.go"])
def test_what_cannot_be_read_stays_as_it_is(path: str) -> None:
    assert stub_new_functions(path, "", "no ( code {") == "no ( code {"


GO = """\
package a

import (
	"fmt"
	"strings"
)

type M struct{}

func Old(s string) string { return strings.ToUpper(s) }
%s
"""
NEW_GO = """
func (m M) Say(x interface{}, y []struct{ A int }) string {
	return fmt.Sprint(x) // }
}
"""


@pytest.mark.needs("go")
@pytest.mark.slow
def test_a_package_of_go_with_function_stubs_builds_and_its_tests_fail_one_by_one(tmp_path: Path) -> None:
    require("go")
    (tmp_path / "go.mod").write_text("module example.org/a\n\ngo 1.19\n")
    stubbed = stub_new_functions("a.go", (GO % "").replace('\t"fmt"\n', ""), GO % NEW_GO)
    assert "Sprint" not in stubbed
    (tmp_path / "a.go").write_text(stubbed)
    tests = "".join(
        f"func Test{name}(t *testing.T) {{\n\tif {call} {{\n\t\tt.Error()\n\t}}\n}}\n\n"
        for name, call in {"Say": '(M{}).Say(1, nil) != "1"', "Old": 'Old("a") != "A"'}.items()
    )
    (tmp_path / "a_test.go").write_text(recover_go_panics(f'package a\n\nimport "testing"\n\n{tests}'))
    env = {"PATH": str(Path(str(shutil.which("go"))).parent), "HOME": str(tmp_path), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        ["go", "test", "-v", "."], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert "--- FAIL: TestSay" in done.stdout, done.stdout + done.stderr
    assert "--- PASS: TestOld" in done.stdout


def test_declarations_without_a_body_are_left_alone() -> None:
    kept = "trait T {\n    fn name(&self) -> [u8; 2];\n}\nfn kept() -> u8 { 1 }\n"
    rust = f"{kept}fn new<const N: usize>(a: [u8; N]) -> u8 {{ 2 }}\n"
    stubbed = stub_new_functions("a.rs", "fn kept() -> u8 { 1 }\n", rust)
    assert stubbed == rust.replace("{ 2 }", f'{{ panic!("{STUB_MESSAGE}") }}')
    script = "export function old() {}\nexport async function half(a: number): number {\n  return a / 2;\n}\n"
    assert stub_new_functions("a.ts", "export function old() {}\n", script).count("throw new Error") == 1


JS = """\
const half = (a) => a / 2;
exports.twice = async a => {
  return { b: 2 * a };
};
exports.third = function (a) {
  return a / 3;
};
class Sum {
  constructor(a) { this.a = a; }
  static of(a, b = {}) {
    if (a) { return new Sum(a); }
  }
  get value() { return this.a; }
}
exports.object = {
  quarter(a) { return a / 4; },
};
Object.assign(exports, { half, Sum });
"""


def test_functions_of_javascript_are_stubbed_however_they_are_written(tmp_path: Path) -> None:
    require("node")
    stubbed = stub_new_functions("a.js", "", JS)
    (tmp_path / "a.js").write_text(stubbed)
    calls = [
        *("a.half(1)", "await a.twice(1)", "a.third(1)", "a.Sum.of(1)", "new a.Sum(1).value"),
        "a.object.quarter(1)",
    ]
    program = "".join(
        f"try {{ {call}; console.log('passed', {call!r}) }} catch (error) {{ console.log(error.message) }}\n"
        for call in calls
    )
    (tmp_path / "call.js").write_text(f"const a = require('./a.js');\n(async () => {{ {program} }})();\n")
    done = subprocess.run(["node", "call.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [STUB_MESSAGE] * len(calls), done
    assert stub_new_functions("a.js", JS, JS) == JS


def test_new_methods_of_java_are_stubbed_and_constructors_stay() -> None:
    java = (
        "class A {\n    A(int a) { this.a = a; }\n    public A() { this(1); }\n"
        "    public static <T> List<T> of(T a) throws Error {\n        return List.of(a);\n    }\n}\n"
    )
    stubbed = stub_new_functions("A.java", "", java)
    assert stubbed.count("UnsupportedOperationException") == 1
    assert "List.of" not in stubbed
    assert "this(1)" in stubbed


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["a = (" * 20_000, "a.b = " * 20_000, " \t" * 40_000, "public " * 20_000 + "(", "\n x(" * 20_000]
)
def test_hostile_product_files_are_read_in_bounded_time(text: str) -> None:
    for name in ("a.js", "A.java", "a.go", "a.rs"):
        stub_new_functions(name, "", text)


def test_a_module_that_cannot_be_written_again_stays_as_it_is() -> None:
    deep = f"x = {' + '.join(['1'] * 3000)}\n\ndef new():\n    return x\n"
    assert stub_new_functions("a.py", "", deep) == deep


def test_a_test_is_found_by_the_names_behind_its_file() -> None:
    """Its file's own name may stand in the text, too, or in none of its lines."""
    text = (
        "describe('usd', () => {\n  it('adds', () => 1);\n});\ndescribe('yen', () => {\n  it('adds', () => 2);\n});\n"
    )
    assert find_test_text("test/calc.test.js::yen > adds", text) == "  it('adds', () => 2);"
    assert find_test_text("src/lib.rs::tests::adds", "mod tests {\n    fn adds() {}\n}\n") == "    fn adds() {}"
