"""The engine's own look at a change, on a real repository, is bounded and never crashes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from changes import Work, github_token, of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.checks.findings.content_findings import CHANGE_FILES, CHANGE_LINES
from perdure.adapters.checks.findings.engine_findings import FINDINGS_MOST, find_lost_tests, find_unproven_change
from perdure.models.checks.report import (
    CommandExperiment,
    Experiment,
    Finding,
    FindingRule,
    Findings,
    Severity,
    TestReport,
)
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.limits import FINDING_BINARY_BYTES
from tests.costs import untraced

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path / "work")


def test_an_ordinary_change_has_no_findings_and_its_size_is_told(work: Work) -> None:
    work.commit({"app.py": "x = 2\n", "new.py": "y = 1\nz = 2\n", "README.md": None})
    seen = work.look()
    found = seen.findings
    assert (found.findings, found.changed_tests, seen.secrets, sum(seen.counts.values())) == ((), (), 0, 0)
    assert (found.base, found.files, found.added, found.deleted) == (work.base, 3, 3, 2)


def test_nothing_changed_is_nothing_found(work: Work) -> None:
    assert work.look().findings.findings == ()


@pytest.mark.parametrize(
    ("files", "path", "how"),
    [
        ({".github/workflows/ci.yml": "on: push\n"}, ".github/workflows/ci.yml", "added"),
        ({"perdure.toml": "version = 1\n# x\n"}, "perdure.toml", "changed"),
        ({"perdure.toml": None}, "perdure.toml", "deleted"),
        ({"perdure.toml": None, "settings.toml": "version = 1\n"}, "perdure.toml", "deleted"),
    ],
)
def test_a_protected_path_blocks_whatever_happens_to_it(
    tmp_path: Path, files: dict[str, str | None], path: str, how: str
) -> None:
    work = Work(tmp_path / "w", {"perdure.toml": "version = 1\n", "app.py": "x\n"})
    [one] = work.found(files)
    assert (one.rule, one.severity, one.file) == (FindingRule.PROTECTED_PATH, Severity.BLOCKER, path)
    assert one.title.endswith(how)
    assert "[protect] paths of perdure.toml on main" in one.suggestion


MARKED = "a\n<<<<<<< landed\nb\n||||||| 1a2b3c4\nc\n=======\nd\n>>>>>>> this-delivery\n"


def test_marks_of_a_conflict_block(tmp_path: Path) -> None:
    long = "\n".join(map(str, range(60)))
    work = Work(tmp_path / "w", {"app.py": f"{long}\n", "README.md": "Title\n=======\n"})
    [one] = work.found(
        {"app.py": f"<<<<<<< landed\n{long}\n=======\nd\n>>>>>>> this-delivery\n", "b.py": "<<<<<<< x\n"}
    )
    assert (one.rule, one.severity, one.file, one.line) == (FindingRule.CONFLICT, Severity.BLOCKER, "app.py", 1)
    [other] = work.found({"app.py": "x\n", "b.py": MARKED.replace("\n", "\r\n")})
    assert (other.file, other.line) == ("b.py", 2)
    assert not work.found({"b.py": None, "c.md": "Title\n=======\n\n<<<<<<<\n  <<<<<<< a\n  =======\n  >>>>>>> b\n"})


def test_a_file_that_is_moved_into_a_protected_place_blocks(work: Work) -> None:
    [one] = work.found({"app.py": None, ".github/app.py": "x = 1\n"})
    assert (one.file, one.severity) == (".github/app.py", Severity.BLOCKER)


def test_a_link_in_the_place_of_a_protected_directory_blocks(work: Work) -> None:
    [one] = work.found({"ci/a.yml": "x\n"}, links={".github": "ci"})
    assert (one.file, one.rule) == (".github", FindingRule.PROTECTED_PATH)


def test_without_protected_paths_nothing_is_protected(work: Work) -> None:
    assert work.found({".github/x": "y\n", "perdure.toml": "version = 1\n"}, protect=[]) == []


@untraced()
def test_binaries_are_debt_large_ones_block_and_small_pictures_are_skippable(work: Work) -> None:
    found = work.found(
        {
            "logo.PNG": PNG,
            "data.bin": b"\0" * 100,
            "photo.jpg": b"\0" * (FINDING_BINARY_BYTES // 2),
            "big.bin": b"\0" * (FINDING_BINARY_BYTES + 1),
            "huge.txt": b"abc \n" * (17 * 1024**2 // 5),
        }
    )
    assert {one.file: one.severity for one in of(FindingRule.BINARY, found)} == {
        "big.bin": Severity.BLOCKER,
        "huge.txt": Severity.BLOCKER,
        "data.bin": Severity.TECH_DEBT,
        "photo.jpg": Severity.TECH_DEBT,
        "logo.PNG": Severity.SKIPPABLE,
    }
    assert any("17.0 MB" in one.title and "too large to be looked into" in one.title for one in found)
    assert of(FindingRule.SIZE, found) == []


def test_a_binary_that_was_as_large_before_does_not_block_and_one_that_goes_is_no_finding(tmp_path: Path) -> None:
    large = b"\0" * (FINDING_BINARY_BYTES + 1)
    work = Work(tmp_path / "w", {"big.bin": large, "old.bin": large})
    [one] = work.found({"big.bin": large + b"1", "old.bin": None})
    assert (one.file, one.severity, "changed" in one.title) == ("big.bin", Severity.TECH_DEBT, True)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../up", "../..", "a/../../..", "sub/../sub/x", ".git/config", "C:\\x", "a/" * 3000]
)
def test_a_link_that_leaves_the_tree_or_could_blocks(work: Work, target: str) -> None:
    if len(target) > 4000:
        (work.path / "long").write_text(target)
        blob = work.git("hash-object", "-w", "long")
        (work.path / "long").unlink()
        work.git("update-index", "--add", "--cacheinfo", f"120000,{blob},sub/link")
        work.git("commit", "-qm", "link")
        found = list(work.look().findings.findings)
    else:
        found = work.found({"sub/x": "1\n"}, links={"sub/link": target})
    [one] = of(FindingRule.SYMLINK, found)
    assert (one.severity, one.file) == (Severity.BLOCKER, "sub/link")


def test_a_link_within_the_tree_is_fine(work: Work) -> None:
    assert work.found({"sub/x": "1\n"}, links={"sub/link": "../app.py", "l": "sub/x", "dangling": "nowhere"}) == []


def test_a_submodule_blocks_and_one_that_moves_is_debt(work: Work) -> None:
    def bump(sha: str) -> None:
        work.git("update-index", "--add", "--cacheinfo", f"160000,{sha},lib")
        work.git("commit", "-qm", "bump")

    bump("1" * 40)
    [one] = work.look().findings.findings
    assert (one.severity, one.file, "added" in one.title) == (Severity.BLOCKER, "lib", True)
    work.base = work.git("rev-parse", "HEAD")
    bump("2" * 40)
    [one] = work.look().findings.findings
    assert (one.severity, "moved" in one.title) == (Severity.TECH_DEBT, True)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n"


@pytest.mark.parametrize("name", ["lfs", "git-crypt", "anything"])
def test_a_file_that_a_filter_should_have_stored_blocks(tmp_path: Path, name: str) -> None:
    attributes = f"*.bin filter={name} -text\n"
    files = {"a.bin": POINTER.format("1" * 64), "b.bin": POINTER.format("2" * 64), "c.txt": "c\n", "d.bin": "d\n"}
    work = Work(tmp_path / "filtered", {".gitattributes": attributes, **files})
    moved = {"a.bin": None, "moved.bin": files["a.bin"], "d.bin": None, "c.txt": "changed\n", "empty.bin": ""}
    assert work.found(moved) == []
    found = work.found(
        {"b.bin": POINTER.format("3" * 64), "new.bin": b"\0\1\2", ".gitattributes": attributes + "c.* filter=x"}
    )
    blockers = [(one.file, one.title) for one in of(FindingRule.FILTER, found) if one.severity is Severity.BLOCKER]
    assert blockers == [
        ("b.bin", f"the filter {name} did not run on it"),
        ("c.txt", "the filter x did not run on it"),
        ("new.bin", f"the filter {name} did not run on it"),
    ]


def test_what_tools_have_left_is_debt_unless_the_repository_means_it(work: Work) -> None:
    left = [".DS_Store", "a/calc.py.orig", "a/b.rej", ".coverage", "run.log", "x.o", "__pycache__/c.txt", "scratch.py"]
    found = of(FindingRule.LEFTOVER, work.found(dict.fromkeys([*left, "login.py", "orig.py", "coverage.py"], "x\n")))
    assert sorted(one.file for one in found) == sorted(left)
    assert {one.severity for one in found} == {Severity.TECH_DEBT}
    work.base = work.git("rev-parse", "HEAD")
    assert of(FindingRule.LEFTOVER, work.found({"run.log": "y\n", "a/other.log": "1\n", "a/b.rej": None})) == []


@untraced()
def test_a_large_change_is_debt_and_one_far_larger_blocks(work: Work) -> None:
    def severity(files: dict[str, str]) -> list[Severity]:
        return [one.severity for one in of(FindingRule.SIZE, work.found(dict(files)))]

    lines = "".join(f"line {n}\n" for n in range(CHANGE_LINES[1] + 1))
    assert severity({"package-lock.json": lines, "sub/uv.lock": lines}) == []
    assert severity({"a.txt": lines[: CHANGE_LINES[0] * 10]}) == [Severity.TECH_DEBT]
    assert severity({"a.txt": lines}) == [Severity.BLOCKER]


@untraced()
def test_files_that_only_move_do_not_make_a_change_large(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(CHANGE_LINES[1] + 1))
    work = Work(tmp_path / "w", {f"old/{n}.txt": f"{n}\n{text}" for n in range(3)})
    found = work.found(
        {**{f"old/{n}.txt": None for n in range(3)}, **{f"new/{n}.txt": f"{n}\n{text}" for n in range(3)}}
    )
    assert of(FindingRule.SIZE, found) == []


def test_many_findings_are_bounded_the_worst_first_and_the_rest_is_counted(work: Work) -> None:
    many = {f"b/{n:04}.bin": b"\0" for n in range(FINDINGS_MOST + 10)}
    protected = {f".github/{n}": "x\n" for n in range(3)}
    work.commit({**many, **protected})
    seen = work.look()
    listed = seen.findings.findings
    assert len(listed) == FINDINGS_MOST
    assert [one.severity for one in listed[:4]] == [Severity.BLOCKER] * 3 + [Severity.TECH_DEBT]
    assert seen.counts == {Severity.BLOCKER: 3, Severity.TECH_DEBT: len(many) + (len(many) + 3 > CHANGE_FILES[0])}
    assert f"{sum(seen.counts.values()) - FINDINGS_MOST + 1} more findings" in listed[-1].title


def test_a_branch_behind_its_base_is_judged_by_its_own_change(work: Work) -> None:
    work.git("checkout", "-q", "-b", "side")
    work.commit({"app.py": "x = 2\n"})
    work.git("checkout", "-q", "main")
    work.base = work.commit({".github/x": "ours\n", "big.bin": b"\0" * (FINDING_BINARY_BYTES + 1)})
    work.git("checkout", "-q", "side")
    found = work.look().findings
    assert (found.findings, found.files) == ((), 1)


def test_what_may_make_tests_say_less_is_shown_and_blocks_nothing(tmp_path: Path) -> None:
    before = "from app import f\n\n\ndef test_one():\n    assert f(1) == 1\n    assert f(2) == 2\n"
    work = Work(tmp_path / "w", {"tests/test_a.py": before, "app.py": "x\n"})
    weaker = before.replace("    assert f(2) == 2\n", "").replace("== 1", "== 3")
    work.commit({"tests/test_a.py": weaker.replace("def test", "@pytest.mark.skip\ndef test")})
    [one] = of(FindingRule.TAMPERING, list(work.look().findings.findings))
    assert (one.severity, one.file) == (Severity.SKIPPABLE, "tests/test_a.py")
    assert "tests may be left out" in one.title
    assert "+ @pytest.mark.skip" in one.description
    [changed] = work.look().findings.changed_tests
    assert (changed.name, changed.file) == ("test_one", "tests/test_a.py")


def test_a_secret_in_a_changed_test_is_not_shown_with_it(tmp_path: Path) -> None:
    token = github_token()
    before = "def test_one():\n    assert login('x') == 1\n"
    work = Work(tmp_path / "w", {"tests/test_a.py": before})
    work.commit({"tests/test_a.py": before.replace("'x'", f"'{token}'")})
    seen = work.look()
    assert seen.secrets == 1
    assert len(seen.findings.changed_tests) == 1
    assert token not in seen.findings.model_dump_json()


ODD = [
    *("sp ace", "tab\tx", "nl\nx", 'q"uote\\', "ü", "\udcff\udcfe", ":(top)x", "-dash", "a/b c/d"),
    *("\x1b[31m", "b/+++ b/x"),
]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(
        st.sampled_from(ODD),
        st.one_of(
            st.binary(max_size=200),
            st.lists(
                st.sampled_from(
                    [b"+++ b/x", b"--- a/x", b"diff --git a/x b/x", b"@@ -1,9 +1,9 @@", b"\\ No", b"", b"\r"]
                ),
                max_size=8,
            ).map(b"\n".join),
        ),
        min_size=1,
        max_size=5,
    ),
    again=st.binary(max_size=60),
)
def test_odd_names_and_contents_never_crash_and_a_token_among_them_is_found(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], again: bytes
) -> None:
    work = Work(tmp_path_factory.mktemp("odd") / "w")
    work.commit(files)
    token = github_token()
    name = next(iter(files))
    lines = files[name].replace(b"\0", b"") + b"\n" + again.replace(b"\0", b"") + b"\n"
    work.commit({name: lines + f"t = '{token}'\n".encode()})
    with untraced():
        seen = work.look()
    assert seen.secrets == 1
    [one] = of(FindingRule.SECRET, list(seen.findings.findings))
    assert one.line == lines.count(b"\n") + 1
    assert one.file.isprintable()
    assert Findings.model_validate_json(seen.findings.model_dump_json()) == seen.findings
    assert token not in seen.findings.model_dump_json()


@untraced()
def test_a_huge_change_is_looked_through_in_bounded_time(work: Work) -> None:
    token = github_token()
    text = "".join(f"{n:x}\n" for n in range(500_000))
    dense = "//a://:@.b@:_authToken=" * 20_000
    started = time.monotonic()
    work.commit({"numbers.txt": text, "dense.txt": dense, "last.txt": f"{token}\n"})
    found = work.look()
    assert found.secrets == 1
    assert time.monotonic() - started < 100


def contract(**tests: Any) -> Contract:
    config = RepositoryConfig.model_validate({"version": 1, "tests": tests})
    return Contract(
        delivery="d", repository="r", request="x", base="main", base_sha="0" * 40, branch="perdure/d", config=config
    )


def report(touched: tuple[str, ...] = ("tests/test_x.py",), **of: Any) -> TestReport:
    one = CommandExperiment(name="unit", command="pytest", **{"base_tests": 2, "base_passed": 2, **of})
    tried = Experiment(base="0" * 40, change="1" * 40, branch="main", touched=touched, commands=(one,))
    return TestReport(commit="1" * 40, tree="2" * 40, experiment=tried)


@pytest.mark.parametrize("kind", ["bug", "feature"])
def test_tests_that_pass_without_the_change_too_prove_nothing(kind: str) -> None:
    (one,) = find_unproven_change(contract(), report(proving=()), kind)
    assert (one.severity, one.title) == (Severity.TECH_DEBT, "the new tests prove nothing")
    assert "passes on main as well" in one.description


def test_a_change_without_any_test_has_nothing_that_would_tell_if_it_were_undone() -> None:
    (one,) = find_unproven_change(contract(), report(touched=(), proving=None), "feature")
    assert one.title == "no test comes with the change"


def test_the_repository_says_how_bad_it_is() -> None:
    (one,) = find_unproven_change(contract(new_tests_must_fail_before="blocker"), report(proving=()), "bug")
    assert one.severity is Severity.BLOCKER
    assert find_unproven_change(contract(new_tests_must_fail_before="off"), report(proving=()), "bug") == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (report(proving=("tests/test_x.py::test_new",)), "bug"),
        (report(proving=()), "chore"),
        (report(proving=()), ""),
        (report(proving=None), "bug"),
        (report(touched=(), proving=None, base_tests=None), "feature"),
        (None, "bug"),
    ],
    ids=["proved", "a chore", "of no kind", "not asked", "no test is known by name", "no report"],
)
def test_nothing_is_found_where_something_proves_it_or_nobody_could_be_asked(
    given: TestReport | None, kind: str
) -> None:
    assert find_unproven_change(contract(), given, kind) == []


TESTS = "def test_a():\n    assert f(1) == 2\n\n\ndef test_b():\n    assert f(2) == 3\n"
LESS = "def test_a():\n    assert f(1) == 2\n"
NAME = "tests/test_x.py::test_b"


def found(tmp_path: Path, files: dict[str, str | None], allowed: bool = False) -> list[Finding]:
    work = Work(tmp_path / "work", {"app.py": "x = 1\n", "tests/test_x.py": TESTS})
    change = work.commit(files)
    tried = Experiment(
        base=work.base,
        change=change,
        branch="main",
        touched=tuple(files),
        allowed=allowed,
        commands=(CommandExperiment(name="unit", command="pytest", base_tests=2, base_passed=2, lost=(NAME,)),),
    )
    return find_lost_tests(work.repository, TestReport(commit=change, tree="0" * 40, experiment=tried))


def test_a_test_that_is_gone_though_it_would_pass_is_tech_debt(tmp_path: Path) -> None:
    (one,) = found(tmp_path, {"tests/test_x.py": LESS})
    assert (one.rule, one.severity) == (FindingRule.LOST_TEST, Severity.TECH_DEBT)
    assert one.title == "1 test of main is gone: test_b"


@pytest.mark.parametrize(
    "files",
    [
        {"tests/test_x.py": TESTS.replace("test_b", "test_two")},
        {"tests/test_x.py": LESS, "tests/test_y.py": "def test_b():\n    assert f(2) == 3\n"},
    ],
    ids=["renamed", "moved"],
)
def test_a_renamed_or_moved_test_is_not_lost(tmp_path: Path, files: dict[str, str | None]) -> None:
    assert found(tmp_path, files) == []


def test_where_the_request_is_about_tests_nothing_is_lost(tmp_path: Path) -> None:
    assert found(tmp_path, {"tests/test_x.py": LESS}, allowed=True) == []
