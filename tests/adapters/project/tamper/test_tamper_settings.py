"""Changed settings of test runners, and what gets in front of what the tests load."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import CONFTEST, NODE, PY, PYTHON, UNIT, UNITTEST, edited

HOOK = "\n\ndef pytest_collection_modifyitems(items):\n    items.clear()\n"


@pytest.mark.parametrize(
    "text",
    [
        CONFTEST + HOOK,
        CONFTEST + '\n\ncollect_ignore = ["test_calc.py"]\n',
        CONFTEST + '\n\ncollect_ignore_glob = ["*"]\n',
        CONFTEST + '\n\npytest_plugins = ["helper"]\n',
        CONFTEST + "\n\n@pytest.fixture(autouse=True)\ndef quiet(monkeypatch):\n    pass\n",
        CONFTEST + "\n\n@pytest.fixture\ndef monkeypatch():\n    return None\n",
        CONFTEST + "\n\nimport calc\ncalc.parse = int\n",
        CONFTEST + "\n\nprint('hello')\n",
        CONFTEST + "\n\nfor name in ():\n    pass\n",
        CONFTEST + "\n\nif True:\n    raise SystemExit(0)\n",
        edited(CONFTEST, "return 5", "return 6"),
        "def broken(:\n",
        "-> ../elsewhere.py",
        b"\0",
    ],
)
def test_a_conftest_that_does_more_than_offer_fixtures_is_a_hit(hits: Judge, text: str | bytes) -> None:
    for path in ("tests/conftest.py", "conftest.py"):
        before = {**PYTHON, path: CONFTEST}
        assert any(hit.startswith("configuration: ") for hit in hits(before, {path: text})), path


def test_a_hook_that_was_there_may_stay_and_must_not_go(hits: Judge) -> None:
    before = {**PYTHON, "conftest.py": CONFTEST + HOOK}
    assert hits(before, {"conftest.py": CONFTEST + HOOK + "\n\nFIVE = 5\n"}) == []
    assert hits(before, {"conftest.py": CONFTEST}) == ["configuration: conftest.py: a hook is gone or changed"]
    assert hits(before, {"conftest.py": edited(CONFTEST + HOOK, "items.clear()", "items.pop()")})


@pytest.mark.parametrize(
    "after",
    [
        {"tests/unit/conftest.py": CONFTEST},
        {"tests/conftest.py": None, "conftest.py": CONFTEST},
        {"tests/conftest.py": CONFTEST + "\n\n@pytest.fixture\ndef six(five: int) -> int:\n    return five + 1\n"},
        {"tests/conftest.py": edited(CONFTEST, "def five():", 'def five() -> int:\n    """Five."""')},
        {"tests/conftest.py": "import pytest\n"},
    ],
    ids=["new", "moved", "one more", "documented", "one less"],
)
def test_plain_fixtures_may_come_go_and_move(hits: Judge, after: dict[str, str | None]) -> None:
    assert hits(PYTHON, after) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pytest.ini", "[pytest]\naddopts = --deselect tests/test_calc.py::test_zero\n"),
        ("pytest.ini", "[pytest]\n"),
        (".pytest.ini", "[pytest]\npython_files = none_*.py\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-k one"\n'),
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["elsewhere"]\n'),
        ("pyproject.toml", '[tool.coverage.report]\nomit = ["*"]\n'),
        ("pyproject.toml", '[project.entry-points.pytest11]\nquiet = "quiet"\n'),
        ("setup.cfg", "[tool:pytest]\naddopts = -x\n"),
        ("setup.cfg", "[options.entry_points]\npytest11 =\n  quiet = quiet\n"),
        ("tox.ini", "[pytest]\nnorecursedirs = tests\n"),
        (".coveragerc", "[run]\nomit = *\n"),
        ("setup.py", "setup(entry_points={'pytest11': ['quiet = quiet']})\n"),
        ("sitecustomize.py", "x = 1\n"),
        ("src/usercustomize.py", "x = 1\n"),
        ("calc.pth", "import os\n"),
        ("pytest.py", "def raises(*a): ...\n"),
        ("unittest/__init__.py", "class TestCase: ...\n"),
        ("tests/_pytest/__init__.py", "x = 1\n"),
        ("__pycache__/calc.cpython-311.pyc", b"\0"),
        (".pytest_cache/v/cache/lastfailed", "{}\n"),
        (".venv/lib/python3.11/site-packages/pytest.py", "x = 1\n"),
        ("tests/test_linked.py", "-> test_calc.py"),
    ],
)
def test_what_decides_which_python_tests_run_and_how_is_a_hit(hits: Judge, path: str, text: str | bytes) -> None:
    assert any(hit.startswith("configuration: ") for hit in hits(PYTHON, {path: text}))


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("jest.config.js", "module.exports = {}\n", "module.exports = { testPathIgnorePatterns: ['calc'] }\n"),
        ("vitest.config.ts", "export default {}\n", "export default { test: { exclude: ['**'] } }\n"),
        ("vite.config.ts", "export default { test: { a: {} } }\n", "export default { test: { a: {}, b: 1 } }\n"),
        (".mocharc.json", "{}\n", '{"spec": "none"}\n'),
        (".npmrc", "audit=false\n", "audit=false\nscript-shell=/bin/true\n"),
        ("package.json", '{"jest": {"bail": 0}}', '{"jest": {"bail": 0, "testMatch": []}}'),
        ("package.json", '{"mocha": {"spec": "a"}}', "{}"),
        (".config/nextest.toml", "[profile.default]\n", '[profile.default]\ndefault-filter = "none()"\n'),
        ("Cargo.toml", '[package]\nname = "x"\n', '[package]\nname = "x"\nautotests = false\n'),
        ("Cargo.toml", '[lib]\nname = "x"\n', '[lib]\nname = "x"\ntest = false\n'),
        ("pom.xml", "<p></p>", "<p><properties><maven.test.skip>true</maven.test.skip></properties></p>"),
        (
            "pom.xml",
            "<p></p>",
            "<p><plugin><artifactId>maven-surefire-plugin</artifactId><configuration>"
            "<testFailureIgnore>true</testFailureIgnore></configuration></plugin></p>",
        ),
        ("build.gradle", "test {\n  useJUnitPlatform()\n}\n", "test {\n  useJUnitPlatform()\n  enabled = false\n}\n"),
        ("build.gradle.kts", "plugins { }\n", "plugins { }\ntasks.test { ignoreFailures = true }\n"),
        ("go.mod", "module x\n", "module x\nreplace github.com/stretchr/testify => ./quiet\n"),
    ],
)
def test_changed_settings_of_other_runners_are_hits(hits: Judge, path: str, before: str, after: str) -> None:
    (found,) = hits({path: before}, {path: after}, "npm test")
    assert found.startswith(f"configuration: {path}")


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (
            "pyproject.toml",
            '[project]\nname = "x"\n',
            '[project]\nname = "x"\ndependencies = ["y"]\n[tool.ruff]\na = 1\n',
        ),
        ("pyproject.toml", "", '[tool.pytest.ini_options]\nmarkers = ["slow: takes long"]\n'),
        ("package.json", '{"scripts": {"test": "node --test"}}', '{"scripts": {"test": "node --test", "x": "y"}}'),
        ("package.json", "{}", '{"dependencies": {"left-pad": "1"}}'),
        ("Cargo.toml", "[dependencies]\n", '[dependencies]\nserde = "1"\n'),
        ("pom.xml", "<p></p>", "<p><dependency><artifactId>x</artifactId></dependency></p>"),
        ("build.gradle", "dependencies {\n}\n", "dependencies {\n  testImplementation 'x:y:1'\n}\n"),
        ("go.mod", "module x\n", "module x\nrequire github.com/a/b v1.0.0\n"),
        (".npmrc", "", "fund=false\n"),
        ("vite.config.ts", "export default {}\n", "export default { plugins: [] }\n"),
        ("setup.cfg", "[metadata]\nname = x\n", "[metadata]\nname = y\n"),
        ("pytest.ini", "[pytest]\naddopts = -q\n", "# comment\n[pytest]\naddopts =  -q\n"),
    ],
)
def test_what_says_nothing_about_tests_may_change_in_the_same_files(
    hits: Judge, path: str, before: str, after: str
) -> None:
    assert hits({**PYTHON, path: before}, {path: after}) == []


def test_a_module_that_stands_in_for_one_the_tests_import_is_a_hit(hits: Judge) -> None:
    before = {**PYTHON, PY: "import freezer\nfrom decimal import Decimal\n\n\ndef test_a():\n    assert freezer.x\n"}
    for path, name in (("freezer.py", "freezer"), ("tests/freezer/__init__.py", "freezer"), ("decimal.py", "decimal")):
        assert hits(before, {path: "x = 1\n"}) == [
            f"configuration: {path} stands in for {name}, which {PY} imports from elsewhere"
        ]
    assert hits(before, {"other.py": "x = 1\n"}) == []
    assert hits({**before, "pack/__init__.py": ""}, {"pack/decimal.py": "x = 1\n"}) == []


def test_a_package_that_unittest_needs_to_look_into_must_stay(hits: Judge) -> None:
    assert hits(UNITTEST, {"tests/__init__.py": None}, UNIT) == ["configuration: tests/__init__.py is gone"]
    assert hits({**PYTHON, "tests/__init__.py": ""}, {"tests/__init__.py": None}) == [], "pytest does not mind"


def test_load_tests_and_committed_dependencies_are_hits(hits: Judge) -> None:
    text = UNITTEST["tests/test_add.py"] + "\n\ndef load_tests(*given):\n    return unittest.TestSuite()\n"
    (found,) = hits(UNITTEST, {"tests/test_add.py": text}, UNIT)
    assert found == "configuration: tests/test_add.py: load_tests decides which tests there are"
    assert hits(NODE, {"node_modules/chai/index.js": "module.exports = {}\n"}, "npm test")
