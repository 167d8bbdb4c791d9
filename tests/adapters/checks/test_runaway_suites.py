"""Suites that hang, flood, fork, lie, or leave a report nobody could read: judged right, in bounded time and memory."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from perdure.adapters.checks.command_result import TEST_TAIL_CHARS, read_go_events
from perdure.adapters.checks.junit import BadReport, find_junit_files, read_junit
from perdure.adapters.checks.runners.base import RunPlace, case_identifier
from perdure.adapters.checks.verdict import verdict_of
from perdure.adapters.system.directories import remove_path
from perdure.models.checks.report import TestReport
from perdure.models.config.repository import SandboxGrade, TestCommand
from perdure.models.limits import CASE_NAME_CHARS, JUNIT_BYTES, JUNIT_CASES, OUTPUT_FILE_BYTES, SANDBOX_PROCESSES
from tests.costs import untraced
from tests.sandboxes import PYTEST, Bench, Files

pytestmark = pytest.mark.story

MOST_BYTES = 100_000_000
"""By how much the process that runs a suite may grow."""


@contextmanager
def within_memory() -> Iterator[None]:
    """This very process, which is the engine here, does not grow by more than MOST_BYTES meanwhile."""
    me, ended = psutil.Process(), threading.Event()
    gc.collect()
    before = most = me.memory_info().rss

    def look() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, me.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
    assert most - before < MOST_BYTES, f"grew by {(most - before) / 1e6:.0f} MB"


@pytest.fixture
def daemon() -> Iterator[str]:
    """A command line no other process has; whatever of it is left after the test is ended."""
    name = f"sleep 87{os.getpid() % 1000:03}.{time.monotonic_ns() % 10**9}"
    yield name
    for process in alive(name):
        process.kill()


def alive(command_line: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if " ".join(process.cmdline()) == command_line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_gigabyte_of_output_is_cut_off_and_is_never_a_pass(bench: Bench, files: Files) -> None:
    with within_memory():
        result = await bench.one(files({}), "yes 'a line of a flood' | head -c 1000000000; exit 0")
    assert (result.verdict, result.exit_code) == ("failed", 153)
    assert result.reason == "ended, as its output grew beyond 50 MB"
    assert len(result.tail) <= TEST_TAIL_CHARS
    assert sum(path.stat().st_size for path in bench.logs.rglob("*") if path.is_file()) <= OUTPUT_FILE_BYTES


async def test_a_suite_that_floods_from_inside_a_test_is_not_run_again(bench: Bench, files: Files) -> None:
    flood = "import os\n\ndef test_a():\n    for _ in range(1000):\n        os.write(1, b'x' * 1_000_000)\n"
    with within_memory():
        result = await bench.one(files({"test_x.py": flood}), f"{PYTEST} -s")
    assert (result.verdict, result.cases) == ("failed", ())
    assert bench.said == ["t0: running", "t0: ended, as its output grew beyond 50 MB"]


FORKS = """\
import os, subprocess, sys, time

def fork_twice(command):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp(command[0], command)
        os._exit(0)
    os.wait()

def test_a():
    fork_twice({command!r}.split())  # holds standard output open
    subprocess.Popen({command!r}.split(), start_new_session=True)
    {then}
"""


async def test_daemons_of_a_green_suite_neither_hold_it_up_nor_outlive_it(
    bench: Bench, files: Files, daemon: str
) -> None:
    root = files({"test_x.py": FORKS.format(command=daemon, then="pass")})
    result = await bench.one(root, TestCommand(name="t0", command=f"{PYTEST} -s", timeout="50s"))
    assert (result.verdict, len(result.cases)) == ("passed", 1)
    assert alive(daemon) == []


async def test_a_suite_that_hangs_with_daemons_of_its_own_is_ended_on_time_with_all_of_them(
    bench: Bench, files: Files, daemon: str
) -> None:
    hang = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)"
    root = files({"test_x.py": FORKS.format(command=daemon, then=f"open('up', 'w'); {hang}")})
    with within_memory():
        result = await bench.one(root, TestCommand(name="t0", command=f"{PYTEST} -s", timeout="6s"))
    assert (root / "up").exists(), "it ended before it hung"
    assert (result.verdict, result.reason, result.exit_code) == ("timed_out", "not finished after 6s", None)
    assert alive(daemon) == []
    assert bench.said == ["t0: running", "t0: not finished after 6s"], "what hangs is not run again"


async def test_hundreds_of_processes_that_fork_on_are_all_ended(bench: Bench, files: Files, daemon: str) -> None:
    """A fork bomb with a bound, for this machine's sake."""
    script = f"for n in $(seq 100); do (setsid bash -c '{daemon} & {daemon} & wait' &) ; done; touch up; sleep 600"
    root = files({})
    result = await bench.one(root, TestCommand(name="t0", command=script, timeout="8s"))
    assert (root / "up").exists()
    assert result.verdict == "timed_out"
    assert alive(daemon) == []


async def test_a_fork_bomb_meets_a_limit(bench: Bench, files: Files) -> None:
    """That it is set; the kernel holds everybody to it but root, as whom these tests may run."""
    if bench.sandbox.grade is not SandboxGrade.FULL:
        pytest.skip("without a user namespace the limit would count the owner's other processes")
    result = await bench.one(files({}), "ulimit -u")
    assert int(result.tail) <= SANDBOX_PROCESSES


LIAR = """\
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0
"""


@pytest.mark.parametrize(
    ("contents", "command"),
    [
        ({"conftest.py": LIAR, "test_x.py": "def test_a():\n    assert 0\n"}, PYTEST),
        pytest.param(
            {"x.test.js": "require('node:test')('a', () => { throw new Error('no') });\n"},
            "node --test; exit 0",
            marks=pytest.mark.needs("node"),
        ),
        (
            {"run.sh": 'echo "FAIL a"; echo "<testsuite><testcase name=\'a\'><failure/></testcase></testsuite>" >$1'},
            TestCommand(name="t0", command="sh run.sh $PERDURE_REPORT", report="junit"),
        ),
    ],
    ids=["pytest", "node", "shell"],
)
async def test_success_after_printed_failures_is_not_believed(
    bench: Bench, files: Files, contents: dict[str, str], command: str | TestCommand
) -> None:
    report = await bench.run(files(contents), command)
    (result,) = report.commands
    assert (result.verdict, result.exit_code) == ("contradicted", 0)
    assert result.reason == "exit code 0, but 1 of 1 reported tests failed"
    assert verdict_of(report).status == "red"


async def test_a_suite_that_fills_its_disks_meets_their_limits_and_fails(bench: Bench, files: Files) -> None:
    if bench.sandbox.grade is not SandboxGrade.FULL:
        pytest.skip("only bubblewrap has private directories of a fixed size")
    root = files({})
    result = await bench.one(root, "fallocate -l 2G /tmp/x || fallocate -l 2G $HOME/x || fallocate -l 2G /dev/shm/x")
    assert result.verdict == "failed"
    assert result.tail.count("No space left on device") == 3
    huge = await bench.one(root, "truncate -s 9G huge")
    assert (huge.verdict, (root / "huge").stat().st_size) == ("failed", 0)
    assert huge.reason in ("killed by signal 25", "exit code 1"), "SIGXFSZ, or the error where it is ignored"


WRITERS = {
    "two gigabytes": ("truncate -s 2G $PERDURE_REPORT", f"larger than {JUNIT_BYTES // 1024**2} MiB"),
    "not XML": ("echo 'ok 1 - all fine' > $PERDURE_REPORT", "not valid XML"),
    "nothing": (": > $PERDURE_REPORT", "not valid XML: no element found"),
    "another format": ("echo '<html/>' > $PERDURE_REPORT", "its root is <html>"),
    "200 MB of NUL bytes": ("truncate -s 200M $PERDURE_REPORT", "not valid XML"),
    "a directory": ("mkdir $PERDURE_REPORT", "no report was written"),
    "a pipe": ("mkfifo $PERDURE_REPORT", "no report was written"),
    "a device": ("ln -s /dev/zero $PERDURE_REPORT", "no report was written"),
    "nested without end": (
        "(echo '<testsuite>'; yes '<a>' | head -n 300000) > $PERDURE_REPORT",
        "nested deeper than 500 elements",
    ),
    "a billion laughs": (
        "(echo '<!DOCTYPE a [<!ENTITY a \"ha\">'; for n in b:a c:b d:c e:d f:e; do "
        "printf '<!ENTITY %s \"' ${n%:*}; printf \"&${n#*:};%.0s\" $(seq 40); echo '\">'; done; "
        "echo ']><testsuite><testcase name=\"&f;\"/></testsuite>') > $PERDURE_REPORT",
        "it defines entities",
    ),
    "a file of the host": (
        "echo '<!DOCTYPE a [<!ENTITY a SYSTEM \"file:///etc/hostname\">]><testsuite>&a;</testsuite>' > $PERDURE_REPORT",
        "it defines entities",
    ),
    "half a million attributes": (
        "(echo '<testsuite><testcase'; seq -f 'a%.0f=\"\"' 500000; echo '/></testsuite>') > $PERDURE_REPORT",
        "one tag of the report is larger than 4 MiB",
    ),
}


async def test_a_report_nobody_could_read_is_a_failure_that_says_why(bench: Bench, files: Files) -> None:
    commands = [TestCommand(name=what, command=script, report="junit") for what, (script, _) in WRITERS.items()]
    with within_memory():
        report = await bench.run(files({}), *commands)
    assert {result.name for result in report.commands} == set(WRITERS)
    for result in report.commands:
        assert result.verdict == "contradicted", result.name
        assert result.reason.startswith("exit code 0, but "), result.name
        assert WRITERS[result.name][1] in result.reason, result.name
        assert result.cases == (), result.name


@pytest.mark.parametrize(("cases", "failed"), [(4_000, 3), pytest.param(100_000, 67, marks=pytest.mark.slow)])
async def test_a_report_of_very_many_cases_is_read_and_judged(
    bench: Bench, files: Files, cases: int, failed: int
) -> None:
    write = (
        "import os\nwith open(os.environ['PERDURE_REPORT'], 'w') as file:\n"
        "    file.write('<testsuites><testsuite>')\n"
        f"    for n in range({cases}):\n"
        '        file.write(f\'<testcase classname="tests.test_{n // 100}" file="tests/test_{n // 100}.py" \'\n'
        '                   f\'name="test_case_number_{n}" time="0.001">\'\n'
        "                   + ('<failure message=\"no\">é</failure>' if n % 1_500 == 7 else '') + '</testcase>')\n"
        "    file.write('</testsuite></testsuites>')\nraise SystemExit(1)\n"
    )
    command = TestCommand(name="t0", command=f"{sys.executable} write.py", report="junit")
    with within_memory():
        report = await bench.run(files({"write.py": write}), command)
    assert verdict_of(report).summary.startswith(
        f"{failed} of {cases} fail: test_case_number_7, test_case_number_1507, "
    )
    assert report.commands[0].cases[0].message == "no\né"


def test_more_cases_than_a_suite_has_are_not_read_and_as_many_as_that_are_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(f"<testsuite>{'<testcase/>' * (JUNIT_CASES + 1)}</testsuite>")
    with within_memory(), untraced(), pytest.raises(BadReport, match="more than 200,000 cases"):
        read_junit(path, case_identifier(RunPlace(tmp_path, "", tmp_path)))


@pytest.mark.parametrize(
    "filler",
    [
        "printed by a test\n",
        pytest.param("\x1b[1m a line in colour &#27;[0m\n" * 9 + "\0", marks=pytest.mark.slow),
        pytest.param("\xe9&lt;]]&gt;", marks=pytest.mark.slow),
    ],
)
async def test_a_green_suite_whose_report_has_200_megabytes_is_green(bench: Bench, files: Files, filler: str) -> None:
    write = (
        "import os\nwith open(os.environ['PERDURE_REPORT'], 'w', encoding='utf-8') as file:\n"
        "    file.write('<testsuites><testsuite><testcase name=\"a\"/><system-out>')\n"
        f"    for _ in range(200):\n        file.write({filler!r} * ({1024**2} // {len(filler.encode())}))\n"
        "    file.write('</system-out><testcase name=\"b\"/></testsuite></testsuites>')\n"
    )
    command = TestCommand(name="t0", command=f"{sys.executable} write.py", report="junit")
    with within_memory():
        result = await bench.one(files({"write.py": write}), command)
    assert (result.verdict, [case.name for case in result.cases]) == ("passed", ["a", "b"]), result.reason


def test_60_000_tests_of_go_are_read_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "go.jsonl"
    with path.open("w") as file:
        for n in range(60_000):
            for action in ("run", "fail" if n % 60 == 7 else "pass"):
                file.write(json.dumps({"Action": action, "Package": f"p{n // 10}", "Test": f"Test{n}"}) + "\n")
            if n % 10 == 9:
                file.write(json.dumps({"Action": "fail", "Package": f"p{n // 10}"}) + "\n")
    started = time.process_time()
    cases = read_go_events(path)
    assert (len(cases), sum(case.outcome == "failed" for case in cases)) == (60_000 + 5_000, 1_000)
    assert time.process_time() - started < 15


async def test_output_that_is_no_text_is_kept_readable(bench: Bench, files: Files) -> None:
    report = await bench.run(files({}), r"printf 'a\0b\377c\033[31md\n'; exit 1")
    assert report.commands[0].tail == "ab�cd\n"
    assert TestReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.needs("node")
async def test_a_name_too_long_for_a_command_line_is_still_judged(bench: Bench, files: Files) -> None:
    """Run again as a whole instead of alone."""
    root = files({"x.test.js": "require('node:test')('n'.repeat(200_000), () => { throw new Error('no') });\n"})
    report = await bench.run(root, "node --test")
    assert verdict_of(report).status == "red"
    (case,) = report.commands[0].cases
    assert (len(case.name) < CASE_NAME_CHARS + 100, case.command) == (True, "")
    assert bench.said[1] == "t0: again"


async def test_directories_nested_a_thousand_deep_neither_stop_a_verdict_nor_the_next_one(
    bench: Bench, files: Files, tmp_path: Path
) -> None:
    nest = "import os, sys\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\nsys.exit(3)\n"
    root = files({"nest.py": nest})
    script = f"cd $(dirname $PERDURE_REPORT) && {sys.executable} {root}/nest.py"
    try:
        for _ in range(2):
            assert (await bench.one(root, TestCommand(name="t0", command=script, report="junit"))).exit_code == 3
        assert (await bench.one(root, f"{sys.executable} nest.py")).exit_code == 3
        assert find_junit_files(root, ("target/surefire-reports",)) == []
    finally:  # pytest could not: shutil.rmtree ends in a RecursionError
        remove_path(root)
        remove_path(bench.logs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
