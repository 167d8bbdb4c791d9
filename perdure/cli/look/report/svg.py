"""A timeline as SVG: as wide as its place, with letters that stay the same size; a pure function."""

from __future__ import annotations

from html import escape

from perdure.cli.look.report.timeline import Bar, Gap, Row, Timeline
from perdure.cli.words import count, shown_line
from perdure.text import span

_ROW, _BAR, _TOP, _BOTTOM = 28, 14, 24, 8
"""Pixels: of a row, of its bar, of the labels above all rows, of the room below."""

_LEFT, _WIDTH = 21, 78
"""Percent: where the bars begin, and how wide their place is."""

_BEFORE = 0.72
"""A bar that ends further to the right has its time written before it."""


def svg_of(timeline: Timeline) -> str:
    """All of it is drawn with classes that a page gives colours to; words are escaped."""
    height = _TOP + _ROW * len(timeline.rows) + _BOTTOM
    parts = [
        f'<svg class="timeline" width="100%" height="{height}" role="img" aria-labelledby="timeline-told">',
        f'<title id="timeline-told">{escape(_in_words(timeline))}</title>',
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
    ]
    parts += [
        f'<text class="name" x="0" y="{_middle(n)}">{escape(row.mark)} {escape(shown_line(row.name, 12))}</text>'
        for n, row in enumerate(timeline.rows)
    ]
    parts.append(f'<svg x="{_LEFT}%" width="{_WIDTH}%" height="{height}" overflow="visible">')
    parts += [_tick(place, words, height) for place, words in timeline.ticks]
    parts += [_gap(gap, timeline, height) for gap in timeline.gaps]
    parts += [_row(row, n, timeline) for n, row in enumerate(timeline.rows)]
    return "".join([*parts, "</svg></svg>"])


def _in_words(timeline: Timeline) -> str:
    """The picture in words."""
    rows = ", ".join(f"{row.name} {row.took}" for row in timeline.rows)
    deaths = sum(len(row.deaths) for row in timeline.rows)
    died = f"; {count(deaths, 'worker death')}" if deaths else ""
    waited = sum(gap.end - gap.start for gap in timeline.gaps)
    return f"Timeline over {span(timeline.seconds)}: {rows}{died}" + (f"; {span(waited)} waiting" if waited else "")


def _tick(place: float, words: str, height: int) -> str:
    x = _percent(place)
    anchor = ' text-anchor="middle"' if place > 0.03 else ""
    line = f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height - _BOTTOM}"/>'
    return f'{line}<text class="tick" x="{x}" y="11"{anchor}>{escape(words)}</text>'


def _gap(gap: Gap, timeline: Timeline, height: int) -> str:
    start, end = timeline.axis.at(gap.start), timeline.axis.at(gap.end)
    words = f"waiting, {span(gap.end - gap.start)}" + (f": {shown_line(gap.reason, 160)}" if gap.reason else "")
    short = span(gap.end - gap.start)
    place = (
        f'x="{_percent(start)}" width="{_percent(end - start)}" y="{_TOP - 6}" height="{height - _BOTTOM - _TOP + 6}"'
    )
    drawn = f'<rect class="gap" {place} fill="url(#hatch)"><title>{escape(words)}</title></rect>'
    if not gap.cut:
        return drawn
    x = _percent((start + end) / 2)
    return f'{drawn}<text class="tick cut" x="{x}" y="{height - 1}" text-anchor="middle">{short}</text>'


def _row(row: Row, number: int, timeline: Timeline) -> str:
    top = _TOP + number * _ROW + (_ROW - _BAR) / 2
    bars = "".join(_bar(bar, top, timeline) for bar in row.bars)
    start, end = timeline.axis.at(row.bars[0].start), timeline.axis.at(row.bars[-1].end)
    before = end > _BEFORE
    x, shift, anchor = (start, -6, "end") if before else (end, 6, "start")
    place = f'x="{_percent(x)}" dx="{shift}" y="{_middle(number)}" text-anchor="{anchor}"'
    took = f'<text class="took" {place}>{row.took}</text>'
    fits = not before or start > 0.12
    return bars + (took if fits else "") + "".join(_death(at, top, timeline) for at in row.deaths)


def _bar(bar: Bar, top: float, timeline: Timeline) -> str:
    start, end = timeline.axis.at(bar.start), timeline.axis.at(bar.end)
    place = f'x="{_percent(start)}" width="{_percent(end - start)}" y="{top:g}" height="{_BAR}" rx="3"'
    drawn = f'<rect class="bar {escape(bar.status)}" {place}><title>{escape(bar.title)}</title></rect>'
    turns = (_percent(timeline.axis.at(at)) for at in bar.turns)
    return drawn + "".join(
        f'<line class="turn" x1="{x}" x2="{x}" y1="{top + 2:g}" y2="{top + _BAR - 2:g}"/>' for x in turns
    )


def _death(at: float, top: float, timeline: Timeline) -> str:
    """A cross at that time: two strokes, for colour alone tells nobody."""
    middle = top + _BAR / 2
    return (
        f'<svg class="death" x="{_percent(timeline.axis.at(at))}" y="{middle:g}" overflow="visible">'
        "<title>a worker died here; the turn was done again from its checkpoint</title>"
        '<circle r="7"/><path d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5"/></svg>'
    )


def _middle(number: int) -> int:
    return _TOP + number * _ROW + _ROW // 2 + 4


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
