"""The lines of `cargo test` are read as cases, and the real cargo is asked for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perdure.adapters.checks.junit import BadReport
from perdure.adapters.checks.runners.rust import read_libtest_output
from perdure.models.checks.report import TestCase
from tests.command_fixtures import Bench
from tests.needs import require
from tests.project_files import Files

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
