"""A report comes through a pipe: neither tests nor what they leave behind can take back what the runner has said."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.received import Receiver, documents
from perdure.models.limits import JUNIT_BYTES
from tests.needs import require
from tests.project_bench import Bench
from tests.project_files import Files

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
    receiver = Receiver(pipe, into)
    pipe.write_text("<?xml 1?>" + "x" * 200_000)
    pipe.write_text("<?xml 2?>")
    receiver.close()
    assert [one.read_text()[:9] for one in documents(into)] == ["<?xml 1?>", "<?xml 2?>"]


@pytest.mark.parametrize("put_aside", [False, True])
def test_nothing_written_and_a_pipe_that_was_put_aside_are_no_report(tmp_path: Path, put_aside: bool) -> None:
    pipe, into = tmp_path / "pipe", tmp_path / "into"
    into.write_text("of an earlier run")
    receiver = Receiver(pipe, into)
    if put_aside:
        pipe.write_text("true")
        pipe.unlink()
        pipe.write_text("forged")
    receiver.close()
    assert not into.exists()


def test_no_writer_waits_for_a_report_that_is_too_large(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "pipe", tmp_path / "into")
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
    receiver = Receiver(tmp_path / "pipe", tmp_path / "report")
    assert stat.S_IMODE((tmp_path / "pipe").lstat().st_mode) == 0o200  # who tries is refused, and does not wait
    receiver.close()
