"""Files that two items change, conflicts foreseen between items, and the checks of what has landed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.checks.globs import matches
from perdure.models.backlog.request import CHECKS_MOST
from perdure.models.backlog.state import BacklogState, ItemPhase
from perdure.models.backlog.touches import (
    OVERLAP_STEPS,
    PLAN_PATTERNS_CHARS,
    TOUCHES_MOST,
    OverlapCheck,
    invalid_pattern_reason,
    patterns_of_paths,
    patterns_overlap,
)
from perdure.models.ids import delivery_key
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.landed_checks import (
    checks_for_landing,
    due_checks,
    record_branch_move,
    record_passed_checks,
    unchecked_summary,
)
from perdure.models.rules.scheduling import conflicts_text, item_views, record_conflicts
from tests.costs import examples
from tests.models.backlog_night import NOON, backlog


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


def building(*ids: str) -> BacklogState:
    state = backlog(*({"id": id} for id in ids))[1]
    for id, at in state.items.items():
        at.phase, at.child.id = ItemPhase.BUILDING, f"night/{id}"
    return state


def test_both_sides_show_it_until_one_has_landed_or_says_otherwise() -> None:
    state = building("api", "page", "docs")
    record_conflicts(state, "api", {delivery_key("night/page"): "src/app.py", "other-delivery": "x", "night/api": "y"})
    assert conflicts_text(state, "api") == "likely to conflict with page in src/app.py"
    assert conflicts_text(state, "page") == "likely to conflict with api in src/app.py"
    assert conflicts_text(state, "docs") == ""
    request = backlog({"id": "x"})[0]
    shown = {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)}
    assert shown["page"] == ("building", "likely to conflict with api in src/app.py")
    state.landing.queue = ("page",)
    shown = {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)}
    assert shown["page"] == ("landing", "is the next · likely to conflict with api in src/app.py")
    record_conflicts(state, "page", {})
    assert conflicts_text(state, "api") == "", "the newer commit goes with it"
    record_conflicts(state, "page", {delivery_key("night/api"): "a", delivery_key("night/docs"): "b"})
    assert conflicts_text(state, "page") == "likely to conflict with api in a, docs in b"
    state.items["api"].phase = ItemPhase.LANDED
    assert conflicts_text(state, "page") == "likely to conflict with docs in b"


def test_whatever_is_sent_little_is_kept() -> None:
    names = [f"i{at}" for at in range(30)]
    state = building(*names)
    record_conflicts(state, "i0", {delivery_key(f"night/{id}"): "p" * 5000 for id in names})
    assert len(state.items["i0"].foreseen.conflicts) == 10
    assert max(map(len, state.items["i0"].foreseen.conflicts.values())) == 200
    assert conflicts_text(state, "i0").endswith(" and 8 more")


def test_every_check_of_what_landed_has_its_turn_and_those_of_much_depended_on_come_first() -> None:
    items = [{"id": f"i{at}", "check": tuple(f"check {at} {n}" for n in range(at % 6 + 1))} for at in range(24)]
    _, state = backlog(*items, {"id": "last", "depends_on": ("i5",), "check": ("mine",)})
    for at in state.items.values():
        at.phase = ItemPhase.LANDED
    state.items["last"].phase = ItemPhase.BUILDING
    seen = list[str]()
    for round in range(6):
        found = checks_for_landing(state, "last")
        assert found.pop("last") == ("mine",)
        assert 0 < sum(map(len, found.values())) <= CHECKS_MOST
        if round == 0:
            assert next(iter(found)) == "i5"
        seen += found
        record_branch_move(state, found, NOON + timedelta(minutes=round))
    assert set(seen) == {f"i{at}" for at in range(24)}
    assert "last" not in Dependencies.from_state(state).blocked_by


def test_of_what_did_not_run_on_the_branch_as_it_is_the_first_are_named_and_the_rest_counted() -> None:
    _, state = backlog(*({"id": f"i{at}", "check": ("make smoke",)} for at in range(8)), {"id": "quiet"})
    for at in state.items.values():
        at.phase = ItemPhase.LANDED
    assert unchecked_summary(state) == "", "nothing is known of when the branch moved"
    record_branch_move(state, ["i7", "gone"], NOON)
    assert unchecked_summary(state) == (
        "the checks of i0, i1, i2, i3, i4 and 2 more are not known to hold on the branch as it is"
    )
    assert list(due_checks(state)) == [f"i{at}" for at in range(7)]
    record_passed_checks(state, [f"i{at}" for at in range(7)], NOON + timedelta(minutes=1))
    assert (unchecked_summary(state), due_checks(state)) == ("", {})
