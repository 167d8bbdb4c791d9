"""The dependency graph of a backlog as somebody wants it drawn: to read, for Markdown, or as a picture.

Our own, because it is small: a layer holds what depends on nothing beyond the layers before it. Whatever strangers
wrote is escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from html import escape

from perdure.models.backlog_messages import BacklogProgress, ItemView
from perdure.models.webui.backlog import counted
from perdure.text import one_line

FORMATS = ("text", "mermaid", "svg")

_MARKS = {
    "landed": "✓",
    "failed": "✗",
    "blocked": "✗",
    "building": "●",
    "landing": "●",
    "waits": "!",
    "skipped": "–",
    "cancelled": "–",
    "decomposed": "–",
}
_COLOURS = {
    "landed": ("#d8f0dd", "#1a6b34"),
    "failed": ("#fadcd9", "#a3261b"),
    "blocked": ("#fbe9e7", "#a3261b"),
    "building": ("#dbe9fb", "#1b4f9c"),
    "landing": ("#c4dbfa", "#1b4f9c"),
    "waits": ("#fff0c2", "#7a5600"),
    "ready": ("#ffffff", "#4a4f57"),
    "after": ("#f1f2f4", "#6b7078"),
    "skipped": ("#f1f2f4", "#8a8f97"),
    "cancelled": ("#f1f2f4", "#8a8f97"),
    "decomposed": ("#f1f2f4", "#6b7078"),
}
"""Fill and line of each state; its name stands there as well. Text is dark on all of them."""

_NAMED = 6
"""Items named in one line, of those that it depends on."""

_ROW, _HIGH, _GAP, _EDGE, _CHAR = 56, 40, 70, 20, 7.4
"""Of the picture, in its units: from node to node, a node's height, between layers, around it all, a letter's width."""


_PASSING_MOST = 4000
"""Places that lines take in layers which they pass: of more, nobody could follow one."""


def draw(progress: BacklogProgress, format: str) -> str:
    """`format`: one of FORMATS."""
    graph = _Graph.of(progress)
    return {"text": _text, "mermaid": _mermaid, "svg": _svg}[format](graph)


@dataclass(frozen=True)
class _Graph:
    """`layers`: items, each behind all it depends on; depends_on: of these items only; chain: the longest, in order."""

    id: str
    layers: tuple[tuple[ItemView, ...], ...]
    depends_on: dict[str, tuple[str, ...]]
    chain: tuple[str, ...]
    counts: str

    @classmethod
    def of(cls, progress: BacklogProgress) -> _Graph:
        items = {item.id: item for item in progress.items}
        depends_on = {
            id: tuple(dict.fromkeys(on for on in item.depends_on if on in items)) for id, item in items.items()
        }
        try:
            in_order = list(TopologicalSorter(depends_on).static_order())
        except CycleError:  # no backlog of ours has one
            depends_on, in_order = dict.fromkeys(items, ()), list(items)
        layer = dict[str, int]()
        for id in in_order:
            layer[id] = 1 + max((layer[on] for on in depends_on[id]), default=-1)
        layers = [list[ItemView]() for _ in range(1 + max(layer.values(), default=-1))]
        for id, item in items.items():
            layers[layer[id]].append(item)
        chain = tuple(sorted((id for id, item in items.items() if item.critical), key=lambda id: layer[id]))
        return cls(progress.backlog_id, tuple(map(tuple, layers)), depends_on, chain, counted(progress.items))

    def on_chain(self, before: str, after: str) -> bool:
        return (before, after) in zip(self.chain, self.chain[1:], strict=False)

    @property
    def words(self) -> str:
        """`8 items · 3 landed · 1 building`."""
        number = sum(map(len, self.layers))
        return f"{number} item{'s' if number != 1 else ''}" + (f" · {self.counts}" if self.counts else "")

    @property
    def chain_words(self) -> str:
        return " → ".join(one_line(id, 40) for id in self.chain)


def _text(graph: _Graph) -> str:
    wide = max((len(one_line(item.id, 40)) for some in graph.layers for item in some), default=0)
    lines = [f"{one_line(graph.id, 100)}  {graph.words}"]
    for number, some in enumerate(graph.layers, 1):
        lines.append("")
        for at, item in enumerate(some):
            named = [one_line(on, 40) for on in graph.depends_on[item.id]]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            after = f"← {', '.join(named[:_NAMED])}{more}" if named else ""
            mark, chain = _MARKS.get(item.phase, "○"), "*" if item.critical else " "
            first = f"{number:>3}" if at == 0 else "   "
            line = f"{first} {chain}{mark} {one_line(item.id, 40):<{wide}}  {one_line(item.phase, 20):<9}  {after}"
            lines.append(line.rstrip())
    return "\n".join(
        [*lines, *(["", f"* the longest chain of what is left: {graph.chain_words}"] * bool(graph.chain)), ""]
    )


def _mermaid(graph: _Graph) -> str:
    items = [item for some in graph.layers for item in some]
    name = {item.id: f"n{at}" for at, item in enumerate(items)}
    lines = ["graph LR"]
    for item in items:
        shape = item.phase if item.phase in _COLOURS else "after"
        lines.append(f'  {name[item.id]}["{_entities(item.id, 40)}<br/>{_entities(item.phase, 20)}"]:::{shape}')
    for item in items:
        for on in graph.depends_on[item.id]:
            arrow = "==>" if graph.on_chain(on, item.id) else "-->"
            lines.append(f"  {name[on]} {arrow} {name[item.id]}")
    used = {item.phase if item.phase in _COLOURS else "after" for item in items}
    for phase, (fill, line) in _COLOURS.items():
        if phase in used:
            lines.append(f"  classDef {phase} fill:{fill},stroke:{line},color:#1a1d21")
    if graph.chain:
        lines.append(f"  class {','.join(name[id] for id in graph.chain)} chain")
        lines.append("  classDef chain stroke-width:3px")
    return "\n".join([*lines, ""])


def _entities(text: str, limit: int) -> str:
    """For Mermaid's labels: all but letters, digits, spaces and dashes by their numbers."""
    return re.sub(r"[^\w -]", lambda found: f"#{ord(found[0])};", one_line(text, limit))


Stop = tuple[str, ...]
"""A place in a layer: an item, (id,), or a line from one to another that passes through, (from, to)."""


def _rows(graph: _Graph) -> list[list[Stop]]:
    """The stops of each layer, from the top: beside what it depends on, and no line is hidden."""
    layer = {item.id: at for at, some in enumerate(graph.layers) for item in some}
    rows: list[list[Stop]] = [[(item.id,) for item in some] for some in graph.layers]
    long = [(on, id) for id in layer for on in graph.depends_on[id] if layer[id] - layer[on] > 1]
    if sum(layer[id] - layer[on] for on, id in long) > _PASSING_MOST:
        return rows
    for on, id in long:
        for between in range(layer[on] + 1, layer[id]):
            rows[between].append((on, id))
    for number, row in enumerate(rows[1:], 1):
        place = {stop: at for at, stop in enumerate(rows[number - 1])}
        before = {stop: _before(graph, stop, place) for stop in row}
        row.sort(key=lambda stop: sum(before[stop]) / len(before[stop]) if before[stop] else 0)
    return rows


def _before(graph: _Graph, stop: Stop, place: dict[Stop, int]) -> list[int]:
    """The places from which the lines to it come, in the layer before."""
    lines = [stop] if len(stop) > 1 else [(on, stop[0]) for on in graph.depends_on[stop[0]]]
    return [place[come] for line in lines for come in (line, line[:1]) if come in place]


def _svg(graph: _Graph) -> str:
    items = [item for some in graph.layers for item in some]
    wide = max(round(max((len(one_line(item.id, 40)) for item in items), default=0) * _CHAR) + 24, 96)
    rows = _rows(graph)
    tall = max(map(len, rows), default=0)
    width = 2 * _EDGE + len(rows) * (wide + _GAP) - _GAP * bool(rows)
    height = 2 * _EDGE + tall * _ROW
    places = dict[str, tuple[int, int]]()
    passing = dict[Stop, list[tuple[int, int]]]()
    for layer, row in enumerate(rows):
        for at, stop in enumerate(row, 1):
            place = (_EDGE + layer * (wide + _GAP), _EDGE + (tall - len(row)) * _ROW // 2 + (at - 1) * _ROW)
            if len(stop) == 1:
                places[stop[0]] = place
            else:
                passing.setdefault(stop, []).append(place)
    chain = f" The longest chain of what is left: {graph.chain_words}." if graph.chain else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="graph-title graph-desc" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif">',
            f'<title id="graph-title">{escape(one_line(f"Backlog {graph.id}", 120))}</title>',
            f'<desc id="graph-desc">{escape(graph.words)}.{escape(chain)}</desc>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *(
                _edge([places[on], *passing.get((on, item.id), []), places[item.id]], wide, graph.on_chain(on, item.id))
                for item in items
                for on in graph.depends_on[item.id]
            ),
            *(_node(item, places[item.id], wide) for item in items),
            "</svg>",
            "",
        ]
    )


def _edge(stops: list[tuple[int, int]], wide: int, chain: bool) -> str:
    """A line from the first to the last, straight where it passes a layer."""
    bend = _GAP // 2
    x, y = stops[0][0] + wide, stops[0][1] + _HIGH // 2
    line = f"M{x} {y}"
    for to_x, top in stops[1:]:
        to_y, end = top + _HIGH // 2, to_x - 7 if (to_x, top) == stops[-1] else to_x
        line += f"C{x + bend} {y} {to_x - bend} {to_y} {end} {to_y}" + (f"H{to_x + wide}" if end == to_x else "")
        x, y = to_x + wide, to_y
    tip = stops[-1][0]
    head = f"M{tip - 8} {y - 4}L{tip} {y}L{tip - 8} {y + 4}Z"
    colour, thick = ("#1a1d21", 3) if chain else ("#8a8f97", 1)
    return f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="{thick}"/><path d="{head}" fill="{colour}"/>'


def _node(item: ItemView, place: tuple[int, int], wide: int) -> str:
    (x, y), (fill, line) = place, _COLOURS.get(item.phase, _COLOURS["after"])
    phase = escape(one_line(item.phase, 20))
    said = ": ".join(part for part in (item.id, item.phase, item.because) if part)
    return (
        f'<g><title>{escape(one_line(said, 200))}</title><rect x="{x}" y="{y}" width="{wide}" height="{_HIGH}" rx="6" '
        f'fill="{fill}" stroke="{line}" stroke-width="{3 if item.critical else 1}"/>'
        f'<text x="{x + 12}" y="{y + 17}" font-size="13" font-weight="600" fill="#1a1d21">'
        f"{escape(one_line(item.id, 40))}</text>"
        f'<text x="{x + 12}" y="{y + 32}" font-size="11" fill="#3c4148">'
        f"{_MARKS.get(item.phase, '○')} {phase}</text></g>"
    )
