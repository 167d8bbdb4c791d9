"""What history alone says of a delivery: state, steps, turns, deaths; also when it is torn or from another release."""

from __future__ import annotations

from typing import Any

import pytest
from report_samples import at, stamp

from perdure.client.history.fold import ActivityRecord, DeliveryHistory
from perdure.client.history.state import state_of, steps_of
from perdure.models.delivery.result import ReviewStatus, StepRecord, TestsStatus
from perdure.render.report.gather import deaths_of, parse_time, step_start_times, turns_of

PREPARED = {
    "queue": "host-1", "base_commit": {"branch": "main", "sha": "b" * 40}, "head": "b" * 40, "branch": "perdure/d",
    "checkpoint": "c0", "policy": "p", "phases": ["plan", "build", "test", "review", "ship"],
}  # fmt: skip


def act(
    activity: str, start: float, end: float | None, result: dict[str, Any] | None = None, **more: Any
) -> ActivityRecord:
    return ActivityRecord(
        activity=activity, input={}, scheduled=at(start), ended=None if end is None else at(end), result=result, **more
    )


def turn(step: str, start: float, end: float | None, number: int, **result: Any) -> ActivityRecord:
    told = {"checkpoint": f"c{number}", "summary": f"turn {number}", "usage": {"cost_usd": 0.1, "output_tokens": 7}}
    return act(step, start, end, None if end is None else told | result, attempt=1, turn=number, tries=1)


ACTS = (
    act("prepare", 0, 3, PREPARED, tries=1),
    act("check_access", 3, 4, {}),
    turn("plan", 4, 6, 1),
    turn("plan", 6, 8, 2, outcome={"summary": "1 task", "artifact": "a" * 64, "data": {"title": "Add sub"}}),
    turn("implement", 8, 12, 1),
    ActivityRecord(
        activity="implement", input={}, scheduled=at(12), began=at(15), ended=at(18), died=True, tries=3, attempt=1,
        turn=2, result={"checkpoint": "c9", "summary": "turn 2", "usage": {"cost_usd": 0.2}, "outcome": {}},
    ),
    act("commit", 18, 19, {"commit": "h" * 40, "summary": "+1 in 1 file"}, attempt=1),
    act("run_tests", 19, 25, {"status": "red", "tree": "t" * 40, "report": "r" * 64, "summary": "1 fails"}, attempt=1),
    turn("fix_tests", 25, None, 1),
)  # fmt: skip


def test_the_state_is_what_the_activities_gave() -> None:
    state = state_of(DeliveryHistory(activities=ACTS))
    assert state.prepared is not None
    assert (state.prepared.queue, state.planning.plan, state.planning.title, state.building.head) == (
        "host-1",
        "a" * 64,
        "Add sub",
        "h" * 40,
    )
    assert state.testing.verdict is not None
    assert (state.testing.verdict.status, state.testing.verdict.report) == (TestsStatus.RED, "r" * 64)
    assert state.spending.usage.cost_usd == pytest.approx(0.5)
    assert state.turns.checkpoint == "c9"


def test_a_retry_begins_from_what_it_was_given_and_counts_no_turn_twice() -> None:
    resume = {
        "run_id": "r1",
        "state": {
            "planning": {"plan": "x" * 64},
            "spending": {"usage": {"cost_usd": 0.3}},
            "reviewing": {"review": "v" * 64},
        },
    }
    state = state_of(DeliveryHistory(request={"resume": resume}, activities=ACTS[4:5]))
    assert (state.planning.plan, state.reviewing.review, state.spending.usage.cost_usd) == ("x" * 64, "v" * 64, 0.1)


@pytest.mark.parametrize("odd", [{"status": "purple"}, {"tree": 5}, {}])
def test_results_of_another_release_are_passed_over(odd: dict[str, Any]) -> None:
    state = state_of(
        DeliveryHistory(request={"resume": {"state": {"phase": "lunch"}}}, activities=(act("run_tests", 0, 1, odd),))
    )
    assert state.testing.verdict is None
    assert turns_of([act("plan", 0, 1, {"usage": "none"})])[0].cost_usd == 0


def test_steps_are_told_again_from_their_activities() -> None:
    told = [(r.step, r.status, r.turns, r.cost_usd, r.duration_s, r.summary) for r in steps_of(ACTS)]
    assert told == [
        ("prepare", "done", 0, 0.0, 3.0, ""),
        ("plan", "done", 2, 0.2, 4.0, "1 task"),
        ("implement", "done", 2, 0.3, 10.0, ""),
        ("commit", "done", 0, 0.0, 1.0, "+1 in 1 file"),
        ("run_tests", "failed", 0, 0.0, 6.0, "1 fails"),
        ("fix_tests", "running", 0, 0.0, None, ""),
    ]
    again = (act("open_pull_request", 0, 1, failure="away"), act("open_pull_request", 60, 61, {"summary": "#1"}))
    (shipped,) = steps_of(again)
    assert (shipped.status, shipped.duration_s, shipped.summary) == ("done", 61.0, "#1")
    stopped = steps_of([act("run_tests", 0, 1, failure="cancelled"), act("review", 1, 2, failure="x" * 500, attempt=1)])
    assert [(record.status, len(record.summary)) for record in stopped] == [("cancelled", 9), ("failed", 100)]


def test_a_review_that_blocks_and_a_step_that_gives_up_have_failed() -> None:
    blocked = turn("review", 0, 1, 1, outcome={"summary": "1 blocker", "data": {"blocker": 1}})
    refused = turn("plan", 2, 3, 1, outcome={"ending": "refused"})
    between = turn("implement", 4, 5, 1)
    assert [record.status for record in steps_of([blocked, refused, between])] == ["failed", "failed", "running"]


def test_what_the_engine_found_counts_beside_the_reviewer_s_words_as_the_workflow_counts_it() -> None:
    secret = act("inspect_change", 0, 1, {"blockers": 1, "secrets": 1, "tech_debt": 2, "summary": "a secret in key.py"})
    clean = turn("review", 1, 2, 1, outcome={"summary": "no blockers", "data": {"tech_debt": 1}})
    reviewed = state_of(DeliveryHistory(activities=(secret, clean))).reviewing.result
    assert (reviewed.status, reviewed.blockers, reviewed.tech_debt) == (ReviewStatus.BLOCKED, 1, 3)
    (record,) = steps_of([secret, clean])
    assert (record.status, record.summary) == ("failed", "no blockers; a secret in key.py")
    mended = act("inspect_change", 3, 4, {})
    assert [one.status for one in steps_of([secret, clean, mended, turn("fix_review", 4, 5, 1, outcome={})])][
        1
    ] == "done"


def test_a_price_that_is_not_known_makes_the_step_unknown() -> None:
    (record,) = steps_of([turn("plan", 0, 1, 1), turn("plan", 1, 2, 2, usage={"cost_usd": None})])
    assert record.cost_usd is None


def test_each_step_begins_when_its_first_activity_did_and_no_two_share_one() -> None:
    acts = [act("review", 10.4, 12, {}), act("commit", 12.1, 12.2, {}), act("commit", 12.3, 12.4, {})]
    records = [
        StepRecord(step=step, started_at=stamp(start))
        for step, start in (("review", 10), ("commit", 12), ("commit", 12), ("plan", 13))
    ]
    assert step_start_times(records, acts) == (at(10.4), at(12.1), at(12.3), at(13))
    assert step_start_times([StepRecord(step="plan")], acts) == (None,)
    assert parse_time("2026-03-02T09:30:00") == at(0), "a time without a zone is UTC"
    assert parse_time("soon") is None


def test_turns_that_died_or_run_say_so() -> None:
    told = turns_of(ACTS)
    assert [(one.step, one.turn, one.tries, one.died, one.seconds) for one in told[-2:]] == [
        ("implement", 2, 3, True, 6.0),
        ("fix_tests", 1, 1, False, None),
    ]
    (death,) = deaths_of(ACTS)
    assert (death.at, death.activity, death.tries) == (at(15), "implement", 3)
