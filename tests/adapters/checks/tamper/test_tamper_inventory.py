"""Tests that no run tells: gone, skipped or emptied in the files that differ, in every language that is read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tamper_change import Change, Judge

from perdure.adapters.checks.tamper import DifferingFiles, with_missing_tests
from perdure.adapters.checks.tamper.missing_tests import MissingTests, make_hit
from perdure.adapters.checks.verdict import verdict_of
from perdure.adapters.git.command import GitError
from perdure.adapters.git.repository import Repository
from perdure.models.checks.report import CommandResult, Tampering, TestCase, TestReport
from perdure.models.limits import TAMPER_HITS_MOST

JAVA = "src/test/java/CalcTest.java"
TEXTS = {
    "calc_test.go": 'package calc\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error("no")\n\t}\n}\n',
    "src/lib.rs": (
        "pub fn add(a: u8) -> u8 { a }\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n"
        "    fn adds() {\n        assert_eq!(add(1), 1);\n    }\n}\n"
    ),
    JAVA: (
        'class CalcTest {\n    @Test\n    @DisplayName("adds (well)")\n    void adds() throws Exception {\n'
        "        assertEquals(3, Calc.add(1, 2));\n    }\n}\n"
    ),
    "calc.test.js": (
        "describe('calc', () => {\n  test('adds', () => {\n"
        "    assert.equal(add(1, 2), 3); // 'as', \"ever\"\n  });\n});\n"
    ),
    "tests/test_calc.py": (
        "import pytest\n\n\ndef test_zero():\n    '''def test_none(): pass'''\n    assert parse('0s') == 0\n\n\n"
        "class TestAdd:\n    @pytest.mark.parametrize('n', [\n        1,\n    ])\n    def test_adds(self, n):\n"
        "        assert add(n, 2) == 3\n"
    ),
}


def edited(path: str, old: str, new: str) -> str:
    assert old in TEXTS[path]
    return TEXTS[path].replace(old, new)


@pytest.mark.parametrize(
    ("path", "old", "new", "want"),
    [
        ("calc_test.go", "func TestAdd", "func testAdd", "gone: TestAdd is gone"),
        ("calc_test.go", "\tif Add", "\tt.Skip()\n\tif Add", "skipped: TestAdd is skipped or expected to fail"),
        ("calc_test.go", "package", "//go:build never\n\npackage", "skipped: TestAdd is skipped or expected to fail"),
        ("calc_test.go", 't.Error("no")', "return", "hollow: TestAdd checks nothing any more"),
        ("src/lib.rs", "    #[test]\n", "", "gone: adds is gone"),
        ("src/lib.rs", "#[test]", "#[test]\n    #[ignore]", "skipped: adds is skipped or expected to fail"),
        ("src/lib.rs", "assert_eq!(add(1), 1);", "add(1);", "hollow: adds checks nothing any more"),
        (JAVA, "    @Test\n", "", "gone: adds is gone"),
        (JAVA, "@Test", "@Test\n    @Disabled", "skipped: adds is skipped or expected to fail"),
        (JAVA, "class", "@Disabled\nclass", "skipped: adds is skipped or expected to fail"),
        ("calc.test.js", "test('adds'", "note('adds'", "gone: adds is gone"),
        ("calc.test.js", "test('adds'", "test.skip('adds'", "skipped: adds is skipped or expected to fail"),
        ("calc.test.js", "describe(", "describe.skip(", "skipped: adds is skipped or expected to fail"),
        ("calc.test.js", "() => {\n    assert", "(t) => {\n    t.skip();\n    assert",
         "skipped: adds is skipped or expected to fail"),
        ("tests/test_calc.py", "def test_zero", "def zero", "gone: test_zero is gone"),
        ("tests/test_calc.py", "    def test_adds", "    def adds", "gone: test_adds is gone"),
        ("tests/test_calc.py", "def test_zero", "@pytest.mark.skip\ndef test_zero",
         "skipped: test_zero is skipped or expected to fail"),
        ("tests/test_calc.py", "def test_zero", "@pytest.fixture\ndef test_zero", "gone: test_zero is gone"),
        ("tests/test_calc.py", "    assert parse", "    parse", "hollow: test_zero checks nothing any more"),
    ],
)  # fmt: skip
def test_a_test_that_says_nothing_any_more_is_a_hit(hits: Judge, path: str, old: str, new: str, want: str) -> None:
    assert hits({path: TEXTS[path]}, {path: edited(path, old, new)}) == [want]


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("calc_test.go", {"calc_test.go": edited("calc_test.go", "TestAdd", "TestAddition")}),
        ("src/lib.rs", {"src/lib.rs": "pub fn add(a: u8) -> u8 { a }\n", "tests/add.rs": TEXTS["src/lib.rs"]}),
        ("src/lib.rs", {"src/lib.rs": edited("src/lib.rs", "{ a }", "{ a + 0 }")}),
        (JAVA, {JAVA: None, "SumTest.java": TEXTS[JAVA]}),
        ("calc.test.js", {"calc.test.js": edited("calc.test.js", "'adds'", "'sums'")}),
        ("tests/test_calc.py", {"tests/test_calc.py": None, "tests/unit/test_sums.py": TEXTS["tests/test_calc.py"]}),
        ("tests/test_calc.py", {"tests/test_calc.py": edited("tests/test_calc.py", "test_zero", "test_nothing")}),
    ],
)  # fmt: skip
def test_a_twin_that_does_the_same_or_is_called_the_same_is_no_hit(
    hits: Judge, path: str, after: dict[str, str | None]
) -> None:
    assert hits({path: TEXTS[path]}, after) == []


def test_one_twin_does_not_stand_in_for_two_tests(hits: Judge) -> None:
    body = "():\n    assert parse('0s') == 0\n\n\n"
    two = {"test_a.py": f"def test_a{body}def test_b{body}"}
    assert hits(two, {"test_a.py": f"def test_c{body}"}) == ["gone: test_b is gone"]
    assert hits(two, {"test_a.py": f"def test_a{body}"}) == ["gone: test_b is gone"]


def test_doctests_count_where_a_command_runs_them(hits: Judge) -> None:
    before = {"calc.py": 'def add(a, b):\n    """Sum.\n\n    >>> add(1, 2)\n    3\n    """\n    return a + b\n'}
    after = {"calc.py": 'def add(a, b):\n    """Sum."""\n    return a + b\n'}
    assert hits(before, after, "pytest --doctest-modules") == ["gone: doctest of add is gone"]
    assert hits(before, after, "pytest") == []


def test_a_test_file_that_is_gone_or_cannot_be_read_takes_its_tests_with_it(hits: Judge) -> None:
    path = "tests/test_calc.py"
    assert hits({path: TEXTS[path]}, {path: None}) == [f"gone: test_zero, test_adds are gone with {path}"]
    for text in (b"\0\1", b"\xff\xfe", "-> ../secret", "x = 1\n" * 200_000):
        (found,) = hits({path: TEXTS[path]}, {path: text})
        assert found == f"gone: {path} cannot be read any more, and with it test_zero, test_adds"
    ruby = {"spec/calc_spec.rb": "describe Calc do\nend\n"}
    assert hits(ruby, {"spec/calc_spec.rb": None}) == ["gone: spec/calc_spec.rb is gone"]
    assert hits(ruby, {"spec/calc_spec.rb": None, "spec/sum_spec.rb": ruby["spec/calc_spec.rb"]}) == []


def test_what_a_runner_names_or_an_experiment_covers_is_left_to_them(repository: Path) -> None:
    path = "tests/test_calc.py"
    change = Change(repository, {path: TEXTS[path]}, {path: None})
    assert change.missing(covered=[path]).hits == ()
    case = TestCase(name=f"{path}::test_zero", file=path, outcome="passed")
    (left,) = change.missing(base=report(case)).hits
    assert left.title == f"test_adds is gone with {path}"


def test_what_others_added_to_the_base_meanwhile_is_not_missing_here(repository: Path) -> None:
    path = "tests/test_calc.py"
    more = {path: TEXTS[path] + "\n\ndef test_new():\n    assert parse('5s') == 5\n"}
    assert Change(repository, more, {"calc.py": "x\n"}, common={path: TEXTS[path]}).missing().hits == ()


@pytest.mark.parametrize(
    "text",
    [
        *("try{" * 50_000, "@Test\n" * 50_000, "#[cfg" * 50_000, " " * 900_000),
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in (
                *("test('x'," * 50_000, "`${" * 50_000, "describe.skip('x', " * 30_000, "class a:\n" * 50_000),
                *("'''\\" * 50_000, "/*" * 100_000, "def test_a():\n" * 50_000, "/" * 400_000, "func " * 100_000),
            )
        ),
    ],
)
def test_sources_made_to_choke_on_are_read_in_time(repository: Path, text: str) -> None:
    paths = ["a.test.js", "ATest.java", "a_test.go", "build.gradle", "test_a.py", "Makefile", "lib.rs", "test_a.php"]
    began = time.process_time()
    change = Change(repository, dict.fromkeys(paths, "x\n"), dict.fromkeys(paths, text.encode()))
    change.missing()
    change.hints()
    assert time.process_time() - began < 60


def test_a_change_of_everything_lists_a_bounded_number_of_hits(repository: Path) -> None:
    tests = "".join(f"def test_{n}():\n    assert run({n})\n\n\n" for n in range(200))
    hits = Change(repository, {"test_a.py": tests}, {"test_a.py": "x = 1\n"}).missing().hits
    assert len(hits) == TAMPER_HITS_MOST
    assert hits[-1].title == "and 151 places more"


def test_a_commit_that_is_not_there_is_an_error_and_no_empty_answer(repository: Path) -> None:
    change = Change(repository, {"a": "1\n"}, {"a": "2\n"})
    for base, head in (("0" * 40, change.head), (change.base, "0" * 40), ("none", change.head), (change.base, "-p")):
        with pytest.raises(GitError):
            DifferingFiles.between_commits(Repository(repository), base, head)


def report(*cases: TestCase) -> TestReport:
    result = CommandResult(name="t0", command="x", verdict="passed", cases=cases)
    return TestReport(commit="c" * 40, tree="d" * 40, base="main", commands=(result,))


def test_hits_make_a_verdict_red_and_stand_in_its_note_unless_they_were_asked_for(repository: Path) -> None:
    passed = report(TestCase(name="test_one", outcome="passed"))
    long = "fn adds() {\n" + "        assert!(add(1) == 1);\n" * 60 + "    }"
    before = edited("src/lib.rs", "fn adds() {\n        assert_eq!(add(1), 1);\n    }", long)
    change = Change(repository, {"src/lib.rs": before}, {"src/lib.rs": "\n"})
    found = change.missing()
    told = with_missing_tests(passed, found, allowed=False)
    assert (verdict_of(told).status, verdict_of(told).tampered, verdict_of(told).failures) == (
        "red",
        1,
        ("adds is gone",),
    )
    assert found.hits[0].evidence.endswith("…")
    assert (
        "allow_test_changes" in change.missing().hits[0].evidence or f"`git show {change.base[:12]}:FILE`" in told.note
    )
    allowed = with_missing_tests(passed, found, allowed=True)
    assert (verdict_of(allowed).status, verdict_of(allowed).tampered, allowed.note) == ("green", 0, "")
    assert json.loads(allowed.model_dump_json())["tampering"][0]["rule"] == "gone"
    assert with_missing_tests(passed, MissingTests(), allowed=False) == passed


def test_a_title_holds_nothing_that_moves_a_cursor_or_turns_letters_round() -> None:
    assert make_hit(Tampering.GONE, "a\x1b[2J\u202e\u200b\x07 b\nc", "x").title == "a b c"
