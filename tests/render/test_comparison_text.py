"""Two deliveries side by side fit into 60 columns, whatever they are called."""

from __future__ import annotations

import pytest

from perdure.models.delivery.comparison import ComparedDelivery, FileChange, compare_deliveries
from perdure.models.delivery.result import ReviewResult, ReviewStatus, TestsResult, TestsStatus
from perdure.render.comparison import comparison_lines

TESTS = TestsResult(status=TestsStatus.GREEN, passed=44, new_failures=0, fixed=2)
REVIEW = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=2)


def side(id: str, added: int, **more: object) -> ComparedDelivery:
    files = {"src/a\x1b[31m.py": FileChange(added=added, deleted=1, sha256=str(added))}
    return ComparedDelivery.model_validate(
        {
            "delivery_id": id,
            "status": "not_delivered",
            "reason": "tests_red",
            "message": "",
            "repository": "/r",
            "base_sha": "b",
            "branch": id,
            "head_sha": "a" * 40,
            "pull_request": None,
            "files": files,
            "added": added,
            "deleted": 1,
            "cut": False,
            "tests": TESTS,
            "review": REVIEW,
            "cost_usd": 1.5,
            "tokens": 10,
            "turns": 7,
            "seconds": 61.0,
            "worker_deaths": 1,
            "forked_from": "",
            "inherited_turns": 0,
            "inherited_usd": 0.0,
            **more,
        }
    )


@pytest.mark.parametrize("width", [60, 88, 200])
def test_every_line_fits_and_both_are_told(width: int) -> None:
    long = "a-delivery-whose-name-is-rather-long-and-then-some-fork-1a2b"
    forked = side(long, 3, forked_from="night at implement:4", inherited_turns=5, inherited_usd=0.5)
    lines = comparison_lines(compare_deliveries(side("night", 3), forked), width)
    aside = [line for line in lines if "is forked from" not in line]
    assert max(map(len, aside)) <= width, aside
    told = " ".join(" ".join(lines).split())
    for words in ("44 passed", "2 tech debt", "$1.50, beside $0.50", "after 5 inherited", "the same", "+3 −1"):
        assert words in told, lines
    assert "together $3.00" in lines
    assert "\x1b" not in told


def test_what_only_one_side_has_is_a_dash_on_the_other() -> None:
    lines = comparison_lines(compare_deliveries(side("night", 3), side("other", 4, files={}, worker_deaths=0)), 60)
    assert any(line.split() == ["deaths", "1", "–"] for line in lines), lines
    assert any(line.split() == ["+3", "−1", "–"] for line in lines), lines
