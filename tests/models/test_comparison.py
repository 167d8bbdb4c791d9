"""Two changes beside each other: what is the same is known by its hunks, never by its numbers of lines alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.delivery.comparison import ComparedDelivery, compare_deliveries, parse_patch
from perdure.models.delivery.result import ReviewResult, TestsResult

PATCH = """\
diff --git a/calc.py b/calc.py
index 1111111..2222222 100644
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,3 @@
 def add(a, b):
-    return a - b
+    return a + b
+
diff --git a/logo.png b/logo.png
index 3333333..4444444 100644
Binary files a/logo.png and b/logo.png differ
"""


def side(id: str = "night", patch: str = PATCH, **more: object) -> ComparedDelivery:
    files = parse_patch(patch)
    known: dict[str, object] = {
        "delivery_id": id,
        "status": "delivered",
        "reason": "",
        "message": "",
        "repository": "/r",
        "base_sha": "b",
        "branch": f"perdure/{id}",
        "head_sha": "a" * 40,
        "pull_request": None,
        "files": files,
        "cut": False,
        "added": sum(one.added for one in files.values()),
        "deleted": sum(one.deleted for one in files.values()),
        "tests": TestsResult(),
        "review": ReviewResult(),
        "cost_usd": 0.25,
        "tokens": 10,
        "turns": 3,
        "seconds": 61.0,
        "worker_deaths": 0,
        "forked_from": "",
        "inherited_turns": 0,
        "inherited_usd": 0.0,
    }
    return ComparedDelivery.model_validate(known | more)


def test_the_files_of_a_patch_have_their_lines_and_a_binary_one_has_none() -> None:
    files = parse_patch(PATCH)
    assert {name: (one.added, one.deleted) for name, one in files.items()} == {"calc.py": (2, 1), "logo.png": (0, 0)}


def test_the_same_change_on_another_base_is_the_same_and_another_one_of_as_many_lines_is_not() -> None:
    again = PATCH.replace("1111111..2222222", "5555555..6666666")
    assert compare_deliveries(side(), side("other", again)).same
    found = compare_deliveries(side(), side("other", PATCH.replace("return a + b", "return b + a")))
    assert [one.same for one in found.files] == [False, True]
    assert not found.same
    binary = compare_deliveries(side(), side("other", PATCH.replace("3333333..4444444", "3333333..7777777")))
    assert [one.same for one in binary.files] == [True, False]


def test_two_changes_of_nothing_are_not_called_the_same() -> None:
    assert not compare_deliveries(side(patch=""), side("other", "")).same


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (side(), side("f", forked_from="night at implement:4"), "f is forked from night at implement:4"),
        (side("f", forked_from="night at implement:4"), side(), "f is forked from night at implement:4"),
        (
            side("f", forked_from="n at plan:1"),
            side("g", forked_from="n at plan:1"),
            "both are forked from n at plan:1",
        ),
        (side("n/attempt-1"), side("n/attempt-2"), "attempts of n"),
        (side("n"), side("n/attempt-2"), "n/attempt-2 is an attempt of it"),
        (side("night"), side("nightly"), ""),
    ],
)
def test_what_they_have_to_do_with_each_other_is_said(
    left: ComparedDelivery, right: ComparedDelivery, said: str
) -> None:
    assert compare_deliveries(left, right).related == said


def test_an_unknown_cost_stays_unknown_and_what_is_inherited_is_not_counted_twice() -> None:
    forked = side("f", forked_from="night at implement:4", inherited_usd=0.25, cost_usd=0.5)
    assert compare_deliveries(side(), forked).cost_usd == 0.75
    assert compare_deliveries(side(), side("other", cost_usd=None)).cost_usd is None


def test_other_repositories_and_other_bases_are_named() -> None:
    assert compare_deliveries(side(), side("o", repository="/s")).differ == ("they are of different repositories",)
    assert compare_deliveries(side(), side("o", base_sha="c")).differ == ("they began on different commits",)


_NAMES = st.text("abc/._", min_size=1, max_size=8).filter(lambda name: " b/" not in name)


@given(st.dictionaries(_NAMES, st.lists(st.sampled_from(["+x", "-y", " z"]), min_size=1, max_size=6)))
def test_every_file_of_any_patch_is_on_one_side_as_often_as_on_the_other(files: dict[str, list[str]]) -> None:
    patch = "".join(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n"
        + "".join(f"{line}\n" for line in lines)
        for name, lines in files.items()
    )
    found = parse_patch(patch)
    assert {name: one.added + one.deleted for name, one in found.items()} == {
        name: sum(line[0] in "+-" for line in lines) for name, lines in files.items()
    }
    both = compare_deliveries(side(patch=patch), side("other", patch))
    assert both.same == bool(files)
    assert [one.path for one in both.files] == sorted(files)
