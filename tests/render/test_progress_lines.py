"""The story of a delivery, as pure functions tell it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.client import PendingActivity
from perdure.local.connect import NO_WORKER
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import Progress
from perdure.models.errors import PerdureError
from perdure.models.phases import Step
from perdure.render.progress_lines import (
    REWOUND,
    Header,
    ProgressReporter,
    current_lines,
    no_worker_line,
    retry_lines,
)
from perdure.render.step_lines import (
    BAD,
    GOOD,
    NEUTRAL,
    RUNNING,
    WARN,
    StepLine,
    format_row,
    format_rows,
    group_steps,
    line_of,
)
from perdure.text import visible


def step(name: str, summary: str = "", *, status: str = "done", **more: Any) -> StepRecord:
    return StepRecord(step=name, summary=summary, status=status, **more)


STORY = (
    step("prepare", "uv sync · 41 green on main", duration_s=8.2),
    step("classify", "feature", turns=1, duration_s=2.0, cost_usd=0.01),
    step("plan", "3 tasks, 2 files", turns=2, duration_s=17.0, cost_usd=0.05),
    step("implement", "Accept compound durations", turns=6, duration_s=70.0, cost_usd=0.21),
    step("commit", "+48 −7 in 2 files", commit="91c3e0a" + 33 * "0", duration_s=2.0),
    step("run_tests", "2 of 44 fail: test_negative, test_zero", status="failed", duration_s=3.0),
    step("fix_tests", "Fix sign", turns=3, duration_s=36.0, cost_usd=0.09),
    step("commit", commit="0d77a1e" + 33 * "0"),
    step("run_tests", "44 green", attempt=2, duration_s=2.0),
    step("review", "1 blocker, 1 tech debt", status="failed", turns=1, duration_s=9.0, cost_usd=None),
    step("fix_review", turns=2, duration_s=31.0, cost_usd=0.07),
    step("commit", commit="5aa90f3" + 33 * "0"),
    step("run_tests", "44 green", attempt=3),
    step("open_pull_request", "pull request #12"),
)


def progress(steps: tuple[StepRecord, ...] = (), **more: Any) -> Progress:
    facts: dict[str, Any] = {"delivery_id": "d", "run_id": "r", "repository": "/r", "status": "running"}
    return Progress(**facts, test_fixes=4, review_fixes=3, steps=list(steps), **more)


def pending(activity: str = "implement", *, attempt: int = 1, **more: Any) -> PendingActivity:
    return PendingActivity(
        activity=activity, attempt=attempt, details=more.pop("details", {}), worker="w", **{"failure": "", **more}
    )


def test_a_delivery_reads_as_one_line_for_each_thing_that_happened() -> None:
    assert format_rows(STORY, (4, 3)) == [
        "✓ prepare        uv sync · 41 green on main                           8.2 s    $0.00",
        "✓ plan           feature · 3 tasks, 2 files                           19 s     $0.06",
        "✓ build          6 turns · +48 −7 in 2 files · commit 91c3e0a         1m 12s   $0.21",
        "✗ test           2 of 44 fail: test_negative, test_zero               3.0 s",
        "✓ test fix 1/4   3 turns · commit 0d77a1e · 44 green                  38 s     $0.09",
        "! review         1 blocker, 1 tech debt                               9.0 s    cost unknown",
        "✓ review fix 1/3 2 turns · commit 5aa90f3 · 44 green again            31 s     $0.07",
        "✓ ship           pull request #12",
    ]


def test_a_fix_that_leaves_tests_red_is_marked_so() -> None:
    fixed = (step("fix_tests", turns=1, attempt=2), step("commit"), step("run_tests", "1 of 3 fails", status="failed"))
    (line,) = format_rows(fixed, (4, 3))
    assert line == "✗ test fix 2/4   1 turn · 1 of 3 fails"


def test_only_green_tests_are_green_again() -> None:
    fixed = (
        step("fix_review", turns=1),
        step("commit", "+1 −0", commit="a" * 40),
        step("run_tests", "no test command"),
    )
    assert format_rows(fixed) == ["✓ review fix 1   1 turn · commit aaaaaaa · no test command"]


def test_a_step_that_was_cancelled_has_not_failed() -> None:
    (chapter,) = group_steps((step("prepare", status="cancelled"),))
    assert line_of(chapter).mark == NEUTRAL


def test_a_classification_without_a_plan_keeps_its_own_name() -> None:
    assert [line_of(chapter).name for chapter in group_steps((STORY[1], STORY[3]))] == ["classify", "build"]


def test_a_step_that_never_ended_is_shown_as_left() -> None:
    (chapter,) = group_steps((step("implement", status="running", turns=2),))
    assert line_of(chapter, ended=True).mark == NEUTRAL
    assert line_of(chapter, ended=False).mark == RUNNING


def test_a_narrow_screen_cuts_the_text_and_keeps_time_and_money() -> None:
    line = format_row(StepLine(GOOD, "build", "x" * 200, duration_s=72, cost_usd=0.21, shows_cost=True), 60)
    assert len(line) <= 60
    assert "…" in line
    assert line.endswith("1m 12s   $0.21")


@given(st.integers(30, 200), st.text(max_size=150), st.floats(0, 1e6), st.none() | st.floats(0, 1e5))
def test_a_row_is_one_printable_line(width: int, text: str, seconds: float, cost: float | None) -> None:
    (chapter,) = group_steps((step("implement", text, duration_s=seconds, cost_usd=cost),))
    line = format_row(line_of(chapter), width)
    assert line.splitlines() == [line]
    assert visible(line) == line


steps = st.lists(
    st.builds(
        StepRecord,
        step=st.sampled_from([*(str(name) for name in Step), "something_new"]),
        attempt=st.integers(1, 4),
        status=st.sampled_from(["done", "failed"]),
        turns=st.integers(0, 9),
        summary=st.text(max_size=20),
    ),
    max_size=20,
)


@given(steps, st.data())
def test_whatever_is_missed_in_between_the_same_lines_are_told_once_and_in_order(
    happened: list[StepRecord], data: st.DataObject
) -> None:
    looks = sorted(data.draw(st.lists(st.integers(0, len(happened)), max_size=10)))
    teller, told = ProgressReporter(), []
    for seen in looks:
        told += teller.new_lines(progress(tuple(happened[:seen])))
    told += teller.last_lines(happened, progress())
    assert told == format_rows(happened, (4, 3))


@given(steps)
def test_every_step_is_told_in_exactly_one_chapter(happened: list[StepRecord]) -> None:
    assert [record for chapter in group_steps(happened) for record in chapter.steps] == happened


def test_a_rewound_delivery_says_so_and_goes_on_from_there() -> None:
    teller = ProgressReporter()
    teller.new_lines(progress(STORY[:7]))
    other = (*STORY[:3], step("implement", turns=9), step("commit", commit="b" * 40), step("run_tests", "44 green"))
    assert teller.new_lines(progress(other)) == [REWOUND, *format_rows(other)[2:3]]
    assert teller.new_lines(progress(other)) == []


def test_a_death_is_told_each_time_and_once() -> None:
    teller = ProgressReporter()
    died = pending(attempt=2, died=True, failure="the worker died", details={"turn": 3})
    assert teller.new_lines(progress(), [died]) == ["↻ worker died in implement, turn 3; doing it again"]
    assert teller.new_lines(progress(), [died]) == []
    again = pending(attempt=3, died=True, failure="the worker died", details={"turn": 3})
    assert len(teller.new_lines(progress(), [again])) == 1


def test_a_worker_that_may_only_have_slept_is_not_called_dead() -> None:
    timed_out = pending(attempt=2, died=True, silent=True, failure="activity Heartbeat timeout", details={"turn": 3})
    assert ProgressReporter().new_lines(progress(), [timed_out]) == [
        "↻ no sign of the worker (dead, asleep or cut off) in implement, turn 3; doing it again"
    ]


def test_a_passing_error_is_told_once_however_often_it_is_tried() -> None:
    teller = ProgressReporter()
    heard = [
        line
        for attempt in range(2, 9)
        for line in teller.new_lines(progress(), [pending(attempt=attempt, failure="overloaded", details={"turn": 1})])
    ]
    assert heard == ["↻ implement, turn 1: overloaded; trying again"]


def test_what_went_wrong_and_where_are_told_apart_on_one_line() -> None:
    failure = str(PerdureError("the reply was cut off", where="http://127.0.0.1:1", fix="wait"))
    said = "↻ implement, turn 1: the reply was cut off; where: http://127.0.0.1:1; fix: wait; trying again"
    assert retry_lines([pending(attempt=2, failure=failure, details={"turn": 1})]) == [said]


def test_what_is_tried_again_says_why_wherever_it_is_looked_at() -> None:
    why, doing = "main cannot be fetched: HEAD.lock exists", {"doing": "fetching"}
    tried = pending("prepare", attempt=7, failure=why, details=doing)
    assert retry_lines([tried]) == ["↻ prepare: main cannot be fetched: HEAD.lock exists; trying again"]
    now = ProgressReporter().current_line(None, [tried], 0.0)
    assert now is not None
    assert now.text == "fetching · attempt 7 · main cannot be fetched: HEAD.lock exists"


def test_silence_is_told_once_until_somebody_answers_again() -> None:
    teller = ProgressReporter()
    assert teller.new_lines(None) == []
    assert teller.new_lines(None, silent=NO_WORKER) == [no_worker_line(NO_WORKER)]
    assert teller.new_lines(None, silent=NO_WORKER) == []
    assert teller.new_lines(progress()) == []
    assert teller.new_lines(progress(), silent=NO_WORKER) == [no_worker_line(NO_WORKER)]


def test_what_it_waits_for_is_told_when_it_changes() -> None:
    teller = ProgressReporter()
    waits = progress(waiting="all port pairs are taken")
    assert teller.new_lines(waits) == ["! waiting        all port pairs are taken"]
    assert teller.new_lines(waits) == []
    assert teller.new_lines(progress()) == []
    assert len(teller.new_lines(waits)) == 1


def test_an_outage_is_told_once_however_often_it_is_tried_again() -> None:
    teller = ProgressReporter()
    away = "GitHub is not well (502) (since 15:00:28 UTC; next try at 15:00:{})"
    assert teller.new_lines(progress(waiting=away.format(30))) == [f"! waiting        {away.format(30)}"]
    assert teller.new_lines(progress()) == []  # an attempt
    assert teller.new_lines(progress(waiting=away.format(34))) == []
    other = "GitHub wants to be asked less often (since 15:00:28 UTC; next try at 16:00:00)"
    assert teller.new_lines(progress(waiting=other)) == [f"! waiting        {other}"]
    again = away.replace("15:00:28", "17:00:00").format(59)
    assert teller.new_lines(progress(waiting=again)) == [f"! waiting        {again}"]


def test_the_present_shows_turn_command_and_money() -> None:
    teller = ProgressReporter()
    running = (*STORY[:3], step("implement", status="running", turns=2))
    doing = pending(details={"turn": 3, "doing": "pytest -q", "cost_usd": 0.12})
    assert teller.current_line(progress(running), [doing], clock_s=10.0) == StepLine(
        RUNNING, "build", "turn 3 · pytest -q · $0.12", duration_s=0.0
    )
    later = teller.current_line(progress(running), [doing], clock_s=22.0)
    assert later is not None
    assert later.duration_s == 12.0


def test_who_looks_once_sees_what_went_before_and_what_it_does_at_this_moment() -> None:
    running = progress((*STORY[:3], step("run_tests", status="running")))
    doing = pending("run_tests", details={"doing": "unit: running"})
    told = current_lines(running, [doing])
    assert [line.name for line in told] == [line_of(chapter).name for chapter in group_steps(running.steps)]
    assert (told[-1].text, told[-1].duration_s) == ("unit: running", None)
    assert [line.text for line in told[:-1]] == [line.text for line in current_lines(running, [])[:-1]]
    assert [line.name for line in current_lines(progress(STORY[:1]), [pending("classify")])][-1] == "classify"


def test_the_present_of_a_fix_keeps_what_is_behind_it() -> None:
    testing = (*STORY[6:8], step("run_tests", status="running"))
    line = ProgressReporter().current_line(progress(testing), [pending("run_tests")], clock_s=0.0)
    assert line is not None
    assert (line.name, line.text) == ("test fix 1/4", "3 turns · commit 0d77a1e")


def test_a_fix_of_a_retry_is_numbered_on_and_measured_by_no_limit() -> None:
    (chapter,) = group_steps((step("fix_tests", attempt=5, turns=1),))
    assert line_of(chapter, (4, 3)).name == "test fix 5"


def test_the_server_knows_of_the_next_step_before_the_workflow_has_said_so() -> None:
    late = progress((step("prepare", status="running"),))
    line = ProgressReporter().current_line(late, [pending("classify", details={"turn": 1})], clock_s=0.0)
    assert line is not None
    assert (line.name, line.text) == ("classify", "turn 1")


def test_without_a_worker_the_server_alone_says_what_goes_on() -> None:
    line = ProgressReporter().current_line(None, [pending("prepare", details={"doing": "fetching"})], clock_s=0.0)
    assert line is not None
    assert (line.name, line.text) == ("prepare", "fetching")
    assert ProgressReporter().current_line(None, [pending("close")], clock_s=0.0) is None


def test_the_header_leaves_out_what_is_not_known() -> None:
    header = Header(version="0.1", delivery_id="d-1", checkout="~/d", target="origin /o.git", base="main at 4be1c02")
    assert header.lines() == ["perdure 0.1 · d-1", "  repository    ~/d → origin /o.git (main at 4be1c02)"]


def test_marks_tell_verdicts_apart() -> None:
    marks = [line_of(chapter).mark for chapter in group_steps(STORY)]
    assert marks == [GOOD, GOOD, GOOD, BAD, GOOD, WARN, GOOD, GOOD]


def test_documentation_pictures_and_a_push_are_told_under_their_own_names() -> None:
    story = (
        step("implement", "Add sub", turns=2),
        step("commit", "+4 −0 in 1 file", commit="a" * 40),
        step("document", "Name sub in the README", turns=3, cost_usd=0.02, duration_s=9.0),
        step("commit", "+1 −0 in 1 file", commit="b" * 40),
        step("capture_pages", "2 pages", duration_s=3.0),
        step("review", "nothing found", turns=1),
        step("push_branch", "2 commits pushed to topic", duration_s=0.2),
    )
    assert format_rows(story) == [
        "✓ build          2 turns · +4 −0 in 1 file · commit aaaaaaa",
        "✓ docs           3 turns · +1 −0 in 1 file · commit bbbbbbb           9.0 s    $0.02",
        "✓ screenshots    2 pages                                              3.0 s",
        "✓ review         nothing found",
        "✓ push           2 commits pushed to topic                            0.2 s",
    ]


def test_documentation_that_was_right_already_says_so() -> None:
    (line,) = format_rows((step("document", "Nothing to change", turns=1), step("commit", "nothing changed")))
    assert line.split("  ")[0] == "✓ docs"
    assert "1 turn · nothing changed" in line


def test_pictures_that_could_not_be_taken_stop_nothing() -> None:
    (line,) = format_rows((step("capture_pages", "the application did not start", status="failed"),))
    assert line == f"{WARN} screenshots    the application did not start"


def test_tests_that_were_tampered_with_are_told_as_red() -> None:
    (line,) = format_rows((step("run_tests", "tampered: test_adds is gone", status="failed"),))
    assert line == f"{BAD} test           tampered: test_adds is gone"


def test_what_runs_is_told_by_its_name_also_where_it_is_no_step() -> None:
    line = ProgressReporter().current_line(
        progress(), [pending("push_branch", details={"doing": "pushing"})], clock_s=0.0
    )
    assert line is not None
    assert (line.mark, line.name, line.text) == (RUNNING, "push", "pushing")
