"""The timeline of a delivery: rows of bars on an axis that long waits do not stretch; pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.cli.formatting import visible_line
from perdure.cli.look.report.facts import DeliveryReport
from perdure.cli.look.report.view import step_name
from perdure.cli.look.step_lines import StepGroup, group_steps, line_of
from perdure.text import span

REPORT_ROWS_SHOWN = 60
"""Rows of the timeline: more do not fit a screen; the table below it has all of them."""


_LONGEST_WAIT = 0.2
"""Share of the time in which something was done: a longer wait is drawn as if it were that long."""

_SHORTEST_WAIT = 0.02
_SHORTEST_WAIT_S = 1.0
"""As a share of the whole, and in seconds: a shorter gap is how long it takes to go on, not a wait."""

_WAITS_FOR_WORKER = "for a worker to begin"

_TICK_STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 604800)
_TICKS = 6
"""Labels on the axis, at most: more run into each other on a telephone."""


@dataclass(frozen=True)
class TimelineBar:
    """The bar of one step. `start`, `end`: seconds since the delivery's start; `status`: as in its record; `turns`:
    when one turn ended and the next began."""

    start: float
    end: float
    status: str
    title: str
    turns: tuple[float, ...] = ()


@dataclass(frozen=True)
class TimelineRow:
    """The row of one group of steps: their bars in turn; `deaths`: seconds at which a worker died in them."""

    name: str
    mark: str
    took: str
    bars: tuple[TimelineBar, ...]
    deaths: tuple[float, ...] = ()


@dataclass(frozen=True)
class TimelineGap:
    """A time in which nothing was done, from `start` to `end` in seconds; `cut`: drawn shorter than it was."""

    start: float
    end: float
    reason: str
    cut: bool = False


@dataclass(frozen=True)
class TimelineAxis:
    """A mapping of seconds since the start to places 0…1: even, except for the waits that are drawn shorter."""

    times: tuple[float, ...]
    places: tuple[float, ...]

    def place_of(self, seconds: float) -> float:
        """Return the place at which a time is drawn; a time outside the axis is at its edge."""
        if seconds <= self.times[0]:
            return 0.0
        if seconds >= self.times[-1]:
            return 1.0
        index = bisect_right(self.times, seconds) - 1
        share = (seconds - self.times[index]) / (self.times[index + 1] - self.times[index])
        return self.places[index] + share * (self.places[index + 1] - self.places[index])


@dataclass(frozen=True)
class Timeline:
    """All that is drawn. `ticks`: place and label of each; `hidden`: rows at the beginning left out because there are
    too many."""

    rows: tuple[TimelineRow, ...]
    gaps: tuple[TimelineGap, ...]
    axis: TimelineAxis
    ticks: tuple[tuple[float, str], ...]
    seconds: float
    hidden: int = 0

    @property
    def statuses(self) -> set[str]:
        """Return all statuses that bars of the timeline have."""
        return {bar.status for row in self.rows for bar in row.bars}


def timeline_of(report: DeliveryReport) -> Timeline:
    """Return the timeline of a delivery. Steps whose time is not known are left out.

    Only the last REPORT_ROWS_SHOWN rows are in it; gaps and axis are those of all rows.
    """
    times = _ReportTime(report)
    groups = group_steps(report.steps)
    rows, first_step = [], 0
    for group in groups:
        rows.append(_make_row(report, group, first_step, times))
        first_step += len(group.steps)
    drawn_rows = [row for row in rows if row.bars]
    hidden = max(len(drawn_rows) - REPORT_ROWS_SHOWN, 0)
    gaps = _find_gaps([bar for row in drawn_rows for bar in row.bars], report, times)
    axis = axis_of(times.end, gaps)
    return Timeline(
        rows=tuple(drawn_rows[hidden:]),
        gaps=tuple(gaps),
        axis=axis,
        ticks=tuple(_make_ticks(times.end, gaps, axis)),
        seconds=times.end,
        hidden=hidden,
    )


class _ReportTime:
    """The time that a report covers: when the delivery started, and its length in seconds."""

    def __init__(self, report: DeliveryReport) -> None:
        self.start = report.started
        self.end = max(report.seconds, 0.001)

    def seconds_at(self, when: datetime) -> float:
        """Return the seconds from the start to a time, no less than 0 and no more than the whole."""
        return min(max((when - self.start).total_seconds(), 0.0), self.end)


def _make_row(report: DeliveryReport, group: StepGroup, first_step: int, times: _ReportTime) -> TimelineRow:
    """Return the row of a group of steps: a bar for each whose start is known, with its turns, and the deaths of
    workers within the bars.

    `first_step`: the place of the group's first step among all steps of the report.
    """
    line = line_of(group, ended=not report.running)
    is_fix = group.first.step.startswith("fix_")  # "fix 1" would stand there twice: of tests, and of review
    bars, previous_end = [], 0.0
    for number, record in enumerate(group.steps, first_step):
        began_at = report.began[number] if number < len(report.began) else None
        if began_at is None:
            continue
        start = max(times.seconds_at(began_at), previous_end)
        end = times.end if record.duration_s is None else min(start + record.duration_s, times.end)
        status = record.status if record.status != "running" or report.running else "cancelled"
        # A step that was cut off has no end of its own: it ended with its last turn, or at once.
        inner_turns = [turn for turn in report.turns if turn.step == record.step and turn.attempt == record.attempt]
        if record.duration_s is None and not report.running:
            turn_ends = [times.seconds_at(turn.started) + (turn.seconds or 0) for turn in inner_turns]
            end = min(max([start, *(moment for moment in turn_ends if moment >= start)]), times.end)
        turn_starts = sorted(
            moment for turn in inner_turns if turn.turn > 1 and start < (moment := times.seconds_at(turn.started)) < end
        )
        title = f"{record.step.replace('_', ' ')}: {visible_line(record.summary, 120) or status}, {span(end - start)}"
        bars.append(TimelineBar(start, end, status, title, tuple(turn_starts)))
        previous_end = end
    deaths = [
        moment
        for death in report.deaths
        if bars and bars[0].start <= (moment := times.seconds_at(death.at)) <= bars[-1].end
    ]
    total_s = sum(bar.end - bar.start for bar in bars)
    return TimelineRow(
        step_name(group.first) if is_fix else line.name, line.mark, span(total_s), tuple(bars), tuple(deaths)
    )


def _find_gaps(bars: Sequence[TimelineBar], report: DeliveryReport, times: _ReportTime) -> list[TimelineGap]:
    """Find the gaps: where there is no bar, and where history says that it waited, also within a step. Short ones are
    left out."""
    waits = [
        (times.seconds_at(wait.since), times.seconds_at(wait.until) if wait.until else times.end, wait.reason)
        for wait in report.waits
    ]
    shortest = max(_SHORTEST_WAIT * times.end, _SHORTEST_WAIT_S)
    gaps = [TimelineGap(start, end, reason) for start, end, reason in waits if end - start >= shortest]
    covered_until = 0.0
    for bar in [*sorted(bars, key=lambda bar: bar.start), TimelineBar(times.end, times.end, "", "")]:
        is_known = any(gap.start < bar.start and gap.end > covered_until for gap in gaps)
        if bar.start - covered_until >= shortest and not is_known:
            reason_now = report.waiting if bar.start == times.end and report.running else ""
            gaps.append(
                TimelineGap(covered_until, bar.start, reason_now or (_WAITS_FOR_WORKER if covered_until == 0 else ""))
            )
        covered_until = max(covered_until, bar.end)
    return _merge_gaps(sorted(gaps, key=lambda gap: gap.start), times.end)


def _merge_gaps(gaps: Sequence[TimelineGap], end: float) -> list[TimelineGap]:
    """Merge gaps that overlap, and mark as cut those so long that they would leave no room for the work. `gaps`: sorted
    by start."""
    merged: list[TimelineGap] = []
    for gap in gaps:
        if merged and gap.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = TimelineGap(last.start, max(last.end, gap.end), last.reason or gap.reason)
        else:
            merged.append(gap)
    longest = _LONGEST_WAIT * max(end - sum(gap.end - gap.start for gap in merged), 1.0)
    return [TimelineGap(g.start, g.end, g.reason, cut=g.end - g.start > longest) for g in merged]


def axis_of(end: float, gaps: Sequence[TimelineGap]) -> TimelineAxis:
    """Return an even axis from 0 to `end` seconds, on which a gap that is cut takes no more than its share."""
    longest = _LONGEST_WAIT * max(end - sum(gap.end - gap.start for gap in gaps), 1.0)
    times, lengths, drawn_until = [0.0], [0.0], 0.0
    for gap in (gap for gap in gaps if gap.cut):
        for until, drawn in ((gap.start, gap.start - drawn_until), (gap.end, longest)):
            if until > times[-1]:
                times.append(until)
                lengths.append(lengths[-1] + drawn)
        drawn_until = gap.end
    if end > times[-1]:
        times.append(end)
        lengths.append(lengths[-1] + end - drawn_until)
    return TimelineAxis(tuple(times), tuple(length / lengths[-1] for length in lengths))


def _make_ticks(end: float, gaps: Sequence[TimelineGap], axis: TimelineAxis) -> list[tuple[float, str]]:
    """Return place and label of each tick of the axis: at even times, none inside a wait that is drawn shorter."""
    cut = [gap for gap in gaps if gap.cut]
    drawn = end - sum(gap.end - gap.start for gap in cut)
    step = next((step for step in _TICK_STEPS_S if drawn / step <= _TICKS), _TICK_STEPS_S[-1])
    ticks: list[tuple[float, str]] = []
    number = 0
    while number * step <= end:
        seconds = number * step
        cut_gap = next((gap for gap in cut if gap.start < seconds < gap.end), None)
        if cut_gap is not None:
            number = int(cut_gap.end // step) + 1
            continue
        place = axis.place_of(seconds)
        if not ticks or place - ticks[-1][0] >= 1 / (2 * _TICKS):
            ticks.append((place, _format_seconds(seconds)))
        number += 1
    return ticks


def _format_seconds(seconds: float) -> str:
    """Return the label of a time since the start: `0`, `30 s`, `1:30`, `2 h`, `1 d 4 h`."""
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}" if whole % 60 else f"{whole // 60} min"
    hours, minutes = divmod(whole // 60, 60)
    if hours < 24:
        return f"{hours} h" + (f" {minutes:02d}" if minutes else "")
    return f"{hours // 24} d" + (f" {hours % 24} h" if hours % 24 else "")
