"""Helpers of tests are test side wherever they stand, and the product's own modules are not: each trick beside what is
honest and looks like it."""

from __future__ import annotations

import sys

import pytest
from experiment_fixtures import Files, Trials

from perdure.adapters.checks.experiment.commit_pair import CommitPair
from perdure.models.config.repository import TestCommand
from tests.needs import require

PYTEST, UNITTEST = f"{sys.executable} -m pytest -q", f"{sys.executable} -m unittest"
CALC = "def add(a, b):\n    return a + b\n"
CHECKS = "def equal(a, b):\n    assert a == b\n"
TEST = "from calc import add\nfrom checks import equal\n\n\ndef test_add():\n    equal(add(1, 2), 3)\n"
SUITE = (
    "import unittest\nfrom calc import add\n\nclass Sums(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
)
JS, SAME = "exports.add = (a, b) => a + b;\n", "exports.same = (a, b) => require('node:assert').strictEqual(a, b);\n"
JS_TEST = (
    "const test = require('node:test');\nconst { add } = require('../calc.js');\n"
    "const { same } = require('../lib/same');\n"
    "test('adds', () => same(add(1, 2), 3));\n"
)
GO_MOD = "module example.org/calc\n\ngo 1.19\n"
GO = "package calc\n\nfunc Add(a, b int) int { return a + b }\n"
GO_CHECK = 'package check\n\nimport "testing"\n\n'
GO_CHECK += 'func Equal(t *testing.T, a, b int) {\n\tif a != b {\n\t\tt.Error("no")\n\t}\n}\n'
JAVA = "package calc;\n\npublic class Calc {\n    static int add(int a, int b) { return a + b; }\n}\n"
JAVA_CHECK = (
    "package calc;\n\nclass Check {\n    static void same(int a, int b) { if (a != b) throw new Error(); }\n}\n"
)
JAVA_TEST = "package calc;\n\nclass CalcTest {\n    @Test void adds() { Check.same(Calc.add(1, 2), 3); }\n}\n"
LINKED_SUITE = SUITE.replace("import unittest", "import unittest\nfrom cases import CASES").replace(
    "self.assertEqual(add(1, 2), 3)", "for a, b, c in CASES: self.assertEqual(add(a, b), c)"
)
PLAIN = "from calc import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
INICONFIG = """\
import calc
class IniConfig(dict):
    def __init__(self, *paths, **options):
        pass
class ParseError(Exception):
    pass
class SectionWrapper(dict):
    pass
calc.add = lambda a, b: a + b
"""
GO_TEST = (
    'package calc\n\nimport (\n\t"testing"\n\n\t"example.org/calc/internal/check"\n)\n\n'
    "func TestAdd(t *testing.T) { check.Equal(t, Add(1, 2), 3) }\n"
)


def sides(trials: Trials, command: str, before: Files, after: Files) -> tuple[list[str], list[str]]:
    """The differing files by their side: tests, product."""
    base, change = trials.commit(before), trials.commit({**before, **after})
    pair = CommitPair.from_commits(trials.repository, base, change, [TestCommand(name="t", command=command)], ())
    tests = [path for path in after if pair.base_side.is_side(path)]
    return tests, [path for path in after if path not in tests]


def changed(files: Files, *paths: str) -> dict[str, str]:
    return {path: f"{files[path]}\n" for path in paths}


HELPERS = {
    "a module at the top": ({"calc.py": CALC, "checks.py": CHECKS, "tests/test_calc.py": TEST}, "checks.py"),
    "by its text": (
        {"calc.py": CALC, "tools/eq.py": CHECKS, "tests/test_calc.py": TEST.replace("checks", "tools.eq")},
        "tools/eq.py",
    ),
    "in the package": (
        {"calc/__init__.py": CALC, "calc/suite.py": SUITE, "tests/test_calc.py": "from calc.suite import Sums\n"},
        "calc/suite.py",
    ),
    "by a relative import": (
        {"calc/__init__.py": "", "calc/core.py": CALC, "calc/checks.py": CHECKS}
        | {"calc/test_core.py": "from . import checks\nfrom .core import add\n\ndef test_a(): checks.equal(1, 3)\n"},
        "calc/checks.py",
    ),
    "behind another helper": (
        {"calc.py": CALC, "checks.py": "from equality import same\nfrom calc import add\n", "tests/test_calc.py": TEST}
        | {"equality.py": "def same(a, b):\n    assert a == b\n"},
        "equality.py",
    ),
    "behind conftest": (
        {
            "calc.py": CALC,
            "fixtures_of_calc.py": "import pytest\nimport calc\n",
            "conftest.py": "from fixtures_of_calc import *\n",
        }
        | {"tests/test_calc.py": TEST},
        "fixtures_of_calc.py",
    ),
    "a link to a file": (
        {"calc.py": CALC, "selftest/cases.py": "CASES = [(1, 2, 3)]\n", "tests/cases.py": "-> ../selftest/cases.py"}
        | {"tests/test_calc.py": "from cases import CASES\nfrom calc import add\n"},
        "selftest/cases.py",
    ),
    "a link that holds tests": (
        {"calc.py": CALC, "quality/calc.py": TEST, "tests/test_calc.py": "-> ../quality/calc.py"},
        "quality/calc.py",
    ),
    "a link to a directory": (
        {"calc.py": CALC, "shared/table.json": "[]\n", "tests/data": "-> ../shared", "tests/test_calc.py": TEST},
        "shared/table.json",
    ),
    "require": ({"calc.js": JS, "lib/same.js": SAME, "test/calc.test.js": JS_TEST}, "lib/same.js"),
    "import in TypeScript": (
        {"src/calc.ts": "export const add = 1;\n", "src/utils/expectations.ts": "export const sum = 3;\n"}
        | {"test/calc.test.ts": "import { add } from '../src/calc.js';\nimport { sum } from '@/utils/expectations';\n"},
        "src/utils/expectations.ts",
    ),
    "a package of Go": (
        {"go.mod": GO_MOD, "calc.go": GO, "internal/check/check.go": GO_CHECK, "calc_test.go": GO_TEST},
        "internal/check/check.go",
    ),
    "a package of Go that nobody else can import": (
        {
            "go.mod": GO_MOD,
            "calc.go": GO,
            "internal/must/must.go": "package must\n\nfunc Be(a, b int) bool { return a == b }\n",
        }
        | {"calc_test.go": GO_TEST.replace("check", "must")},
        "internal/must/must.go",
    ),
    "an include": (
        {
            "calc.h": "int add(int a, int b);\n",
            "check.h": "#define CHECK(x)\n",
            "tests/calc.c": '#include "../check.h"\n',
        },
        "check.h",
    ),
    "a module of Rust": (
        {"src/lib.rs": "pub fn add() {}\n", "helpers/mod.rs": "pub fn same() {}\n"}
        | {"tests/calc.rs": '#[path = "../helpers/mod.rs"]\nmod helpers;\n', "Cargo.toml": ""},
        "helpers/mod.rs",
    ),
    "a class of Java": (
        {"calc/Calc.java": JAVA, "calc/Check.java": JAVA_CHECK, "tests/calc/CalcTest.java": JAVA_TEST},
        "calc/Check.java",
    ),
    "a class of Java, by its text": (
        {"calc/Calc.java": JAVA, "tests/calc/CalcTest.java": JAVA_TEST.replace("Check.", "Sums.")}
        | {"calc/Sums.java": "package calc;\nimport org.junit.Assert;\n" + JAVA_CHECK.replace("Check", "Sums")},
        "calc/Sums.java",
    ),
    "a function of Kotlin": (
        {
            "src/Calc.kt": "fun add(a: Int, b: Int) = a + b\n",
            "src/Expectations.kt": "infix fun Int.shouldBe(b: Int) {}\n",
        }
        | {"tests/CalcTest.kt": "class CalcTest { @Test fun adds() { add(1, 2) shouldBe 3 } }\n"},
        "src/Expectations.kt",
    ),
    "a class of C#": (
        {"src/Calc.cs": "namespace Calc {\n    public static class Sums { }\n}\n"}
        | {"src/Fakes.cs": "using Xunit;\nnamespace Calc {\n    internal static class Same { }\n}\n"}
        | {"tests/CalcTests.cs": "class CalcTests { [Fact] void Adds() { Same.As(Sums.Add(1, 2), 3); } }\n"},
        "src/Fakes.cs",
    ),
    "a class of PHP": (
        {"src/Calc.php": "<?php\nfinal class Calc {}\n", "src/AssertSame.php": "<?php\ntrait AssertSame {}\n"}
        | {"tests/CalcTest.php": "<?php\nclass CalcTest extends TestCase { use AssertSame; var $a = Calc::class; }\n"},
        "src/AssertSame.php",
    ),
    "a file that PHP includes": (
        {"src/calc.php": "<?php\nfunction add($a, $b) { return $a + $b; }\n", "src/helpers.php": "<?php\nreturn [];\n"}
        | {"tests/CalcTest.php": "<?php\n$a = require __DIR__ . '/../src/helpers.php';\nadd(1, 2);\n"},
        "src/helpers.php",
    ),
    "a script of the shell": (
        {
            "calc.sh": "echo $(( $1 + $2 ))\n",
            "lib/assert.sh": "equal() { :; }\n",
            "t/calc.t": '. "$(dirname "$0")/../lib/assert.sh"\n',
        },
        "lib/assert.sh",
    ),
}


@pytest.mark.parametrize("name", HELPERS)
def test_what_only_the_tests_reach_is_test_side(tried: Trials, name: str) -> None:
    files, helper = HELPERS[name]
    command = {
        "js": "node --test",
        "ts": "npx vitest run",
        "go": "go test ./...",
        "rs": "cargo test",
        "sh": "prove t",
        "h": "make",
        "java": "mvn test",
        "kt": "gradle test",
        "cs": "dotnet test",
        "php": "phpunit",
    }
    after = changed(files, helper, next(iter({path for path in files if path.startswith(("calc", "src"))} - {helper})))
    tests, _ = sides(tried, command.get(helper.rpartition(".")[2], PYTEST), files, changed(files, helper))
    assert tests == [helper], after


PRODUCT = {
    "the module under test": ({"calc.py": CALC, "tests/test_calc.py": "from calc import add\n"}, "calc.py"),
    "a checker that the product uses": (
        {"calc.py": f"from checks import equal\n{CALC}", "checks.py": CHECKS, "tests/test_calc.py": TEST},
        "checks.py",
    ),
    "a checker with tests of its own": (
        {
            "calc.py": CALC,
            "checks.py": CHECKS,
            "tests/test_checks.py": "from checks import equal\n",
            "tests/test_calc.py": TEST,
        },
        "checks.py",
    ),
    "the only module, which asserts": (
        {
            "parser.py": "def parse(text):\n    assert text\n    return text\n",
            "tests/test_all.py": "from parser import parse\n",
        },
        "parser.py",
    ),
    "one that an entry point names": (
        {"calc.py": CALC, "checks.py": CHECKS, "tests/test_calc.py": TEST}
        | {"pyproject.toml": "[project.scripts]\ncheck = 'checks:equal'\n"},
        "checks.py",
    ),
    "one that the product loads by its name": (
        {"site/settings.py": "APPS = ['site.checks']\n", "site/calc.py": CALC, "site/checks.py": CHECKS}
        | {"tests/test_calc.py": "from site.calc import add\nfrom site.checks import equal\n"},
        "site/checks.py",
    ),
    "a plug-in that is looked for": (
        {"calc/__init__.py": f"import pkgutil\n{CALC}pkgutil.iter_modules(__path__)\n", "calc/checks.py": CHECKS}
        | {"tests/test_calc.py": "from calc import add\nfrom calc.checks import equal\n"},
        "calc/checks.py",
    ),
    "what a link among the tests makes importable": (
        {"calc.py": CALC, "tests/calc.py": "-> ../calc.py", "tests/test_calc.py": "from calc import add\n"},
        "calc.py",
    ),
    "data that the product reads": (
        {"calc.py": f"PATH = 'shared/table.json'\n{CALC}", "shared/table.json": "[]\n"}
        | {"tests/table.json": "-> ../shared/table.json", "tests/test_calc.py": TEST},
        "shared/table.json",
    ),
    "the main file of a package": (
        {"package.json": '{"main": "./lib/same"}', "calc.js": JS, "lib/same.js": SAME, "test/calc.test.js": JS_TEST},
        "lib/same.js",
    ),
    "one that its own test file names": (
        {"calc.js": JS, "lib/same.js": SAME, "test/same.js": JS_TEST, "test/calc.test.js": JS_TEST},
        "lib/same.js",
    ),
    "a package of Go with tests": (
        {"go.mod": GO_MOD, "calc.go": GO, "internal/check/check.go": GO_CHECK, "calc_test.go": GO_TEST}
        | {"internal/check/check_test.go": "package check\n"},
        "internal/check/check.go",
    ),
    "a package of Go that the product imports": (
        {"go.mod": GO_MOD, "calc.go": GO, "internal/check/check.go": GO_CHECK, "calc_test.go": GO_TEST}
        | {"cmd/main.go": 'package main\n\nimport "example.org/calc/internal/check"\n'},
        "internal/check/check.go",
    ),
    "a class of Java that the product uses": (
        {"calc/Calc.java": JAVA.replace("return", "Check.same(a, a); return"), "calc/Check.java": JAVA_CHECK}
        | {"tests/calc/CalcTest.java": JAVA_TEST},
        "calc/Check.java",
    ),
    "a class of Java with tests of its own": (
        {"calc/Calc.java": JAVA, "calc/Check.java": JAVA_CHECK, "tests/calc/CalcTest.java": JAVA_TEST}
        | {"tests/calc/CheckTest.java": JAVA_TEST.replace("CalcTest", "CheckTest")},
        "calc/Check.java",
    ),
    "the only class of a library of assertions": (
        {"src/Check.java": "import org.hamcrest.Matcher;\n" + JAVA_CHECK, "tests/All.java": JAVA_TEST},
        "src/Check.java",
    ),
    "a function of Kotlin that the product uses": (
        {"src/Calc.kt": "fun add(a: Int, b: Int) = check(a) + b\n", "src/Checks.kt": "fun check(a: Int) = a\n"}
        | {"tests/CalcTest.kt": "class CalcTest { @Test fun adds() { check(add(1, 2)) } }\n"},
        "src/Checks.kt",
    ),
    "a header of the product": (
        {"calc.h": "#define CHECK(x)\n", "calc.c": '#include "calc.h"\n', "tests/calc.c": '#include "../calc.h"\n'},
        "calc.h",
    ),
    "a package of the product that is named like tests": (
        {
            "django/test/client.py": CALC,
            "django/test/__init__.py": "",
            "tests/test_calc.py": "import django.test.client\n",
        },
        "django/test/client.py",
    ),
    **{
        f"code of another language that a test names: {path}": (
            {path: "x\n", "t/eol.t": f"my @files = ('{path}');\n"},
            path,
        )
        for path in ("lib/Try/Tiny.pm", "src/calc.lua", "bin/calc", "style/calc.css", "grammar/calc.y", "calc.sql")
    },
    "what a type checker looks at": ({"calc.py": CALC, "tests/test_calc.py": TEST}, "calc.py"),
}


@pytest.mark.parametrize("name", PRODUCT)
def test_what_the_product_reaches_or_is_stays_product(tried: Trials, name: str) -> None:
    files, path = PRODUCT[name]
    command = {"js": "node --test", "go": "go test ./...", "h": "make", "java": "mvn test", "kt": "gradle test"}.get(
        path.rpartition(".")[2], PYTEST
    )
    assert sides(tried, f"mypy {path} && {command}", files, changed(files, path)) == ([], [path])


SHADOWS = {
    "of the runner": ({"iniconfig.py": "x = 1\n"}, True),
    "of the runner, as a package": ({"pluggy/__init__.py": "x = 1\n", "pluggy/a.py": "x = 1\n"}, True),
    "of the runner, though the product imports it": (
        {"iniconfig.py": "x = 1\n", "more.py": "import iniconfig\n"},
        True,
    ),
    "below src": ({"src/_pytest/__init__.py": ""}, True),
    "of what the tests import": ({"requests.py": "x = 1\n"}, True),
    "of Python, which nobody imports": ({"colorsys.py": "x = 1\n"}, True),
    "of a dependency, which nobody imports": ({"typing_extensions.py": "x = 1\n"}, True),
    "before the tests": ({"__init__.py": "x = 1\n"}, True),
    "in node_modules": ({"node_modules/chai/index.js": "x\n"}, True),
    "a module of the product": ({"more.py": "x = 1\n", "calc.py": f"import more\n{CALC}"}, False),
    "a module that only new tests import": ({"more.py": "x = 1\n", "tests/test_more.py": "import more\n"}, False),
    "a script": ({"deploy.py": "x = 1\n"}, False),
    "inside the package": ({"pkg/packaging.py": "x = 1\n"}, False),
    "a dependency committed for the product": ({"node_modules/left-pad/index.js": "x\n"}, False),
}


@pytest.mark.parametrize("name", SHADOWS)
def test_a_new_module_in_the_place_of_an_installed_one_is_test_side(tried: Trials, name: str) -> None:
    before = {
        "calc.py": CALC,
        "pkg/__init__.py": "",
        "requirements.txt": "typing-extensions>=4\n",
        "a.js": "require('chai')\n",
    }
    before |= {"tests/test_calc.py": f"import requests\n{TEST}"}
    after, is_side = SHADOWS[name]
    first = next(iter(after))
    tests, product = sides(tried, PYTEST, before, after)
    assert (first in (tests if is_side else product), "more.py" in tests) == (True, False)


COMMANDS = [
    ("make", {"t/calc.lua": "", "calc.lua": ""}, "t/calc.lua", "calc.lua"),
    ("make", {"lib/tests/calc.lua": "", "lib/calc.lua": ""}, "lib/tests/calc.lua", "lib/calc.lua"),
    ("make", {"spec/calc_spec.cr": "", "spec/data.txt": "", "src/calc.cr": ""}, "spec/data.txt", "src/calc.cr"),
    ("make", {"pkg/spec/a_spec.rb": "", "pkg/spec/b.txt": "", "pkg/specs.rb": ""}, "pkg/spec/b.txt", "pkg/specs.rb"),
    ("prove -r xt", {"xt/deep/calc.pl": "", "calc.pl": ""}, "xt/deep/calc.pl", "calc.pl"),
    ("tclsh quality.tcl", {"quality.tcl": "", "calc.tcl": ""}, "quality.tcl", "calc.tcl"),
    ("make -f ci.mk check", {"ci.mk": "", "calc.c": ""}, "ci.mk", "calc.c"),
    (
        "make check",
        {"Makefile": "check:\n\tawk -f probe.awk table.txt\n", "probe.awk": "", "a.c": ""},
        "probe.awk",
        "a.c",
    ),
    (
        "./calc.sh 1 2 | diff - expected.txt",
        {"calc.sh": "", "expected.txt": "", "more.sh": ""},
        "expected.txt",
        "more.sh",
    ),
    ("cc -o t calc.c test_calc.c && ./t", {"calc.c": "", "other.txt": "", "test_calc.c": ""}, "test_calc.c", "calc.c"),
    (
        "ctest",
        {"CMakeLists.txt": "add_test(NAME a COMMAND sh ${CMAKE_SOURCE_DIR}/ci/a.sh)\n", "ci/a.sh": "", "a.c": ""},
        "ci/a.sh",
        "a.c",
    ),
    ("pytest selftest.py::test_a", {"selftest.py": "", "calc.py": ""}, "selftest.py", "calc.py"),
    (
        "pytest",
        {"pytest.ini": "[pytest]\ntestpaths = selftest.py\n", "selftest.py": "", "calc.py": ""},
        "selftest.py",
        "calc.py",
    ),
    (
        "pytest",
        {"pytest.ini": "[pytest]\ntestpaths = self*.py\n", "selftest.py": "", "calc.py": ""},
        "selftest.py",
        "calc.py",
    ),
    (
        "pytest",
        {"pytest.ini": "[pytest]\ntestpaths = pkg\n", "pkg/__init__.py": "", "pkg/a.py": "", "pkg/tests/x.py": ""},
        "pkg/tests/x.py",
        "pkg/a.py",
    ),
    ("pytest --doctest-modules calc.py", {"calc.py": "", "conftest.py": ""}, "conftest.py", "calc.py"),
    ("go test ./... && go build main.go", {"main.go": "", "a_test.go": ""}, "a_test.go", "main.go"),
    ("ruff check calc.py", {"calc.py": "", "ruff.toml": ""}, "ruff.toml", "calc.py"),
    ("npx eslint lib", {"lib/a.js": "", "eslint.config.mjs": ""}, "eslint.config.mjs", "lib/a.js"),
    (
        "npm run lint",
        {"package.json": '{"scripts": {"lint": "golangci-lint run"}}', ".golangci.yml": "", "a.go": ""},
        ".golangci.yml",
        "a.go",
    ),
    ("python -m mypy calc.py", {"calc.py": "", "mypy.ini": ""}, "mypy.ini", "calc.py"),
]


@pytest.mark.parametrize(("command", "files", "test", "product"), COMMANDS)
def test_directories_commands_and_settings_name_tests_in_any_language(
    tried: Trials, command: str, files: Files, test: str, product: str
) -> None:
    after = dict.fromkeys((test, product), "changed\n")
    assert sides(tried, command, {"other": "x\n", **files}, after) == ([test], [product])


def test_what_a_linter_shares_with_the_product_is_the_base_s_and_an_optional_one_decides_nothing(tried: Trials) -> None:
    commit = tried.commit({"tsconfig.json": "{}", "ruff.toml": "", "a.py": ""})
    tests = [
        TestCommand(name="a", command="npx tsc --noEmit"),
        TestCommand(name="b", command="ruff check", required=False),
    ]
    side = CommitPair.from_commits(tried.repository, commit, commit, tests, ()).base_side
    assert (side.is_shared("tsconfig.json"), side.is_side("ruff.toml")) == (True, False)


@pytest.mark.timeout(60)
def test_hostile_sources_are_read_in_bounded_time(tried: Trials) -> None:
    texts = [
        "from . import (" * 20_000,
        "import a," * 50_000,
        "require('" * 50_000,
        "assert\n" * 50_000,
        "#include <" * 50_000,
    ]
    files = {f"tests/test_{number}.py": text for number, text in enumerate(texts)} | {"checks.py": CHECKS, "a.py": CALC}
    files |= {f"tests/{number}.js": text for number, text in enumerate(texts)} | {
        "tests/b.c": texts[-1],
        "tests/l": "-> l",
    }
    assert sides(tried, PYTEST, files, changed(files, "checks.py"))[1] == ["checks.py"]


BROKEN = {"calc.py": CALC.replace("a + b", "a - b")}
TRICKS = {
    "a helper that compares nothing": (
        PYTEST,
        {"calc.py": CALC, "checks.py": CHECKS, "tests/test_calc.py": TEST},
        {**BROKEN, "checks.py": "def equal(a, b):\n    pass\n"},
    ),
    "a linked table": (
        UNITTEST + " discover -s tests",
        {"calc.py": CALC, "selftest/cases.py": "CASES = [(1, 2, 3)]\n", "tests/cases.py": "-> ../selftest/cases.py"}
        | {"tests/test_calc.py": LINKED_SUITE},
        {**BROKEN, "selftest/cases.py": "CASES = [(1, 0, 1)]\n"},
    ),
    "a test file that settings name": (
        PYTEST,
        {"calc.py": CALC, "pytest.ini": "[pytest]\ntestpaths = selftest.py\n"} | {"selftest.py": PLAIN},
        {**BROKEN, "selftest.py": "from calc import add\n\ndef test_add():\n    assert add(1, 2)\n"},
    ),
    "a module that the runner loads": (
        PYTEST,
        {"calc.py": CALC, "conftest.py": "", "tests/test_calc.py": PLAIN},
        {**BROKEN, "iniconfig.py": INICONFIG},
    ),
    "a script in a directory of tests": (
        "sh t/run",
        {"calc.sh": "echo $(($1 + $2))\n", "t/run": "test $(sh calc.sh 1 2) = $(cat t/sum)\n", "t/sum": "3\n"},
        {"calc.sh": "echo $(($1 - $2))\n", "t/sum": "-1\n"},
    ),
    "a helper of node": (
        "node --test",
        {"calc.js": JS, "lib/same.js": SAME, "test/calc.test.js": JS_TEST},
        {"calc.js": JS.replace("a + b", "a - b"), "lib/same.js": "exports.same = () => {};\n"},
    ),
    "a package of Go": (
        "go test ./...",
        {"go.mod": GO_MOD, "calc.go": GO, "internal/check/check.go": GO_CHECK, "calc_test.go": GO_TEST},
        {"calc.go": GO.replace("a + b", "a - b"), "internal/check/check.go": GO_CHECK.replace("a != b", "false")},
    ),
}


TRIED = [pytest.param(name, marks=pytest.mark.slow if "Go" in name else pytest.mark.story) for name in TRICKS]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TRIED)
async def test_a_bent_helper_is_found_out(tried: Trials, name: str) -> None:
    command, before, after = TRICKS[name]
    require(*(["go"] if command.startswith("go") else ["node"] if command.startswith("node") else []))
    assert await tried.is_green({**before, **after}, command), "it does not even fool its own run"
    found = await tried(before, after, command)
    assert found.is_tampered or found.changed_promises, found.model_dump_json(indent=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TRIED)
async def test_an_honest_change_of_the_same_files_is_right(tried: Trials, name: str) -> None:
    command, before, after = TRICKS[name]
    require(*(["go"] if command.startswith("go") else ["node"] if command.startswith("node") else []))
    found = await tried(before, {path: f"{before[path]}\n" for path in after if path in before}, command)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert found.changed_promises == ()
