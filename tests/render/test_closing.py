"""The last lines of a delivery, and two deliveries side by side."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.models.delivery import result as results
from perdure.models.delivery.comparison import ComparedDelivery, FileChange, compare_deliveries
from perdure.models.delivery.result import (
    DeliveryResult,
    PullRequest,
    Reason,
    Receipt,
    ReviewResult,
    ReviewStatus,
    Status,
    StepRecord,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.render.comparison import comparison_lines
from perdure.render.progress_lines import closing_lines

DELIVERED = DeliveryResult(
    delivery_id="durations-parse-3f9c",
    run_id="r",
    status=Status.DELIVERED,
    repository="https://github.com/me/durations",
    pull_request=PullRequest(number=12, url="https://github.com/me/durations/pull/12", title="feat: x"),
    tests=results.TestsResult(
        status=results.TestsStatus.GREEN, tree_sha="c0ffee1" + 33 * "0", passed=44, failed=0, new_failures=0
    ),
    review=ReviewResult(status=ReviewStatus.CLEAN, tech_debt=1),
    usage=UsageResult(
        input_tokens=3000, cache_read_tokens=108_100, cache_write_tokens=6200, output_tokens=700, cost_usd=0.43
    ),
    receipt=Receipt(worker_deaths=1, turns_redone=1),
    next=("perdure diff durations-parse-3f9c", "perdure show durations-parse-3f9c"),
)


def test_the_end_says_what_exists_and_what_it_took() -> None:
    assert closing_lines(DELIVERED, 188) == [
        "Delivered  https://github.com/me/durations/pull/12",
        "  tests    44 passed, 0 new failures                 review  0 blockers, 1 tech debt",
        "  cost     $0.43 · 118k tokens, 92 % from cache      time    3m 08s",
        "  receipt  1 worker death · 1 turn redone · 0 replies paid twice · green on tree c0ffee1",
        "  next     perdure diff durations-parse-3f9c",
        "           perdure show durations-parse-3f9c",
    ]


def test_what_an_error_says_and_how_to_mend_it_stand_on_lines_of_their_own() -> None:
    message = "setup failed: exit code 2\nls: no such file\n  where: [setup] ls x\n  fix: correct [setup] commands"
    changes = {"status": Status.NOT_DELIVERED, "reason": Reason.SETUP_FAILED, "message": message, "pull_request": None}
    assert closing_lines(DELIVERED.model_copy(update=changes))[:4] == [
        "Not delivered  setup failed: exit code 2",
        "           ls: no such file",
        "  where    [setup] ls x",
        "  fix      correct [setup] commands",
    ]


def test_what_the_forge_did_not_take_is_noted_and_takes_nothing_from_the_delivery() -> None:
    noted = DELIVERED.model_copy(update={"message": "the label perdure was not set: it may not be made here"})
    assert closing_lines(noted)[:2] == [
        "Delivered  https://github.com/me/durations/pull/12",
        "  note     the label perdure was not set: it may not be made here",
    ]


def test_a_receipt_names_a_tree_only_for_tests_that_ran() -> None:
    untested = DELIVERED.model_copy(update={"tests": results.TestsResult(tree_sha="c0ffee1" + 33 * "0")})
    assert "c0ffee1" not in "\n".join(closing_lines(untested))


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        (
            {"status": Status.DRAFT, "message": "not reviewed"},
            "Draft  https://github.com/me/durations/pull/12 – not reviewed",
        ),
        (
            {
                "status": Status.NOT_DELIVERED,
                "reason": Reason.TESTS_RED,
                "message": "red after 4 fixes",
                "pull_request": None,
            },
            "Not delivered  tests red: red after 4 fixes",
        ),
        (
            {
                "status": Status.NOT_DELIVERED,
                "reason": Reason.TESTS_RED,
                "message": "tests are red: unit: exit code 1",
                "pull_request": None,
            },
            "Not delivered  tests are red: unit: exit code 1",
        ),
        (
            {
                "status": Status.NOT_DELIVERED,
                "reason": Reason.TAMPERED,
                "message": "tampered: test_adds is gone",
                "pull_request": None,
            },
            "Not delivered  tampered: test_adds is gone",
        ),
        ({"status": Status.NO_CHANGES, "message": "nothing to do", "pull_request": None}, "No changes  nothing to do"),
        (
            {"status": Status.CANCELLED, "branch": "perdure/d", "checkpoint": "a" * 40, "pull_request": None},
            "Cancelled  branch perdure/d and checkpoint aaaaaaa kept",
        ),
        ({"status": Status.CANCELLED, "pull_request": None}, "Cancelled  before there was anything to keep"),
        (
            {
                "status": Status.COMPLETED,
                "pull_request": None,
                "steps": (StepRecord(step="classify"), StepRecord(step="plan")),
                "branch": None,
            },
            "Completed  plan",
        ),
        (
            {
                "status": Status.COMPLETED,
                "pull_request": None,
                "steps": (StepRecord(step="run_tests"), StepRecord(step="push_branch")),
                "branch": "topic",
                "message": "2 commits pushed to topic",
            },
            "Completed  test · 2 commits pushed to topic",
        ),
    ],
)
def test_every_end_has_its_headline(changes: dict[str, Any], headline: str) -> None:
    assert closing_lines(DELIVERED.model_copy(update=changes))[0] == headline


def test_money_at_risk_and_replies_cut_are_never_hidden() -> None:
    result = DELIVERED.model_copy(
        update={"usage": UsageResult(cost_usd=None, at_risk_usd=0.25), "receipt": Receipt(replies_cut=1)}
    )
    text = "\n".join(closing_lines(result))
    assert "cost unknown · up to $0.25 more for replies cut off" in text
    assert "1 reply cut off" in text


def test_failures_that_were_there_before_and_flaky_tests_are_counted_apart() -> None:
    tests = DELIVERED.tests.model_copy(update={"failed": 2, "known_failures": 2, "flaky": 1})
    shown = closing_lines(DELIVERED.model_copy(update={"tests": tests}))
    assert shown[1].startswith("  tests    44 passed, 2 failed, 0 new failures, 2 before too, 1 flaky  ")


def test_tests_that_were_tampered_with_are_counted() -> None:
    tests = DELIVERED.tests.model_copy(update={"tampered": 2})
    assert (
        "44 passed, 0 new failures, 2 places tampered with"
        in closing_lines(DELIVERED.model_copy(update={"tests": tests}))[1]
    )


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
