"""The timeline of a delivery: rows of bars on an axis that long waits do not stretch, also as SVG; pure functions. Used
by the text and the HTML page of a report."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from perdure.render.formatting import visible_line
from perdure.render.report.facts import DeliveryReport
from perdure.render.step_lines import StepGroup, group_steps, line_of
from perdure.text import format_count, span

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

    A step that was cut off ends with its last turn, or at once; one that runs lasts until the report was read.
    `first_step`: the place of the group's first step among all steps of the report.
    """
    line = line_of(group, ended=not report.running)
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
        line.name,
        line.mark,
        span(total_s),
        tuple(bars),
        tuple(deaths),
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


_ROW, _BAR, _TOP, _BOTTOM = 28, 14, 24, 8
"""Pixels: of a row, of its bar, of the labels above all rows, of the room below."""

_LEFT, _WIDTH = 21, 78
"""Percent: where the bars begin, and how wide their place is."""

_BEFORE = 0.72
"""A bar that ends further to the right has its time written to its left."""


def svg_of(timeline: Timeline) -> str:
    """Return the timeline as SVG, drawn with classes to which a page gives colours; texts are escaped."""
    height = _TOP + _ROW * len(timeline.rows) + _BOTTOM
    parts = [
        f'<svg class="timeline" width="100%" height="{height}" role="img" aria-labelledby="timeline-told">',
        f'<title id="timeline-told">{escape(_describe_timeline(timeline))}</title>',
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
    ]
    parts += [
        f'<text class="name" x="0" y="{_baseline(n)}">{escape(row.mark)} {escape(visible_line(row.name, 12))}</text>'
        for n, row in enumerate(timeline.rows)
    ]
    parts.append(f'<svg x="{_LEFT}%" width="{_WIDTH}%" height="{height}" overflow="visible">')
    parts += [_draw_tick(place, label, height) for place, label in timeline.ticks]
    parts += [_draw_gap(gap, timeline, height) for gap in timeline.gaps]
    parts += [_draw_row(row, n, timeline) for n, row in enumerate(timeline.rows)]
    return "".join([*parts, "</svg></svg>"])


def _describe_timeline(timeline: Timeline) -> str:
    """Return in one sentence what the picture shows, for readers who cannot see it."""
    rows = ", ".join(f"{row.name} {row.took}" for row in timeline.rows)
    deaths = sum(len(row.deaths) for row in timeline.rows)
    deaths_text = f"; {format_count(deaths, 'worker death')}" if deaths else ""
    waited_s = sum(gap.end - gap.start for gap in timeline.gaps)
    return f"Timeline over {span(timeline.seconds)}: {rows}{deaths_text}" + (
        f"; {span(waited_s)} waiting" if waited_s else ""
    )


def _draw_tick(place: float, label: str, height: int) -> str:
    """Return a vertical line with its label, at a place 0…1 on the axis."""
    x = _percent(place)
    anchor = ' text-anchor="middle"' if place > 0.03 else ""
    line = f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height - _BOTTOM}"/>'
    return f'{line}<text class="tick" x="{x}" y="11"{anchor}>{escape(label)}</text>'


def _draw_gap(gap: TimelineGap, timeline: Timeline, height: int) -> str:
    """Return a hatched area for a time of waiting, with its length and reason as title; one that is cut has its length
    below it."""
    start, end = timeline.axis.place_of(gap.start), timeline.axis.place_of(gap.end)
    title = f"waiting, {span(gap.end - gap.start)}" + (f": {visible_line(gap.reason, 160)}" if gap.reason else "")
    short = span(gap.end - gap.start)
    place = (
        f'x="{_percent(start)}" width="{_percent(end - start)}" y="{_TOP - 6}" height="{height - _BOTTOM - _TOP + 6}"'
    )
    drawn = f'<rect class="gap" {place} fill="url(#hatch)"><title>{escape(title)}</title></rect>'
    if not gap.cut:
        return drawn
    x = _percent((start + end) / 2)
    return f'{drawn}<text class="tick cut" x="{x}" y="{height - 1}" text-anchor="middle">{short}</text>'


def _draw_row(row: TimelineRow, number: int, timeline: Timeline) -> str:
    """Return the bars of a row with their total time after them, or before them where they end far to the right, and
    its deaths.

    The time is left out where it has no room.
    """
    top = _TOP + number * _ROW + (_ROW - _BAR) / 2
    bars = "".join(_draw_bar(bar, top, timeline) for bar in row.bars)
    start, end = timeline.axis.place_of(row.bars[0].start), timeline.axis.place_of(row.bars[-1].end)
    is_before = end > _BEFORE
    x, shift, anchor = (start, -6, "end") if is_before else (end, 6, "start")
    place = f'x="{_percent(x)}" dx="{shift}" y="{_baseline(number)}" text-anchor="{anchor}"'
    took = f'<text class="took" {place}>{row.took}</text>'
    has_room = not is_before or start > 0.12
    return bars + (took if has_room else "") + "".join(_draw_death(seconds, top, timeline) for seconds in row.deaths)


def _draw_bar(bar: TimelineBar, top: float, timeline: Timeline) -> str:
    """Return the bar of one step, with its title and a thin line where one turn ended and the next began."""
    start, end = timeline.axis.place_of(bar.start), timeline.axis.place_of(bar.end)
    place = f'x="{_percent(start)}" width="{_percent(end - start)}" y="{top:g}" height="{_BAR}" rx="3"'
    drawn = f'<rect class="bar {escape(bar.status)}" {place}><title>{escape(bar.title)}</title></rect>'
    turns = (_percent(timeline.axis.place_of(seconds)) for seconds in bar.turns)
    return drawn + "".join(
        f'<line class="turn" x1="{x}" x2="{x}" y1="{top + 2:g}" y2="{top + _BAR - 2:g}"/>' for x in turns
    )


def _draw_death(seconds: float, top: float, timeline: Timeline) -> str:
    """Return a cross in a circle at the time of a worker's death: a shape, because colour alone tells nobody."""
    middle = top + _BAR / 2
    return (
        f'<svg class="death" x="{_percent(timeline.axis.place_of(seconds))}" y="{middle:g}" overflow="visible">'
        "<title>the worker died or fell silent here; the turn was done again from its checkpoint</title>"
        '<circle r="7"/><path d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5"/></svg>'
    )


def _baseline(number: int) -> int:
    """Return the y coordinate, in pixels, of the texts of a row."""
    return _TOP + number * _ROW + _ROW // 2 + 4


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
