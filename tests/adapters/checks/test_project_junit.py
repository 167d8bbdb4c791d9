"""Reports of runners (JUnit, go test, cargo test, unittest) are read as cases, or refused for what they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.command_result import read_go_events
from perdure.adapters.checks.junit import BadReport, read_junit
from perdure.adapters.checks.runners import python as runner
from perdure.adapters.checks.runners.base import RunPlace, case_identifier
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.runners.rust import read_libtest_output
from perdure.models.checks.report import TestCase
from perdure.models.limits import CASE_MESSAGE_CHARS
from tests.needs import require
from tests.sandboxes import Bench, Files

ROOT = Path("/tree")
IDENTIFY = case_identifier(RunPlace(ROOT, "", ROOT))


def cases(tmp_path: Path, text: str) -> tuple[TestCase, ...]:
    path = tmp_path / "junit.xml"
    path.write_text(text)
    return read_junit(path, IDENTIFY)


def test_cases_directly_below_the_root_are_seen(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuites tests="0"><testcase name="top" classname="test" time="0.5"><failure message="no"/></testcase>'
        '<testsuite name="s"><testcase name="inner" classname="test"/></testsuite></testsuites>',
    )
    assert [(case.name, case.outcome) for case in found] == [("top", "failed"), ("inner", "passed")]
    assert found[0].duration_s == 0.5


def test_names_are_what_a_person_would_give_to_the_runner(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuite><testcase classname="tests.test_x" file="tests/test_x.py" name="test_a"/>'
        '<testcase classname="tests.test_x.TestC" file="tests/test_x.py" name="test_b"/>'
        '<testcase classname="src/x.test.ts" file="/tree/src/x.test.ts" name="adds"/>'
        '<testcase classname="com.x.Test" name="c"/><testcase/></testsuite>',
    )
    assert [case.name for case in found] == [
        "tests/test_x.py::test_a",
        "tests/test_x.py::TestC::test_b",
        "src/x.test.ts::adds",
        "com.x.Test::c",
        "unnamed",
    ]


def test_outcomes(tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        '<testsuite><testcase name="a"><skipped/><failure/></testcase><testcase name="b"><failure/><error/></testcase>'
        '<testcase name="c"><system-out>x</system-out></testcase></testsuite>',
    )
    assert [case.outcome for case in found] == ["skipped", "errored", "passed"]


def test_messages_keep_head_and_tail(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        f'<testsuite><testcase name="a"><failure message="first">{"x" * 9000}last</failure></testcase></testsuite>',
    )
    assert CASE_MESSAGE_CHARS - 5 < len(case.message) <= CASE_MESSAGE_CHARS
    assert case.message.startswith("first\nxxx")
    assert case.message.endswith("xlast")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid XML"),
        ("<testsuite><testcase", "not valid XML"),
        ("<html/>", "its root is <html>"),
        (
            '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite>&a;</testsuite>',
            "not valid",
        ),
    ],
)
def test_anything_else_is_no_report(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadReport, match=why):
        cases(tmp_path, text)


def test_a_missing_report_and_a_link_are_no_report(tmp_path: Path) -> None:
    with pytest.raises(BadReport, match="no report was written"):
        read_junit(tmp_path / "absent.xml", IDENTIFY)
    (tmp_path / "real.xml").write_text("<testsuite/>")
    (tmp_path / "link.xml").symlink_to("real.xml")
    with pytest.raises(BadReport, match="no report was written"):
        read_junit(tmp_path / "link.xml", IDENTIFY)


def events(tmp_path: Path, *lines: dict[str, str] | str) -> Path:
    file = tmp_path / "go.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def event(action: str, test: str = "", package: str = "p", **more: str) -> dict[str, str]:
    return {"Action": action, "Package": package, **({"Test": test} if test else {}), **more}


def test_each_test_has_its_outcome_and_what_never_ended_has_failed(tmp_path: Path) -> None:
    file = events(
        tmp_path,
        *(event("run", "A"), event("output", "A", Output="sum\n"), event("fail", "A")),
        *(event("run", "B"), event("pass", "B"), event("run", "C"), event("skip", "C"), event("run", "D")),
        *(
            "# what a build says",
            "FAIL\ts [build failed]",
            event("fail"),
            event("fail", package="q"),
            event("pass", package="r"),
        ),
    )
    found = [(case.name, case.outcome, case.message) for case in read_go_events(file)]
    assert found == [
        *(("p::A", "failed", "sum\n"), ("p::B", "passed", ""), ("p::C", "skipped", "")),
        *(("s", "errored", ""), ("q", "errored", ""), ("p::D", "failed", "")),
    ]


PANIC = event("output", "A/b", Output="panic: x [recovered]\n")


@pytest.mark.parametrize(
    ("lines", "outcomes"),
    [
        (
            [
                event("run", "C"),
                event("pause", "C"),
                event("run", "D"),
                event("fail", "A/b"),
                event("fail", "A"),
                PANIC,
            ],
            {"A/b": "failed", "A": "failed"},
        ),
        ([event("run", "D"), event("fail", "C"), PANIC], {"C": "failed", "A/b": "failed"}),  # in a goroutine
        (
            [event("run", "D"), event("fail", "C"), event("pass", "A/b"), PANIC],
            {"A/b": "passed", "C": "failed", "D": "failed"},
        ),
        ([event("run", "C"), event("pause", "C")], {"A/b": "failed", "": "errored"}),  # it ends the process
    ],
)
def test_tests_of_go_that_a_panic_keeps_from_running_have_not_failed(
    tmp_path: Path, lines: list[dict[str, str]], outcomes: dict[str, str]
) -> None:
    cases = read_go_events(events(tmp_path, event("run", "A/b"), *lines, event("fail")))
    assert {case.name.partition("::")[2]: case.outcome for case in cases} == outcomes


def test_packages_without_tests_have_no_cases_and_a_run_that_ended_none_has_no_report(tmp_path: Path) -> None:
    assert read_go_events(events(tmp_path, event("skip"))) == ()
    with pytest.raises(BadReport, match="the end of no package"):
        read_go_events(events(tmp_path, event("run", "A"), event("pass", "A")))


def test_no_file_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(BadReport, match="no report was written"):
        read_go_events(tmp_path / "none")


SAID = """\
   Compiling calc v0.1.0 (/repository)
     Running unittests src/lib.rs (target/debug/deps/calc-c6626fb655a8d231)
     Running tests/calc.rs (target/debug/deps/calc-80f166f2dd2d63d2)
error: test failed, to rerun pass `--test calc`
   Doc-tests calc
"""
LINES = """\

running 3 tests
test tests::adds ... ok
test tests::slow ... ignored, takes long
test tests::panics - should panic ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.65s


running 2 tests
noise of a test
test doubles ... ok
test deep::fails ... more noise
FAILED

failures:

---- deep::fails stdout ----
test fake ... ok
wrong

failures:
    deep::fails

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.57s


running 1 test
test src/lib.rs - add (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.33s
"""
GREEN = """\
running 2 tests
test a ... ok
test b ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.57s
"""


def read(tmp_path: Path, lines: str, said: str = SAID) -> tuple[TestCase, ...]:
    (tmp_path / "lines").write_text(lines)
    (tmp_path / "said").write_text(said)
    return read_libtest_output(tmp_path / "lines", tmp_path / "said", tmp_path)


def test_each_line_is_a_case_of_the_file_that_cargo_ran(tmp_path: Path) -> None:
    (tmp_path / "core" / "tests").mkdir(parents=True)
    (tmp_path / "core" / "Cargo.toml").touch()
    (tmp_path / "core" / "tests" / "calc.rs").touch()
    assert [(case.file, case.name, case.outcome, case.message) for case in read(tmp_path, LINES)] == [
        ("src/lib.rs", "src/lib.rs::tests::adds", "passed", ""),
        ("src/lib.rs", "src/lib.rs::tests::slow", "skipped", ""),
        ("src/lib.rs", "src/lib.rs::tests::panics", "passed", ""),
        ("core/tests/calc.rs", "core/tests/calc.rs::doubles", "passed", ""),
        ("core/tests/calc.rs", "core/tests/calc.rs::deep::fails", "failed", "test fake ... ok\nwrong"),
        ("src/lib.rs", "src/lib.rs - add (line 3)", "passed", ""),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param("", "error: could not compile", id="does not compile"),
        pytest.param(GREEN.replace("test b ... ok\n", ""), SAID, id="a test without a line"),
        pytest.param(GREEN.replace("b ... ok", "b ... FAILED"), SAID, id="another sum"),
        pytest.param(GREEN.replace("test a ... ok\n", "test a ... ok\n" * 2), SAID, id="a test told twice"),
    ],
)
def test_a_report_that_tells_nothing_or_does_not_add_up_is_none(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(BadReport):
        read(tmp_path, lines, said)


def test_a_program_that_ended_before_its_tests_is_an_error_of_its_own(tmp_path: Path) -> None:
    whole = ["passed"] * 2
    merged = read(tmp_path, f"running 2 tests\ntest a ... ok\n{GREEN}{GREEN}{GREEN}")
    assert [case.outcome for case in merged] == ["passed", *whole, "errored", *whole, *whole]
    assert [case.outcome for case in read(tmp_path, GREEN)] == [*whole, "errored", "errored"]
    assert [case.outcome for case in read(tmp_path, f"{GREEN}{GREEN}running 2 tests\n")] == [*whole, *whole, "errored"]


def test_no_test_at_all_is_no_contradiction(tmp_path: Path) -> None:
    none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
    assert read(tmp_path, none * 3) == ()


CRATE = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "/// ```\n/// assert_eq!(calc::one(), 1);\n/// ```\npub fn one() -> i32 { 1 }\n"
    "#[cfg(test)]\nmod tests {\n    #[test]\n    fn is_one() { assert_eq!(super::one(), 1); }\n}\n",
    "tests/it.rs": '#[test]\nfn adds() { assert_eq!(calc::one(), 2, "sum"); }\n#[test]\n#[ignore]\nfn late() {}\n',
}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (
            "cargo test",
            ["src/lib.rs::tests::is_one", "tests/it.rs::adds", "tests/it.rs::late", "src/lib.rs - one (line 1)"],
        ),
        pytest.param(
            "cargo nextest run", ["calc::tests::is_one", "calc::it::adds"], marks=pytest.mark.slow, id="nextest"
        ),
    ],
)
@pytest.mark.timeout(300)
async def test_cargo_is_asked_test_by_test(bench: Bench, files: Files, command: str, names: list[str]) -> None:
    require("cargo")
    if "nextest" in command and shutil.which("cargo-nextest") is None:
        pytest.skip("cargo-nextest is not here")
    result = await bench.one(files(CRATE), command)
    assert {case.name for case in result.cases} == set(names), result
    assert [(case.file, case.outcome) for case in result.cases if "adds" in case.name] == [("tests/it.rs", "failed")]
    assert (result.verdict, "sum" in result.tail) == ("failed", True)
    if command == "cargo test":
        ends = "pub fn one() -> i32 { std::process::exit(0) }\n"
        ended = await bench.one(files({**CRATE, "src/lib.rs": ends}), command)
        assert ended.verdict == "contradicted", ended
        own = {
            "Cargo.toml": f"{CRATE['Cargo.toml']}[[test]]\nname = 'it'\nharness = false\n",
            "tests/it.rs": "fn main() {}",
        }
        plain = await bench.one(files({**CRATE, **own}), command)
        assert (plain.verdict, plain.cases) == ("passed", ()), plain


REPORTER = Path(runner.__file__).with_name("reporting_unittest.py")
SUITE = """\
import unittest


class Calc(unittest.TestCase):
    def test_passes(self):
        pass

    def test_fails(self):
        self.assertEqual(1, 2, "<no & sum>")

    def test_breaks(self):
        raise KeyError("\\x00")

    def test_parts(self):
        for number in (1, 2):
            with self.subTest(number=number):
                self.assertEqual(number, 1)

    @unittest.skip("later")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass


class Never(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no room")

    def test_it(self):
        pass
"""


def run(root: Path, *arguments: str) -> tuple[int, Path]:
    report = root / "reports" / "report.xml"
    report.parent.mkdir()
    ours = shutil.copy(REPORTER, report.with_name("ours.py"))  # where no `unittest.py` lies beside it
    words = [sys.executable, str(ours), str(report), *arguments]
    done = subprocess.run(words, cwd=root, capture_output=True, timeout=60, check=False)
    return done.returncode, report


def test_each_test_is_told_as_unittest_sees_it(files: Files) -> None:
    root = files({"tests/test_calc.py": SUITE, "tests/test_gone.py": "import nothing_of_that_name\n"})
    code, report = run(root, "discover", "-s", "tests")
    identify = case_identifier(RunPlace(root, "", root))
    cases = {case.name.removeprefix("tests/test_calc.py::"): case for case in read_junit(report, identify)}
    assert code == 1
    assert {name: case.outcome for name, case in cases.items()} == {
        "Calc::test_passes": "passed",
        "Calc::test_fails": "failed",
        "Calc::test_breaks": "errored",
        "Calc::test_parts": "failed",
        "Calc::test_skipped": "skipped",
        "Calc::test_expected": "skipped",
        "Calc::test_unexpected": "failed",
        "setUpClass (test_calc.Never)": "errored",
        "_FailedTest::test_gone": "errored",
    }
    assert "1 != 2 : <no & sum>" in cases["Calc::test_fails"].message


def test_it_is_called_as_unittest_is_and_ends_as_it_does(files: Files) -> None:
    root = files(
        {"test_a.py": "import unittest, top\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        top.x\n"}
    )
    (root / "top.py").write_text("x = 1\n")
    code, report = run(root, "-v", "test_a.A.test_a")
    identify = case_identifier(RunPlace(root, "", root))
    assert (code, [case.name for case in read_junit(report, identify)]) == (
        0,
        ["test_a.py::A::test_a"],
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize("classname", ["." * 4000, "a." * 2000, "..etc.passwd", "b" * 5000, "tests.\x00", "....tests"])
def test_a_class_that_is_no_path_is_looked_for_in_bounded_time_and_nowhere_else(tmp_path: Path, classname: str) -> None:
    """A report says what it likes: the code under test can write to it."""
    (tmp_path / "tree" / "a" / "a" / "a").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd.py").touch()
    identify = Pytest().case_identifier(RunPlace(tmp_path / "tree", "", ROOT))
    assert identify({"classname": classname, "file": "tests/test_x.py", "name": "test_a"})[0] == "tests/test_x.py"


def test_a_test_is_of_the_file_that_was_collected(tmp_path: Path) -> None:
    for path in ("tests/test_more.py", "tests/test_money.py", "a.b/c/test_d.py", "tests.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    identify = Pytest().case_identifier(RunPlace(tmp_path, "", ROOT))
    attributes = {"classname": "tests.test_more.TestUsd", "file": "tests/test_money.py", "name": "test_it[a::b]"}
    assert identify(attributes) == ("tests/test_more.py", "tests/test_more.py::TestUsd::test_it[a::b]")
    attributes = {"classname": "a.b.c.test_d", "file": "tests/test_money.py", "name": "test_it"}
    assert identify(attributes) == ("a.b/c/test_d.py", "a.b/c/test_d.py::test_it")
