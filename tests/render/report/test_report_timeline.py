"""The timeline: what is drawn where, and that a long wait leaves the work visible."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import START, at, sample, stamp

from perdure.models.delivery.result import StepRecord
from perdure.render.report.facts import ReportWait, WorkerDeath
from perdure.render.report.timeline import REPORT_ROWS_SHOWN, TimelineGap, axis_of, svg_of, timeline_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def test_each_thing_that_happened_is_a_row_with_its_steps_one_after_the_other() -> None:
    told = timeline_of(sample())
    names = ["prepare", "plan", "build", "test", "test fix 1", "review", "review fix 1", "review", "ship"]
    assert [row.name for row in told.rows] == names
    assert [len(row.bars) for row in told.rows] == [1, 2, 2, 1, 3, 1, 3, 1, 1]
    assert [(bar.start, bar.end) for bar in told.rows[4].bars] == [(111.0, 136.5), (136.6, 136.9), (137.0, 149.2)]
    assert [row.bars[0].status for row in told.rows if row.name in ("test", "review")] == ["failed", "failed", "done"]
    assert told.rows[2].took == "1m 10s"
    assert len(told.rows[2].bars[0].turns) == 5


def test_a_death_stands_in_the_row_it_happened_in() -> None:
    told = timeline_of(sample())
    assert [row.deaths for row in told.rows if row.deaths] == [(66.0,)]
    assert next(row.name for row in told.rows if row.deaths) == "build"
    outside = timeline_of(sample(deaths=(WorkerDeath(at=START + timedelta(seconds=276), activity="x"),)))
    assert [row.name for row in outside.rows if row.deaths] == ["ship"]


def test_gaps_between_steps_are_waits_and_short_ones_are_not() -> None:
    records = tuple(
        StepRecord(step=step, status="done", started_at=stamp(start), duration_s=10)
        for step, start in (("prepare", 0), ("plan", 10.5), ("implement", 60))
    )
    told = timeline_of(sample(steps=records, began=(at(0), at(10.5), at(60)), ended=at(70), waits=(), deaths=()))
    assert [(gap.start, gap.end, gap.reason) for gap in told.gaps] == [(20.5, 60, "")]
    reasoned = sample(
        steps=records, began=(at(0), at(10.5), at(60)), ended=at(70), deaths=(),
        waits=(ReportWait(since=at(22), until=at(58), reason="the forge is away"),),
    )  # fmt: skip
    assert [(gap.start, gap.end, gap.reason) for gap in timeline_of(reasoned).gaps] == [(22, 58, "the forge is away")]


def test_before_its_first_step_it_waits_for_a_worker() -> None:
    record = StepRecord(step="prepare", status="done", started_at=stamp(40), duration_s=10)
    (gap,) = timeline_of(sample(steps=(record,), began=(at(40),), ended=at(50), waits=(), deaths=())).gaps
    assert (gap.start, gap.end, gap.reason) == (0, 40, "for a worker to begin")


def test_a_delivery_that_waits_now_says_what_for_at_the_end() -> None:
    records = (StepRecord(step="prepare", status="done", started_at=stamp(0), duration_s=10),)
    report = sample(
        status="waiting", waiting="a person decides", steps=records, began=(at(0),), ended=None, taken=at(100),
        waits=(), deaths=(), turns=(),
    )  # fmt: skip
    (gap,) = timeline_of(report).gaps
    assert (gap.start, gap.end, gap.reason) == (10, 100, "a person decides")


def test_a_running_step_reaches_to_now_and_one_left_where_it_was_ends_with_its_last_turn() -> None:
    record = StepRecord(step="implement", status="running", started_at=stamp(28))
    running = timeline_of(sample(steps=(record,), began=(at(28.2),), ended=None, taken=at(200), status="running"))
    assert [(bar.start, bar.end, bar.status) for bar in running.rows[0].bars] == [(28.2, 200, "running")]
    left = timeline_of(sample(steps=(record,), began=(at(28.2),), ended=at(200), status="cancelled"))
    (bar,) = left.rows[0].bars
    assert bar.end == pytest.approx(98.2)
    assert bar.status == "cancelled"


def test_a_wait_of_a_day_takes_a_sixth_of_the_picture_and_no_label_stands_in_it() -> None:
    day = 86_400.0
    records = tuple(
        StepRecord(step=step, status="done", started_at=stamp(start), duration_s=30)
        for step, start in (("prepare", 0), ("implement", 30 + day))
    )
    report = sample(steps=records, began=(at(0), at(30 + day)), ended=at(60 + day), waits=(), deaths=(), turns=())
    told = timeline_of(report)
    (gap,) = told.gaps
    assert gap.cut
    assert told.axis.place_of(gap.end) - told.axis.place_of(gap.start) == pytest.approx(0.2 / 1.2)
    assert told.axis.place_of(30) == pytest.approx(told.axis.place_of(60 + day) - told.axis.place_of(30 + day))
    places = [place for place, _ in told.ticks]
    assert places == sorted(places)
    assert not [place for place in places if told.axis.place_of(gap.start) < place < told.axis.place_of(gap.end)]
    assert "24h 00m" in svg_of(told)


def test_of_very_many_rows_the_newest_are_drawn() -> None:
    records = tuple(
        StepRecord(step="review", attempt=n, status="done", started_at=stamp(n * 10), duration_s=9)
        for n in range(1, REPORT_ROWS_SHOWN + 11)
    )
    report = sample(steps=records, began=tuple(at(n * 10) for n in range(1, REPORT_ROWS_SHOWN + 11)), ended=at(2000))
    told = timeline_of(report)
    assert (len(told.rows), told.hidden) == (REPORT_ROWS_SHOWN, 10)
    assert told.rows[-1].bars[0].start == 10 * (REPORT_ROWS_SHOWN + 10)


def test_nothing_yet_and_clocks_that_disagree_are_drawn_too() -> None:
    assert timeline_of(sample(steps=(), began=(), ended=None, taken=START)).rows == ()
    early = StepRecord(step="prepare", status="done", started_at=stamp(-50), duration_s=500)
    (row,) = timeline_of(sample(steps=(early,), began=(at(-50),), ended=at(10))).rows
    assert [(bar.start, bar.end) for bar in row.bars] == [(0, 10)]
    unknown = StepRecord(step="prepare", status="done", started_at="yesterday", duration_s=5)
    assert timeline_of(sample(steps=(unknown,), began=(None,))).rows == ()


@settings(deadline=None)  # nothing here depends on how fast the machine is
@given(
    end=st.floats(0.01, 1e7),
    gaps=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=8),
    moments=st.lists(st.floats(-10, 1e7), max_size=20),
)
def test_the_axis_never_runs_backwards_nor_off_the_page(
    end: float, gaps: list[tuple[float, float, bool]], moments: list[float]
) -> None:
    edges = sorted(place * end for gap in gaps for place in gap[:2])
    pairs = zip(edges[::2], edges[1::2], strict=True)
    axis = axis_of(
        end, [TimelineGap(start, until, "", cut) for (start, until), (_, _, cut) in zip(pairs, gaps, strict=True)]
    )
    places = [axis.place_of(moment) for moment in sorted([*moments, 0.0, end])]
    assert places == sorted(places)
    assert min(places) == 0.0
    assert max(places) == 1.0


def test_the_picture_is_well_formed_says_what_it_shows_and_escapes_every_word() -> None:
    records = (
        StepRecord(
            step="<b>&", status='"><script>', started_at=stamp(0), duration_s=5,
            summary="</title><script>alert(1)</script>\u202e",
        ),
    )  # fmt: skip
    waits = (ReportWait(since=at(6), until=at(100), reason="</svg><img src=x>"),)
    svg = svg_of(timeline_of(sample(steps=records, began=(at(0),), waits=waits)))
    tree = drawn(svg)
    assert tree.find(f"{SVG}title") is not None
    assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
        "svg", "title", "defs", "pattern", "line", "text", "rect", "circle", "path",
    }  # fmt: skip
    assert "\u202e" not in svg
    told = str(drawn(svg_of(timeline_of(sample()))).findtext(f"{SVG}title"))
    assert told.startswith("Timeline over 4m 40s: prepare 8.2 s, plan 20 s, build 1m 10s, test 12 s")
    assert told.endswith("; 1 worker death; 55 s waiting")
