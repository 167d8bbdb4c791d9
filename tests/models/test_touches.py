"""Patterns of files that two items change: they are never told apart where one file is meant by both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.checks.globs import matches
from perdure.models.backlog.touches import (
    OVERLAP_STEPS,
    PLAN_PATTERNS_CHARS,
    TOUCHES_MOST,
    OverlapCheck,
    invalid_pattern_reason,
    patterns_of_paths,
    patterns_overlap,
)
from tests.examples import examples


@pytest.mark.parametrize(
    ("one", "other", "met"),
    [
        ("src/api/**", "src/web/**", False),
        ("src/**", "src/api/x.py", True),
        ("src/**/", "src", True),
        ("src/api", "src/api2", False),
        ("src/api", "src/api/v1/x.py", True),
        ("./src/api/", "src//api", True),
        ("docs", "src", False),
        ("docs", "src/docs/x.md", False),
        ("**", "x/y.py", True),
        ("*.md", "README.md", True),
        ("*.md", "src/a.py", False),
        ("*.md", "docs", True),
        ("*.md", "docs/**", True),
        ("src/*.py", "src/a*", True),
        ("src/*.py", "src/a.js", False),
        ("src/?.py", "src/ab.py", False),
        ("src/[ab].py", "src/c.py", True),  # a class stands for any character
        ("src/[]]a.py", "src/xa.py", True),
        ("src/[[:alpha:]].py", "src/x.py", True),
        ("src/[ab", "src/a", False),  # no class
        (r"src/\*.py", "src/a.py", False),
        ("x/**/y.py", "x/y.py", True),
        ("x/**/y.py", "x/q/r/z.py", False),
        ("x/a*b*c.py", "x/a*d.py", False),
        ("v1.2/", "v1.2/x.py", True),
        ("**/test_*.py", "tests/test_a.py", True),
        (".github", ".github/workflows/ci.yml", True),
        ("Ünï/**", "Ünï/x.py", True),
    ],
)
def test_patterns_meet_where_they_mean_one_file(one: str, other: str, met: bool) -> None:
    assert patterns_overlap(one, other) is met
    assert patterns_overlap(other, one) is met


NAMES = st.sampled_from(("a", "b", "ab", "*", "a*", "*b", "?", "[ab]", "**", "**", "a*b*"))
ENDS = st.sampled_from(("", "/", "/*.x", "/a.x"))
GLOBS = st.builds(lambda names, end: "/".join(names) + end, st.lists(NAMES, min_size=1, max_size=4), ENDS)
PLACES = st.lists(st.text("ab", min_size=1, max_size=3), max_size=4)
PATHS = st.builds(lambda names, end: "/".join([*names, end]), PLACES, st.text("ab.x", min_size=1, max_size=4))


@settings(max_examples=examples(600), deadline=None)
@given(GLOBS, GLOBS, st.lists(PATHS, min_size=1, max_size=8))
def test_no_file_is_meant_by_both_of_two_that_do_not_meet(one: str, other: str, paths: list[str]) -> None:
    both = [path for path in paths if matches(path, rooted(one)) and matches(path, rooted(other))]
    assert patterns_overlap(one, other) == patterns_overlap(other, one) == OverlapCheck().may_overlap((one,), (other,))
    if both:
        assert patterns_overlap(one, other), both
    assert patterns_overlap(one, one)


def rooted(pattern: str) -> str:
    """As .gitignore writes it: here a plain name is the one at the root."""
    return f"/{pattern}" if not any(wild in pattern for wild in "*?[/") or pattern in ("a/", "b/", "ab/") else pattern


def test_hostile_patterns_are_bounded_and_count_as_meeting() -> None:
    stars = tuple("src/" + "*a" * 120 + f"b{at}.py" for at in range(20))
    others = tuple("src/" + "*a" * 120 + f"c{at}.py" for at in range(20))
    meeting = OverlapCheck()
    assert meeting.may_overlap(stars, others), "past the limit"
    assert meeting.steps < 2 * OVERLAP_STEPS
    assert not OverlapCheck().may_overlap(("src/a*.py",), ("src/b*.py",))


def test_the_same_question_takes_the_same_steps_whatever_was_asked_before() -> None:
    first, second = OverlapCheck(), OverlapCheck()
    first.may_overlap(("src/**/x*y*.py",), ("src/a/x*z.py",))
    second.may_overlap(("src/**/x*y*.py",), ("src/a/x*z.py",))
    assert first.steps == second.steps > 1


def test_a_plans_files_are_patterns_of_the_repository_and_few() -> None:
    written = [
        "./src/app.py",
        "`docs/a.md`",
        "src/app.py:12",
        "src/new.py (new)",
        "/etc/passwd",
        "../x",
        " ",
        "!a",
        "a",
    ]
    assert patterns_of_paths(written, ["src/app.py"]) == ("a", "docs/a.md", "src/app.py", "src/new.py")
    many = [f"src/api/part{at}.py" for at in range(30)] + ["README.md", "src/web/page.py"]
    assert patterns_of_paths(many) == ("README.md", "src/api/", "src/web/")
    assert patterns_of_paths([f"file{at}.py" for at in range(30)]) == ("**",)
    assert patterns_of_paths(["src / app.py", ". /b"]) == ("b", "src/app.py"), "as some write it"


@given(st.lists(st.text(alphabet="ab/*[]. ", max_size=12), max_size=40))
def test_what_is_learnt_is_no_more_than_fits_and_meets_every_file_it_was_learnt_from(paths: list[str]) -> None:
    found = patterns_of_paths(paths)
    assert len(found) <= TOUCHES_MOST
    assert sum(map(len, found)) <= PLAN_PATTERNS_CHARS
    assert patterns_of_paths(found) == found, "said again it is the same"
    for path in paths:
        plain = path.strip().removeprefix("./")
        if plain and not invalid_pattern_reason(plain) and not set(plain) & set("*[] "):
            assert any(patterns_overlap(plain, one) for one in found), plain
