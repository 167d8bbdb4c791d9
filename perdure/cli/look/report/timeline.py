"""The timeline of a delivery, as rows of bars on an axis that long waits do not stretch; pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.cli.look.chapters import Chapter, chapters, line_of
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.view import step_name
from perdure.cli.words import shown_line
from perdure.text import span

REPORT_ROWS_SHOWN = 60
"""Rows of the timeline: more do not fit a screen; the table below it has all of them."""


_LONGEST_WAIT = 0.2
"""Of the time in which something was done: a longer wait is drawn as if it were that long."""

_SHORTEST_WAIT = 0.02
_SHORTEST_WAIT_S = 1.0
"""Of the whole, and in seconds: a shorter gap is how long it takes to go on, not a wait."""

_UNBEGUN = "for a worker to begin"

_STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 604800)
_TICKS = 6
"""Labels on the axis, at most: more run into each other on a telephone."""


@dataclass(frozen=True)
class Bar:
    """One step. Seconds since the start; status as in its record; `turns`: where one turn ended and the next began."""

    start: float
    end: float
    status: str
    title: str
    turns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row for one thing, as a person sees it: its steps in turn; `deaths`: where a worker ended in them."""

    name: str
    mark: str
    took: str
    bars: tuple[Bar, ...]
    deaths: tuple[float, ...] = ()


@dataclass(frozen=True)
class Gap:
    """A time in which nothing was done, from `start` to `end`; `cut`: drawn shorter than it was."""

    start: float
    end: float
    reason: str
    cut: bool = False


@dataclass(frozen=True)
class Axis:
    """Seconds since the start to 0…1: even, but for the waits that are drawn shorter."""

    times: tuple[float, ...]
    places: tuple[float, ...]

    def at(self, seconds: float) -> float:
        """Return the place where it is drawn; what lies outside is at the edge."""
        if seconds <= self.times[0]:
            return 0.0
        if seconds >= self.times[-1]:
            return 1.0
        n = bisect_right(self.times, seconds) - 1
        share = (seconds - self.times[n]) / (self.times[n + 1] - self.times[n])
        return self.places[n] + share * (self.places[n + 1] - self.places[n])


@dataclass(frozen=True)
class Timeline:
    """`hidden`: rows at the beginning that are not shown, because there are too many."""

    rows: tuple[Row, ...]
    gaps: tuple[Gap, ...]
    axis: Axis
    ticks: tuple[tuple[float, str], ...]
    seconds: float
    hidden: int = 0

    @property
    def statuses(self) -> set[str]:
        return {bar.status for row in self.rows for bar in row.bars}


def timeline_of(report: Report) -> Timeline:
    """All of a delivery. Steps without a time are left out."""
    times = _Times(report)
    told = chapters(report.steps)
    rows, place = [], 0
    for chapter in told:
        rows.append(_row(report, chapter, place, times))
        place += len(chapter.steps)
    drawn = [row for row in rows if row.bars]
    hidden = max(len(drawn) - REPORT_ROWS_SHOWN, 0)
    gaps = _gaps([bar for row in drawn for bar in row.bars], report, times)
    axis = axis_of(times.end, gaps)
    return Timeline(
        rows=tuple(drawn[hidden:]),
        gaps=tuple(gaps),
        axis=axis,
        ticks=tuple(_ticks(times.end, gaps, axis)),
        seconds=times.end,
        hidden=hidden,
    )


class _Times:
    def __init__(self, report: Report) -> None:
        self.start = report.started
        self.end = max(report.seconds, 0.001)

    def of(self, when: datetime) -> float:
        return min(max((when - self.start).total_seconds(), 0.0), self.end)


def _row(report: Report, chapter: Chapter, place: int, times: _Times) -> Row:
    line = line_of(chapter, ended=not report.running)
    fixes = chapter.first.step.startswith("fix_")  # "fix 1" would stand there twice: of tests, and of review
    bars, before = [], 0.0
    for number, record in enumerate(chapter.steps, place):
        began = report.began[number] if number < len(report.began) else None
        if began is None:
            continue
        start = max(times.of(began), before)
        end = times.end if record.duration_s is None else min(start + record.duration_s, times.end)
        status = record.status if record.status != "running" or report.running else "cancelled"
        # A step that was left where it was has no end of its own: it ended with its last turn, or at once.
        inside = [turn for turn in report.turns if turn.step == record.step and turn.attempt == record.attempt]
        if record.duration_s is None and not report.running:
            ends = [times.of(turn.started) + (turn.seconds or 0) for turn in inside]
            end = min(max([start, *(at for at in ends if at >= start)]), times.end)
        marks = sorted(at for turn in inside if turn.turn > 1 and start < (at := times.of(turn.started)) < end)
        title = f"{record.step.replace('_', ' ')}: {shown_line(record.summary, 120) or status}, {span(end - start)}"
        bars.append(Bar(start, end, status, title, tuple(marks)))
        before = end
    deaths = [at for death in report.deaths if bars and bars[0].start <= (at := times.of(death.at)) <= bars[-1].end]
    took = sum(bar.end - bar.start for bar in bars)
    return Row(step_name(chapter.first) if fixes else line.name, line.mark, span(took), tuple(bars), tuple(deaths))


def _gaps(bars: Sequence[Bar], report: Report, times: _Times) -> list[Gap]:
    """Find the places without a bar, and where history says that it waited, also within a step."""
    waits = [
        (times.of(wait.since), times.of(wait.until) if wait.until else times.end, wait.reason) for wait in report.waits
    ]
    least = max(_SHORTEST_WAIT * times.end, _SHORTEST_WAIT_S)
    found = [Gap(start, end, reason) for start, end, reason in waits if end - start >= least]
    reached = 0.0
    for bar in [*sorted(bars, key=lambda bar: bar.start), Bar(times.end, times.end, "", "")]:
        covered = any(gap.start < bar.start and gap.end > reached for gap in found)
        if bar.start - reached >= least and not covered:
            now = report.waiting if bar.start == times.end and report.running else ""
            found.append(Gap(reached, bar.start, now or (_UNBEGUN if reached == 0 else "")))
        reached = max(reached, bar.end)
    return _apart(sorted(found, key=lambda gap: gap.start), times.end)


def _apart(gaps: Sequence[Gap], end: float) -> list[Gap]:
    """None overlaps another; those that would leave no room for the work are marked as cut."""
    apart: list[Gap] = []
    for gap in gaps:
        if apart and gap.start < apart[-1].end:
            last = apart[-1]
            apart[-1] = Gap(last.start, max(last.end, gap.end), last.reason or gap.reason)
        else:
            apart.append(gap)
    longest = _LONGEST_WAIT * max(end - sum(gap.end - gap.start for gap in apart), 1.0)
    return [Gap(g.start, g.end, g.reason, cut=g.end - g.start > longest) for g in apart]


def axis_of(end: float, gaps: Sequence[Gap]) -> Axis:
    """An even axis from 0 to `end`, on which a gap that is cut takes no more than its share."""
    longest = _LONGEST_WAIT * max(end - sum(gap.end - gap.start for gap in gaps), 1.0)
    times, lengths, reached = [0.0], [0.0], 0.0
    for gap in (gap for gap in gaps if gap.cut):
        for until, drawn in ((gap.start, gap.start - reached), (gap.end, longest)):
            if until > times[-1]:
                times.append(until)
                lengths.append(lengths[-1] + drawn)
        reached = gap.end
    if end > times[-1]:
        times.append(end)
        lengths.append(lengths[-1] + end - reached)
    return Axis(tuple(times), tuple(length / lengths[-1] for length in lengths))


def _ticks(end: float, gaps: Sequence[Gap], axis: Axis) -> list[tuple[float, str]]:
    """Label the axis: even times, none inside a wait that is drawn shorter."""
    cut = [gap for gap in gaps if gap.cut]
    drawn = end - sum(gap.end - gap.start for gap in cut)
    step = next((step for step in _STEPS_S if drawn / step <= _TICKS), _STEPS_S[-1])
    ticks: list[tuple[float, str]] = []
    number = 0
    while number * step <= end:
        at = number * step
        inside = next((gap for gap in cut if gap.start < at < gap.end), None)
        if inside is not None:
            number = int(inside.end // step) + 1
            continue
        place = axis.at(at)
        if not ticks or place - ticks[-1][0] >= 1 / (2 * _TICKS):
            ticks.append((place, _moment(at)))
        number += 1
    return ticks


def _moment(seconds: float) -> str:
    """`0`, `30 s`, `1:30`, `2 h`, `1 d 4 h`."""
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}" if whole % 60 else f"{whole // 60} min"
    hours, minutes = divmod(whole // 60, 60)
    if hours < 24:
        return f"{hours} h" + (f" {minutes:02d}" if minutes else "")
    return f"{hours // 24} d" + (f" {hours % 24} h" if hours % 24 else "")
