"""Honest changes that look like tampering, each beside the attack that looks like it."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import CALC, CONFTEST, PY, PY_TESTS, PYTHON, UNIT, edited

MAKE = "test: build\n\tpython -m pytest\n\nbuild:\n\techo building\n"
ABOUT = {f"lib/{name}.py": "names = ['PYTEST_ADDOPTS', 'surefire-reports']\n" for name in ("a", "b", "c", "d")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('markers = ["slow: takes long"]', 'markers = ["slow: takes a minute"]'),
        ('markers = ["slow: takes long"]', "markers = []"),
        ('addopts = "-q"', 'addopts = "-ra -q --strict-markers --durations=5"'),
        ('addopts = "-q"', 'addopts = ["--cov=calc", "--cov-report=term-missing", "--tb=short"]'),
        ('testpaths = ["tests"]', 'testpaths = ["tests", "more"]'),
        ('["pragma: no cover"]', '["pragma: no cover", "if TYPE_CHECKING:", "raise NotImplementedError", "@overload"]'),
        ('["pragma: no cover"]', '["pragma: no cover"]\nshow_missing = true\nprecision = 1'),
    ],
)
def test_settings_that_are_only_louder_or_stricter_are_no_hits(hits: Judge, old: str, new: str) -> None:
    text = (
        '[tool.pytest.ini_options]\nmarkers = ["slow: takes long"]\naddopts = "-q"\ntestpaths = ["tests"]\n'
        '[tool.coverage.report]\nexclude_also = ["pragma: no cover"]\n'
    )
    assert hits({**PYTHON, "pyproject.toml": text}, {"pyproject.toml": edited(text, old, new)}) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-q --strict-markers", "-q --strict-markers -k one"),
        ("-q --strict-markers", "-q --strict-markers --ignore=tests/test_calc.py"),
        ("-q --strict-markers", "-q --strict-markers -p quiet"),
        ("-q --strict-markers", "-q --strict-markers -c other.ini"),
        ("-q --strict-markers", "-q"),
        ("testpaths = tests more", "testpaths = more"),
        ("testpaths = tests more\n", ""),
        ("-q --strict-markers", "-q --strict-markers --co"),
    ],
)
def test_settings_that_leave_something_out_are_hits_among_those_that_do_not(hits: Judge, old: str, new: str) -> None:
    text = "[pytest]\naddopts = -q --strict-markers\ntestpaths = tests more\n"
    (found,) = hits({**PYTHON, "pytest.ini": text}, {"pytest.ini": edited(text, old, new)})
    assert found.startswith("configuration: pytest.ini: ")


@pytest.mark.parametrize("line", ['".*"', '"def "', '"return"', '"pragma: no cover|.*"'])
def test_lines_that_anybody_would_want_covered_are_a_hit(hits: Judge, line: str) -> None:
    text = '[tool.coverage.report]\nexclude_also = ["pragma: no cover"]\n'
    after = edited(text, '"pragma: no cover"', f'"pragma: no cover", {line}')
    assert len(hits({**PYTHON, "pyproject.toml": text}, {"pyproject.toml": after})) == 1


@pytest.mark.parametrize(
    "more",
    [
        '\n\ndef pytest_configure(config):\n    """Ours."""\n    config.addinivalue_line("markers", "slow: long")\n',
        '\n\ndef pytest_addoption(parser):\n    parser.addoption("--live", action="store_true")\n',
        '\n\npytest.register_assert_rewrite("helpers")\n',
    ],
)
def test_a_conftest_may_declare_markers_options_and_helpers(hits: Judge, more: str) -> None:
    assert hits(PYTHON, {"tests/conftest.py": CONFTEST + more}) == []


@pytest.mark.parametrize(
    "more",
    [
        '\n\ndef pytest_configure(config):\n    config.addinivalue_line("addopts", "-k one")\n',
        '\n\ndef pytest_configure(config):\n    config.addinivalue_line("markers", "x")\n    config.option.a = 1\n',
        '\n\ndef pytest_configure(config):\n    config.addinivalue_line("markers", config.stash.clear())\n',
        '\n\ndef pytest_addoption(parser):\n    parser.addoption("-k")\n',
        "\n\npytest.exit('done', 0)\n",
    ],
)
def test_a_hook_that_does_more_than_declare_is_a_hit(hits: Judge, more: str) -> None:
    assert hits(PYTHON, {"tests/conftest.py": CONFTEST + more})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import atexit, shutil\natexit.register(shutil.rmtree, '/tmp/x')\n", 0),
        ("import atexit\nclass A:\n    def __init__(self):\n        atexit.register(self._end)\n"
         "    def _end(self):\n        self.server.terminate()\n", 0),
        ("import atexit, os\ndef end():\n    os._exit(0)\natexit.register(end)\n", 1),
        ("import atexit, os\ndef end():\n    leave = os._exit\n    leave(0)\natexit.register(end)\n", 1),
        ("import atexit\nfrom quiet import end\natexit.register(end)\n", 1),
        ("import atexit\nfrom quiet import leave\ndef end():\n    leave()\natexit.register(end)\n", 1),
        ("import atexit, os\ndef end():\n    getattr(os, '_ex' + 'it')(0)\natexit.register(end)\n", 1),
        ("import os\nif __name__ == '__main__':\n    os._exit(0)\n", 0),
        ("import os\nif __name__ == '__main__':\n    pass\nelse:\n    os._exit(0)\n", 1),
        ("import os\nif __name__ != '__main__':\n    os._exit(0)\n", 1),
    ],
)  # fmt: skip
def test_helpers_may_tidy_up_and_be_programs_and_not_end_the_run(hits: Judge, text: str, found: int) -> None:
    assert bool(hits(PYTHON, {"tests/helpers.py": text})) == bool(found)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("\tpython", "\t-rm -rf out\n\tpython", 0),
        ("\tpython -m pytest\n", "\tpython -m pytest\n\t@cat log | tail -n 1\n\tls out || true\n", 0),
        ("test: build", "test: build docs", 0),
        ("build:\n", "docs:\n\tmkdocs build || true\n\nbuild:\n", 0),
        ("\tpython -m pytest\n", "\tpython -m pytest\n\tpython -m pytest || true\n", 1),
        ("\tpython -m pytest\n", "\tls || true\n", 1),
        ("test: build", ".ONESHELL:\ntest: build", 1),
        ("\tpython -m pytest\n", "\tpython -m pytest\n\ntest:\n\techo 5 passed\n", 1),
    ],
)
def test_a_recipe_line_beside_the_others_hides_only_its_own_failure(
    hits: Judge, old: str, new: str, found: int
) -> None:
    assert len(hits({**PYTHON, "Makefile": MAKE}, {"Makefile": edited(MAKE, old, new)}, "make test")) == found


def test_with_one_shell_for_a_recipe_a_line_hides_what_stands_before_it(hits: Judge) -> None:
    before = {**PYTHON, "Makefile": ".ONESHELL:\n" + MAKE}
    after = {"Makefile": edited(".ONESHELL:\n" + MAKE, "pytest\n", "pytest\n\ttrue\n")}
    assert len(hits(before, after, "make test")) == 1


def test_a_file_that_a_linter_reads_is_not_run(hits: Judge) -> None:
    before = {
        **PYTHON,
        "Makefile": "check:\n\truff check app.py && mypy app.py\n\tpython run.py\n",
        "run.py": "x = 1\n",
    }
    ends = "import os\n\n\ndef main():\n    os._exit(0)\n"
    assert hits({**before, "app.py": "x = 1\n"}, {"app.py": ends}, "make check") == []
    assert len(hits(before, {"run.py": ends}, "make check")) == 1


def test_a_program_called_run_tests_holds_no_tests_unless_somebody_says_so(hits: Judge) -> None:
    text = "def test_all():\n    assert 1 + x\n"
    before = {**PYTHON, "run_tests.py": text}
    assert hits(before, {"run_tests.py": "x = 1\n"}) == []
    gone = ["gone: test_all is gone"]
    assert hits(before, {"run_tests.py": "x = 1\n"}, "python -m pytest run_tests.py") == gone
    ini = {**before, "pytest.ini": "[pytest]\npython_files = *_tests.py\n"}
    assert hits(ini, {"run_tests.py": "x = 1\n"}) == gone


def test_words_about_reports_are_no_news_in_a_repository_about_test_runners(hits: Judge) -> None:
    text = {"lib/a.py": "names = ['PYTEST_ADDOPTS', 'PYTEST_CURRENT_TEST', '<testsuites>']\n"}
    assert hits({**PYTHON, **ABOUT}, text) == []
    few = {path: ABOUT[path] for path in list(ABOUT)[:3]}
    assert len(hits({**PYTHON, **few, "Makefile": "x = PYTEST_ADDOPTS\n"}, text)) == 1
    conftest = CONFTEST + "\n\nos.environ['PYTEST_ADDOPTS'] = '-k one'\n"
    found = hits({**PYTHON, **ABOUT}, {"tests/conftest.py": conftest})
    assert any(hit.startswith("report: ") for hit in found), "a conftest has no such business anywhere"


@pytest.mark.parametrize(
    "path", ["tests/__snapshots__/test_calc.ambr", "src/__snapshots__/a.test.js.snap", "golden.json"]
)
def test_snapshots_are_in_the_diff_and_never_hits(hits: Judge, path: str) -> None:
    assert hits({**PYTHON, path: "a = 1\n"}, {path: "a = 2\n"}) == []
    assert hits({**PYTHON, path: "a = 1\n"}, {path: None}) == []
    assert hits(PYTHON, {path: "a = 2\n", "calc.py": CALC + "\n"}) == []


def test_refactored_tests_that_check_the_same_are_no_hits(hits: Judge) -> None:
    split = edited(PY_TESTS, "class TestAdd:\n    def test_adds(self):\n        assert add(1, 2) == 3\n", "")
    helper = edited(PY_TESTS, "    assert parse(text) == seconds", "    check(text, seconds)")
    helper = edited(
        helper, "def test_zero", "def check(text, seconds):\n    assert parse(text) == seconds\n\n\ndef test_zero"
    )
    renamed = edited(PY_TESTS, "def test_one", "def test_one_second")
    moved = {PY: split, "tests/test_add.py": "from calc import add\n\n\ndef test_adds():\n    assert add(1, 2) == 3\n"}
    for after in (moved, {PY: helper}, {PY: renamed}, {PY: "# about time\n" + PY_TESTS}):
        assert hits(PYTHON, after) == []
    assert UNIT
