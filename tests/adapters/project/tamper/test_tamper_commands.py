"""What a test command leads to, when it cannot fail any more; and reports that no run has written."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import CALC, PY, PY_TESTS, PYTHON, UNIT, UNITTEST, edited

MAKE = """\
PY = python
.PHONY: test
test: build
\t$(PY) -m pytest
\t@echo done

build:
\techo building

lint:
\truff check
"""
SCRIPT = "#!/bin/sh\nset -e\ncd src\npython -m pytest\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\t$(PY)", "\t-$(PY)"),
        ("\t$(PY)", "\t@-$(PY)"),
        ("-m pytest\n", "-m pytest || true\n"),
        ("-m pytest\n", "-m pytest; exit 0\n"),
        ("-m pytest\n", "-m pytest | tee log\n"),
        ("-m pytest\n", "-m pytest -k one\n"),
        ("-m pytest\n", "-m pytest &\n"),
        ("\t$(PY) -m pytest\n", ""),
        ("$(PY) -m pytest", "echo 5 passed"),
        ("PY = python", "PY = true"),
        ("PY = python", "PY = python\nSHELL = /bin/true"),
        ("PY = python", "PY = python\nMAKEFLAGS += -i"),
        ("lint:", ".IGNORE:\nlint:"),
        ("test: build", "test:"),
        ("test: build", "tests: build"),
        ("lint:", "test:\n\ttrue\n\nlint:"),
    ],
)
def test_a_recipe_that_cannot_fail_or_runs_something_else_is_a_hit(hits: Judge, old: str, new: str) -> None:
    before = {**PYTHON, "Makefile": MAKE}
    found = hits(before, {"Makefile": edited(MAKE, old, new)}, "make test")
    assert any(hit.startswith("command: ") for hit in found), found


def test_a_makefile_that_make_prefers_is_the_one_that_counts(hits: Judge) -> None:
    assert hits({**PYTHON, "Makefile": MAKE}, {"GNUmakefile": "test:\n\ttrue\n"}, "make test")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\truff check", "\truff check || true"),
        ("\techo building", "\techo building\n\techo more"),
        ("lint:", "\nlint:"),
    ],
)
def test_other_targets_and_more_lines_are_nobodys_business(hits: Judge, old: str, new: str) -> None:
    assert hits({**PYTHON, "Makefile": MAKE}, {"Makefile": edited(MAKE, old, new)}, "make test") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pytest\n", "pytest || true\n"),
        ("pytest\n", "pytest || :\n"),
        ("pytest\n", "pytest\nexit 0\n"),
        ("set -e\n", ""),
        ("set -e\n", "set -e\nset +e\n"),
        ("set -e\n", "set -e\ntrap 'exit 0' EXIT\n"),
        ("python -m pytest", "echo 5 passed"),
        ("python -m pytest", "if python -m pytest; then true; fi"),
        ("set -e\n", "set -e\npython() { true; }\n"),
        ("set -e\n", "set -e\nPATH=tools:$PATH\n"),
    ],
)
@pytest.mark.parametrize("command", ["./run.sh", "sh run.sh -v", "make test"])
def test_a_script_that_cannot_fail_is_a_hit_however_it_is_reached(
    hits: Judge, old: str, new: str, command: str
) -> None:
    before = {**PYTHON, "run.sh": SCRIPT, "Makefile": "test:\n\tbash ./run.sh\n"}
    found = hits(before, {"run.sh": edited(SCRIPT, old, new)}, command)
    assert len(found) == 1
    assert found[0].startswith("command: "), found


def test_a_script_may_grow(hits: Judge) -> None:
    assert (
        hits({**PYTHON, "run.sh": SCRIPT}, {"run.sh": edited(SCRIPT, "cd src", "cd src\necho start")}, "./run.sh") == []
    )


@pytest.mark.parametrize(
    ("script", "rules"),
    [
        ("node --test || true", ["command"]),
        ("node --test; exit 0", ["command"]),
        ("node --test calc.test.js", ["command"]),
        ("echo ok", ["command"]),
        ("node --test && eslint .", []),
    ],
)
def test_a_package_script_that_runs_something_else_is_a_hit(hits: Judge, script: str, rules: list[str]) -> None:
    before = {"package.json": '{"scripts": {"test": "npm run unit", "unit": "node --test"}}'}
    after = {"package.json": f'{{"scripts": {{"test": "npm run unit", "unit": "{script}"}}}}'}
    assert [hit.partition(":")[0] for hit in hits(before, after, "npm test")] == rules


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/__init__.py", "import os\nos._exit(0)\n"),
        (PY, PY_TESTS + "\n\nimport sys\nsys.exit(0)\n"),
        (PY, PY_TESTS + "\n\ndef test_last():\n    import os\n    os._exit(0)\n"),
        ("tests/helpers.py", "import atexit, os\natexit.register(lambda: os._exit(0))\n"),
        ("calc.py", f"import atexit, os\natexit.register(os._exit, 0)\n{CALC}"),
        ("calc.py", f"import os\nos._exit(0)\n{CALC}"),
        ("calc.py", f"raise SystemExit\n{CALC}"),
    ],
)
def test_a_process_that_ends_itself_in_success_is_a_hit(hits: Judge, path: str, text: str) -> None:
    assert any(hit.startswith("command: ") for hit in hits(UNITTEST, {path: text}, UNIT))


def test_a_program_may_end_itself_where_it_is_a_program(hits: Judge) -> None:
    main = "\n\nif __name__ == '__main__':\n    import sys\n    sys.exit(0)\n\n\ndef main():\n    raise SystemExit(0)\n"
    assert hits(UNITTEST, {"calc.py": CALC + main}, UNIT) == []


def test_a_python_script_that_loses_its_exit_code_is_a_hit(hits: Judge) -> None:
    text = "import subprocess, sys\ndone = subprocess.run(['pytest'])\nsys.exit(done.returncode)\n"
    before = {**PYTHON, "check.py": text}
    assert hits(before, {"check.py": edited(text, "done.returncode", "0")}, "python check.py")
    assert hits(before, {"check.py": edited(text, "sys.exit(done.returncode)\n", "")}, "python3 check.py")
    assert hits(before, {"check.py": edited(text, "['pytest']", "['pytest', '-q']")}, "python check.py") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("target/surefire-reports/TEST-x.xml", "<testsuite/>"),
        ("build/test-results/test/a.xml", "<testsuite/>"),
        ("junit.xml", "<testsuites></testsuites>"),
        ("out/mine.xml", "<testsuites></testsuites>"),
        ("calc.py", f"import os\nopen(os.environ['PERDURE_REPORT'], 'w')\n{CALC}"),
        ("calc.py", f"import os\nos.environ.get('PYTEST_ADDOPTS')\n{CALC}"),
        ("tests/helpers.py", "def write(config):\n    open(config.option.xmlpath, 'w')\n"),
        ("tests/test_more.py", "FAKE = '<testsuites><testcase/></testsuites>'\n"),
        ("tools/fake.js", "fs.writeFileSync(x, '<testsuite>')\n"),
        (".env", "PYTEST_ADDOPTS=-x\n"),
    ],
)
def test_what_writes_or_is_a_report_of_its_own_is_a_hit(hits: Judge, path: str, text: str) -> None:
    found = hits(PYTHON, {path: text}, "python -m pytest --junitxml out/mine.xml")
    assert any(hit.startswith("report: ") for hit in found), found


def test_words_about_reports_in_documents_and_workflows_are_no_hits(hits: Judge) -> None:
    for path in ("README.md", "docs/guide.rst", ".github/workflows/ci.yml", "CHANGES.txt"):
        assert hits(PYTHON, {path: "set PYTEST_ADDOPTS, read <testsuites>\n"}) == []
    assert hits(PYTHON, {"data.xml": "<note/>\n"}) == []
