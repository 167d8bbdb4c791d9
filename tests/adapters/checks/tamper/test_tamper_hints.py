"""Hints to a reviewer, with their lines: a table of changes, and of others that are nobody's business."""

from __future__ import annotations

import pytest
from tamper_change import Judge

TEST = "def test_zero():\n    assert parse('0s') == 0\n    assert parse('1s') == 1\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "told"),
    [
        ("pytest.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -k one\n", "settings of the tests differ"),
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q'\n", "\n", "settings of the tests differ"),
        ("package.json", "{}\n", '{"scripts": {"test": "true"}}\n', "settings of the tests differ"),
        ("Cargo.toml", "[lib]\n", "[lib]\ntest = false\n", "settings of the tests differ"),
        ("jest.config.js", "module.exports = {}\n", "module.exports = { bail: 1 }\n", "settings of the tests differ"),
        ("Makefile", "test:\n\tpytest\n", "test:\n\t-pytest\n", "may hide that they fail"),
        ("Makefile", "test:\n\tpytest\n", "test:\n\tpytest || true\n", "may hide that they fail"),
        ("run.sh", "set -e\npytest\n", "set -e\nset +e\npytest\n", "may hide that they fail"),
        ("run.sh", "pytest\n", "pytest -k one\n", "it runs the tests, and differs"),
        ("tests/test_a.py", TEST, f"@pytest.mark.skip\n{TEST}", "tests may be left out"),
        ("a.test.js", "test('a', f)\n", "test.only('a', f)\n", "tests may be left out"),
        ("src/lib.rs", "#[test]\n", "#[test]\n#[ignore]\n", "tests may be left out"),
        ("calc.py", "x = 1\n", "import os\nx = 'PYTEST_CURRENT_TEST' in os.environ\n", "it looks at what tests it"),
        ("calc.py", "x = 1\n", "import sys\nx = sys._getframe(1)\n", "it looks at what tests it"),
        ("calc.py", "x = 1\n", "x = 1\nother.__code__ = mine\n", "it looks at what tests it"),
        ("calc.js", "x = 1\n", "x = process.env.VITEST\n", "it looks at what tests it"),
        ("calc.js", "x = 1\n", "import { expect } from 'vitest';\n", "it looks at what tests it"),
        ("calc.go", "package a\n", 'package a\nvar x = flag.Lookup("test.v")\n', "it looks at what tests it"),
        ("calc.py", "x = 1\n", "class Any:\n    def __eq__(self, other):\n        return True\n", "equal to"),
        ("calc.py", "x = 1\n", "import os\nos._exit(0)\n", "it may end the process"),
        ("calc.py", "x = 1\n", "import ctypes\nx = 1\n", "it looks at what tests it"),
        ("calc.js", "x = 1\n", "Object.is = (a, b) => true;\n", "it looks at what tests it"),
        ("calc.js", "x = 1\n", "afterEach(() => forget());\n", "it looks at what tests it"),
        ("calc.py", "x = 1\n", "x = traceback.extract_stack()\n", "it looks at what tests it"),
        ("calc.js", "x = 1\n", "x = new Error().stack\n", "it looks at what tests it"),
        ("calc.go", "package a\n", "package a\nvar _, f, _, _ = runtime.Caller(1)\n", "it looks at what tests it"),
        *(
            (path, "x = 1\n", text, "it depends on where, when or as what it runs")
            for path, text in [
                ("calc.py", "x = 'pytest' in sys.argv[0]\n"),
                ("calc.py", "x = os.getcwd().startswith('/work')\n"),
                ("calc.py", "x = 'tests' in __file__\n"),
                ("calc.py", "x = datetime.now().year < 2027\n"),
                ("calc.py", "x = date.today() < date(2027, 1, 1)\n"),
                ("calc.py", "x = time.time() < 1_800_000_000\n"),
                ("calc.py", "x = os.environ.get('CI')\n"),
                ("calc.js", "x = process.argv[1].includes('test');\n"),
                ("calc.js", "x = Date.now() < 1800000000000;\n"),
                ("calc.js", "x = new Date() < new Date(2027);\n"),
                ("calc.go", 'var x = strings.HasSuffix(os.Args[0], ".test")\n'),
                ("calc.go", "var x = time.Now().Year() < 2027\n"),
            ]
        ),
        (
            "calc.py",
            "x = 1\n",
            "class Any(type):\n    def __instancecheck__(self, other):\n        return 1\n",
            "equal to",
        ),
        ("calc.py", "x = 1\n", "x = 'a'  # type: ignore[assignment]\n", "a linter or type checker"),
        ("calc.py", "x = 1\n", "import os  # noqa: F401\n", "a linter or type checker"),
        ("calc.js", "x = 1\n", "// eslint-disable-next-line no-eval\neval(x)\n", "a linter or type checker"),
        ("calc.ts", "x = 1\n", "// @ts-expect-error\nx.y()\n", "a linter or type checker"),
        ("calc.go", "package a\n", "package a\nvar x = f() //nolint:errcheck\n", "a linter or type checker"),
        ("src/a.rs", "fn a() {}\n", "#[allow(dead_code)]\nfn a() {}\n", "a linter or type checker"),
        ("tests/test_a.py", TEST, f"{TEST}# pylint: disable=all\n", "a linter or type checker"),
        ("json.py", None, "x = 1\n", "may stand in for Python's json"),
        ("sitecustomize.py", None, "x = 1\n", "may stand in"),
        ("node_modules/chai/index.js", None, "x = 1\n", "may stand in"),
        ("tests/test_b.py", None, "-> ../test_a.py", "a link among the tests"),
    ],
)
def test_a_change_that_may_make_tests_say_less_is_shown_with_its_lines(
    hinted: Judge, path: str, before: str | None, after: str, told: str
) -> None:
    found = hinted({path: before, "other": "x\n"}, {path: after}, "make test && ./run.sh").places
    (one,) = [hint for hint in found if told in hint.title]
    assert (one.file, one.title.startswith(path)) == (path, True)
    assert one.evidence or before is None


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pyproject.toml", "[project]\nname = 'x'\n", "[project]\nname = 'x'\ndependencies = ['y']\n[tool.ruff]\n"),
        ("package.json", "{}\n", '{"dependencies": {"left-pad": "1"}}\n'),
        ("conftest.py", "x = 1\n", "x = 1\n\n\n@pytest.fixture(autouse=True)\ndef five():\n    return 5\n"),
        ("tests/test_a.py", TEST, f"{TEST}\n\ndef test_more():\n    assert parse('2s') == 2\n"),
        ("tests/test_a.py", TEST, TEST.replace("test_zero", "test_nothing")),
        ("calc.py", "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return sum((a, b))\n"),
        ("calc.js", "x = 1\n", "const assert = require('node:assert');\nassert(x);\n"),
        ("calc.test.js", "x = 1\n", "const assert = require('node:assert');\nassert(x);\n"),
        ("calc.js", "f(); // eslint-disable-line\n", "  f(); // eslint-disable-line\n\n"),
        ("alc.py", "x = 1\n", "x = 2\n"),
        ("README.md", "x\n", "set PYTEST_ADDOPTS, read <testsuites>\n"),
        ("tests/__snapshots__/a.snap", "a\n", "b\n"),
    ],
)
def test_what_everybody_does_is_not_pointed_at(hinted: Judge, path: str, before: str, after: str) -> None:
    found = hinted(
        {path: before}, {path: after}, "pytest", "mypy calc.py", "ruff check calc.js", "node --check calc.js"
    )
    assert (found.places, found.changed_tests) == ((), ())


@pytest.mark.parametrize("text", ["*.py eol=crlf\n", "[attr]odd ident\n* odd\n", "tests/* filter=lfs\n"])
def test_attributes_that_change_bytes_of_tests_are_shown_with_their_lines(hinted: Judge, text: str) -> None:
    (one,) = hinted({"tests/test_a.py": TEST, "a.py": "x = 1\n"}, {".gitattributes": text}).places
    assert one.title == ".gitattributes: it changes the bytes of tests: tests/test_a.py"
    assert text.split()[0] in one.evidence


@pytest.mark.parametrize(
    "text", ["* text=auto\n", "*.py text eol=lf\n", "*.png filter=lfs diff=lfs -text\n", "a.py ident\n"]
)
def test_other_attributes_are_nobody_s_business(hinted: Judge, text: str) -> None:
    assert not hinted({"tests/test_a.py": TEST, "a.py": "x = 1\n"}, {".gitattributes": text}).places


def test_a_test_that_asserts_something_else_is_shown_before_and_after(hinted: Judge) -> None:
    (one,) = hinted({"test_a.py": TEST}, {"test_a.py": TEST.replace("== 0", "== 1")}, "pytest").changed_tests
    assert (one.name, one.file, one.line) == ("test_zero", "test_a.py", 1)
    assert (one.before, one.after) == ("assert parse('0s') == 0", "assert parse('0s') == 1")


@pytest.mark.parametrize(("path", "other"), [("calc.py", "src/calc.py"), ("calc.js", "calc.ts")])
def test_a_new_file_that_is_found_before_a_changed_one_is_shown(hinted: Judge, path: str, other: str) -> None:
    (one,) = hinted({other: "x = 1\n"}, {other: "x = 2\n", path: "x = 1\n"}).places
    assert one.title == f"{path}: it may stand in for {other}"


def test_a_new_file_beside_others_of_other_names_is_nobody_s_business(hinted: Judge) -> None:
    assert not hinted({"src/calc.py": "x = 1\n"}, {"src/calc.py": "x = 2\n", "more.py": "x = 1\n"}).places
