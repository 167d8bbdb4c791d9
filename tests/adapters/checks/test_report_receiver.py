"""A report comes through a pipe: neither tests nor what they leave behind can take back what the runner has said."""

from __future__ import annotations

import mmap
import shutil
import stat
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.report_receiver import ClosedReport, PipedReport, split_documents
from perdure.models.limits import JUNIT_BYTES
from tests.guide import installed
from tests.needs import require
from tests.sandboxes import Bench, Files

PYTEST = f"{sys.executable} -m pytest -q -p no:randomly"
FORGED = '<?xml version="1.0"?><testsuite><testcase classname="test_x" name="test_bad" file="test_x.py"/></testsuite>'
FORGES = f"""\
import atexit, os, re, sys, unittest

PLACE = re.search(r"--junit-xml=(\\S+)", os.environ.get("PYTEST_ADDOPTS", " --junit-xml=/results/junit.xml"))[1]


def forge():
    if "REPLACES":
        os.unlink(PLACE)
    with open(PLACE, "w") as file:
        file.write('''{FORGED}''')
    os._exit(0)


atexit.register(forge)


class T(unittest.TestCase):
    def test_bad(self):
        self.fail()
"""


def test_what_was_written_is_kept_whoever_writes_once_more(tmp_path: Path) -> None:
    pipe, into = tmp_path / "pipe", tmp_path / "into"
    receiver = PipedReport(pipe, into)
    pipe.write_text("<?xml 1?>" + "x" * 200_000)
    pipe.write_text("<?xml 2?>")
    receiver.close()
    assert [one.read_text()[:9] for one in split_documents(into)] == ["<?xml 1?>", "<?xml 2?>"]


@pytest.mark.parametrize("put_aside", [False, True])
def test_nothing_written_and_a_pipe_that_was_put_aside_are_no_report(tmp_path: Path, put_aside: bool) -> None:
    pipe, into = tmp_path / "pipe", tmp_path / "into"
    into.write_text("of an earlier run")
    receiver = PipedReport(pipe, into)
    if put_aside:
        pipe.write_text("true")
        pipe.unlink()
        pipe.write_text("forged")
    receiver.close()
    assert not into.exists()


def test_no_writer_waits_for_a_report_that_is_too_large(tmp_path: Path) -> None:
    receiver = PipedReport(tmp_path / "pipe", tmp_path / "into")
    with (tmp_path / "pipe").open("wb") as pipe, open("/dev/zero", "rb") as zeros:
        shutil.copyfileobj(_Some(zeros, JUNIT_BYTES + 500_000), pipe)
    receiver.close()
    assert (tmp_path / "into").stat().st_size == JUNIT_BYTES + 1


class _Some:
    def __init__(self, file: object, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left))  # type: ignore[attr-defined]
        self._left -= len(data)
        return data  # type: ignore[no-any-return]


@pytest.mark.parametrize("replaces", ["yes", ""])
@pytest.mark.parametrize("command", [PYTEST, "python3 -m unittest test_x"])
async def test_a_report_that_is_forged_at_the_end_of_the_process_is_a_contradiction(
    bench: Bench, files: Files, command: str, replaces: str
) -> None:
    result = await bench.one(files({"test_x.py": FORGES.replace("REPLACES", replaces)}), command)
    assert result.verdict == "contradicted", result
    assert ("no report was written" if replaces else "1 of ") in result.reason or "disagree" in result.reason


def closed_by(*texts: str, tmp_path: Path, mode: str = "w+") -> str:
    """What is kept of a report that is written over and over again, at once."""
    receiver = ClosedReport(tmp_path / "report", tmp_path / "into")
    for text in texts:
        with (tmp_path / "report").open(mode) as file:
            file.write(text)
    receiver.close()
    return (tmp_path / "into").read_text() if (tmp_path / "into").exists() else ""


@pytest.mark.parametrize("mode", ["w+", "r+", "a"])
def test_a_file_that_is_closed_once_is_a_report_and_one_that_is_closed_twice_is_none(tmp_path: Path, mode: str) -> None:
    assert closed_by("true", tmp_path=tmp_path, mode=mode) == "true"
    assert closed_by("true", "forged", tmp_path=tmp_path, mode=mode) == ""
    assert closed_by(*["forged"] * 3, tmp_path=tmp_path, mode=mode) == ""


def test_a_file_that_somebody_else_has_open_another_name_for_or_takes_the_place_of_is_no_report(tmp_path: Path) -> None:
    report, into = tmp_path / "report", tmp_path / "into"
    receiver = ClosedReport(report, into)
    with report.open("r+b") as held, report.open("w+b") as file:
        file.write(b"true")
        file.close()
        with mmap.mmap(held.fileno(), 4) as there:
            there[:] = b"lies"
    receiver.close()
    assert not into.exists()
    receiver = ClosedReport(report, into)
    report.write_text("true")
    (tmp_path / "other").hardlink_to(report)
    (tmp_path / "other").write_text("lies")
    receiver.close()
    assert not into.exists()
    receiver = ClosedReport(report, into)
    (tmp_path / "other").write_text("lies")
    report.write_text("true")
    (tmp_path / "other").rename(report)
    receiver.close()
    assert not into.exists()


GO = {
    "go.mod": "module example.org/calc\n\ngo 1.19\n",
    "a_test.go": 'package calc\n\nimport "testing"\n\nfunc TestA(t *testing.T) {}\n'
    "func TestB(t *testing.T) { t.Fail() }\n",
}
RUST = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "#[test]\nfn a() {}\n#[test]\nfn b() { panic!() }\n",
}
SCRIPT = {
    "package.json": '{"name": "calc"}',
    "a.test.js": "test('a', () => {});\ntest('b', () => { throw new Error('x'); });\n",
}
MODULE = {**SCRIPT, "a.test.js": f"import {{ test }} from 'vitest';\n{SCRIPT['a.test.js']}"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "contents", "packages"),
    [
        pytest.param("gotestsum ./...", GO, (), id="gotestsum"),
        pytest.param("cargo nextest run", RUST, (), id="nextest"),
        pytest.param("npx jest", SCRIPT, ("jest@29",), id="jest"),
        pytest.param("npx vitest run", MODULE, ("vitest@2",), id="vitest"),
        pytest.param("npx vitest run", MODULE, ("vitest@4",), id="vitest 4"),
    ],
)
async def test_other_runners_reports_are_taken_over_too(
    bench: Bench, files: Files, command: str, contents: dict[str, str], packages: tuple[str, ...]
) -> None:
    root = files(contents)
    if packages:
        installed(root, *packages)
    else:
        require(command.split()[0])
    if "nextest" in command and shutil.which("cargo-nextest") is None:
        pytest.skip("cargo-nextest is not here")
    result = await bench.one(root, command)
    assert [(case.name[-1].lower(), case.outcome) for case in sorted(result.cases, key=lambda case: case.name)] == [
        ("a", "passed"),
        ("b", "failed"),
    ], result
    assert any(bench.logs.glob("report-*")), "the report was not taken over"
    if "vitest" in command:
        forged = "import { writeFileSync } from 'node:fs';\nwriteFileSync('/results/junit.xml', '');\n"
        (root / "a.test.js").write_text(forged + contents["a.test.js"])
        assert not (await bench.one(root, command)).cases


async def test_node_and_go_write_to_a_pipe_as_to_a_file(bench: Bench, files: Files) -> None:
    require("node")
    root = files({"a.test.js": "require('node:test')('a', () => {});\n" * 300})
    result = await bench.one(root, "node --test")
    assert (result.verdict, len([case for case in result.cases if case.name.endswith("a")])) == ("passed", 300)


async def test_tests_that_run_others_in_a_process_of_their_own_contradict_nothing(bench: Bench, files: Files) -> None:
    inner = f"subprocess.run('{PYTEST} --rootdir {{0}} {{0}}'.format(tmp_path), shell=True).returncode == 1"
    outer = f"""\
import subprocess

def test_runs_another(tmp_path):
    (tmp_path / "test_inner.py").write_text("def test_bad(): assert 0")
    assert {inner}
"""
    result = await bench.one(files({"test_x.py": outer}), PYTEST)
    assert (result.verdict, len(result.cases)) == ("passed", 1), result


def test_nobody_but_the_worker_reads_the_pipe(tmp_path: Path) -> None:
    receiver = PipedReport(tmp_path / "pipe", tmp_path / "report")
    assert stat.S_IMODE((tmp_path / "pipe").lstat().st_mode) == 0o200  # who tries is refused, and does not wait
    receiver.close()
