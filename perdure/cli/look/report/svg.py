"""A timeline as SVG: as wide as its place, with letters that stay the same size; a pure function."""

from __future__ import annotations

from html import escape

from perdure.cli.formatting import pluralise, visible_line
from perdure.cli.look.report.timeline import Timeline, TimelineBar, TimelineGap, TimelineRow
from perdure.text import span

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
    deaths_text = f"; {pluralise(deaths, 'worker death')}" if deaths else ""
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
        "<title>a worker died here; the turn was done again from its checkpoint</title>"
        '<circle r="7"/><path d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5"/></svg>'
    )


def _baseline(number: int) -> int:
    """Return the y coordinate, in pixels, of the texts of a row."""
    return _TOP + number * _ROW + _ROW // 2 + 4


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
