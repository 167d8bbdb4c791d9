"""A backlog's dependency graph as text, as Mermaid for Markdown, or as an SVG picture.

Drawn here rather than by a library, because it is small: a layer holds the items that depend only on items in layers
before it. All texts that others wrote are escaped. Used by the backlog's report, by `perdure backlog graph`, by the
page and by the demo.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from html import escape
from types import MappingProxyType
from unicodedata import east_asian_width

from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.webui.backlog import count_phases
from perdure.render.backlog.text import PHASE_MARKS, phase_reason
from perdure.text import format_count, one_line, shorten

FORMATS = ("text", "mermaid", "svg")

_MARKS = PHASE_MARKS | {"building": "●", "landing": "●"}
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
"""Fill and outline colour of each phase, in a file of its own: the style of a page (page.css) replaces them by class.
A node also shows the phase's name, in dark text on all colours."""

_NAMED_DEPENDENCIES = 6
"""The number of an item's dependencies that are named in its line of text; the rest is counted."""

_ROW_HEIGHT, _NODE_HEIGHT, _LAYER_GAP, _MARGIN, _CHAR_WIDTH, _SMALL_WIDTH = 56, 40, 70, 20, 8.4, 6
"""Sizes in the picture's units: from node to node, a node's height, between layers, around everything, the width of a
letter of a title and of one below it."""

_TITLE_CHARS, _REASON_CHARS = 36, 52
"""Characters of a title, and of the line below it where that says why an item failed; more where the id alone has
more."""


_PASSING_MAX = 4000
"""Most places that lines may take in layers which they pass: with more of them, nobody could follow a line."""


def draw_graph(progress: BacklogProgress, format: str, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the backlog's graph in `format`, one of FORMATS. Raises KeyError for any other format.

    titles  of items by id, where better ones are known than the beginnings of their requests
    """
    graph = _Graph.from_progress(progress, titles)
    return {"text": _draw_text, "mermaid": _draw_mermaid, "svg": _draw_svg}[format](graph)


@dataclass(frozen=True)
class _Graph:
    """A backlog's items in layers, with their dependencies.

    layers      items, each in a layer behind all that it depends on
    depends_on  by item, its dependencies among these items
    titles      by item; empty where it has none, and is named by its id
    chain       the longest chain of items that have not landed, in order
    counts      how many items are in which phase, as text
    """

    id: str
    layers: tuple[tuple[ItemView, ...], ...]
    depends_on: dict[str, tuple[str, ...]]
    titles: dict[str, str]
    chain: tuple[str, ...]
    counts: str

    @classmethod
    def from_progress(cls, progress: BacklogProgress, titles: Mapping[str, str]) -> _Graph:
        """Return the graph of a backlog, with its items sorted into layers by their dependencies.

        Dependencies on items that are not there are left out; all of them where they form a circle.
        """
        items = {item.id: item for item in progress.items}
        depends_on = {
            id: tuple(dict.fromkeys(dependency for dependency in item.depends_on if dependency in items))
            for id, item in items.items()
        }
        try:
            ordered_ids = list(TopologicalSorter(depends_on).static_order())
        except CycleError:  # no backlog of ours has one
            depends_on, ordered_ids = dict.fromkeys(items, ()), list(items)
        layer_of = dict[str, int]()
        for id in ordered_ids:
            layer_of[id] = 1 + max((layer_of[dependency] for dependency in depends_on[id]), default=-1)
        layers = [list[ItemView]() for _ in range(1 + max(layer_of.values(), default=-1))]
        for id, item in items.items():
            layers[layer_of[id]].append(item)
        chain = tuple(sorted((id for id, item in items.items() if item.critical), key=lambda id: layer_of[id]))
        shown_titles = {id: one_line(titles.get(id) or item.caption, _TITLE_CHARS) for id, item in items.items()}
        counts = count_phases(progress.items)
        return cls(progress.backlog_id, tuple(map(tuple, layers)), depends_on, shown_titles, chain, counts)

    def is_chain_edge(self, before: str, after: str) -> bool:
        """Return whether `before` and `after` are neighbours in the longest chain."""
        return (before, after) in zip(self.chain, self.chain[1:], strict=False)

    @property
    def summary(self) -> str:
        """Return the counts as a line: `8 items · 3 landed · 1 building`."""
        number = sum(map(len, self.layers))
        return format_count(number, "item") + (f" · {self.counts}" if self.counts else "")

    @property
    def chain_text(self) -> str:
        return " → ".join(one_line(id, 40) for id in self.chain)


def _draw_text(graph: _Graph) -> str:
    """Return the graph as lines of text: the backlog's id and counts, then each item by layer with mark, title, id,
    phase and dependencies, then the longest chain of what is left, if there is one; `*` marks its items."""
    id_width = max((len(one_line(item.id, 40)) for layer in graph.layers for item in layer), default=0)
    title_width = max(map(len, graph.titles.values()), default=0)
    lines = [f"{one_line(graph.id, 100)}  {graph.summary}"]
    for layer_number, layer in enumerate(graph.layers, 1):
        lines.append("")
        for index, item in enumerate(layer):
            dependency_names = [one_line(dependency, 40) for dependency in graph.depends_on[item.id]]
            more = (
                f" and {len(dependency_names) - _NAMED_DEPENDENCIES} more"
                if len(dependency_names) > _NAMED_DEPENDENCIES
                else ""
            )
            after = f"← {', '.join(dependency_names[:_NAMED_DEPENDENCIES])}{more}" if dependency_names else ""
            mark, chain = _MARKS.get(item.phase, "○"), "*" if item.critical else " "
            shown_number = f"{layer_number:>3}" if index == 0 else "   "
            line = (
                f"{shown_number} {chain}{mark} "
                + (f"{graph.titles[item.id]:<{title_width}}  " if title_width else "")
                + f"{one_line(item.id, 40):<{id_width}}  "
                f"{one_line(item.phase, 20):<9}  {after}"
            )
            lines.append(line.rstrip())
    return "\n".join(
        [*lines, *(["", f"* the longest chain of what is left: {graph.chain_text}"] * bool(graph.chain)), ""]
    )


def _draw_mermaid(graph: _Graph) -> str:
    """Return the graph as a Mermaid diagram: a node for each item, coloured by phase; the longest chain in bold."""
    items = [item for layer in graph.layers for item in layer]
    node_names = {item.id: f"n{index}" for index, item in enumerate(items)}
    lines = ["graph LR"]
    for item in items:
        style = item.phase if item.phase in _COLOURS else "after"
        parts = [*filter(None, [graph.titles[item.id]]), one_line(item.id, 40), one_line(item.phase, 20)]
        label = "<br/>".join(_escape_label(part, 40) for part in parts)
        lines.append(f'  {node_names[item.id]}["{label}"]:::{style}')
    for item in items:
        for dependency in graph.depends_on[item.id]:
            arrow = "==>" if graph.is_chain_edge(dependency, item.id) else "-->"
            lines.append(f"  {node_names[dependency]} {arrow} {node_names[item.id]}")
    used_styles = {item.phase if item.phase in _COLOURS else "after" for item in items}
    for phase, (fill, line) in _COLOURS.items():
        if phase in used_styles:
            lines.append(f"  classDef {phase} fill:{fill},stroke:{line},color:#1a1d21")
    if graph.chain:
        lines.append(f"  class {','.join(node_names[id] for id in graph.chain)} chain")
        lines.append("  classDef chain stroke-width:3px")
    return "\n".join([*lines, ""])


def _escape_label(text: str, limit: int) -> str:
    """Return a text for a Mermaid label, cut at `limit`: all but letters, digits, spaces and dashes as numbered
    entities."""
    return re.sub(r"[^\w -]", lambda match: f"#{ord(match[0])};", one_line(text, limit))


Stop = tuple[str, ...]
"""A place in a layer: an item, as (id,), or a line from one item to another that passes through the layer, as (from,
to)."""


def _order_stops(graph: _Graph) -> list[list[Stop]]:
    """Return the stops of each layer from top to bottom, each near what it depends on, so that few lines cross.

    The order is by the mean of the places from which lines come. A line over several layers has a stop in each, so that
    no node hides it. Where that takes more than _PASSING_MAX stops, lines get none, and items stand in the backlog's
    order.
    """
    layer_of = {item.id: index for index, layer_items in enumerate(graph.layers) for item in layer_items}
    rows: list[list[Stop]] = [[(item.id,) for item in layer_items] for layer_items in graph.layers]
    long_edges = [
        (dependency, id)
        for id in layer_of
        for dependency in graph.depends_on[id]
        if layer_of[id] - layer_of[dependency] > 1
    ]
    if sum(layer_of[id] - layer_of[dependency] for dependency, id in long_edges) > _PASSING_MAX:
        return rows
    for dependency, id in long_edges:
        for number_between in range(layer_of[dependency] + 1, layer_of[id]):
            rows[number_between].append((dependency, id))
    for number, row in enumerate(rows[1:], 1):
        places = {stop: index for index, stop in enumerate(rows[number - 1])}
        places_before = {stop: _predecessor_places(graph, stop, places) for stop in row}
        row.sort(key=lambda stop: sum(places_before[stop]) / len(places_before[stop]) if places_before[stop] else 0)
    return rows


def _predecessor_places(graph: _Graph, stop: Stop, places: dict[Stop, int]) -> list[int]:
    """Return the places, in the layer before, from which lines lead to this stop."""
    edges = [stop] if len(stop) > 1 else [(on, stop[0]) for on in graph.depends_on[stop[0]]]
    return [places[predecessor] for edge in edges for predecessor in (edge, edge[:1]) if predecessor in places]


def _draw_svg(graph: _Graph) -> str:
    """Return the graph as an SVG picture with title and description: nodes in columns by layer, curved lines between
    them."""
    items = [item for layer_items in graph.layers for item in layer_items]
    line_widths = [_count_cells(graph.titles[item.id] or one_line(item.id, 40)) * _CHAR_WIDTH for item in items]
    line_widths += [_count_cells(_status_line(item)) * _SMALL_WIDTH for item in items]
    node_width = max(round(max(line_widths, default=0)) + 24, 96)
    rows = _order_stops(graph)
    row_count = max(map(len, rows), default=0)
    width = 2 * _MARGIN + len(rows) * (node_width + _LAYER_GAP) - _LAYER_GAP * bool(rows)
    height = 2 * _MARGIN + row_count * _ROW_HEIGHT
    places = dict[str, tuple[int, int]]()
    passing_places = dict[Stop, list[tuple[int, int]]]()
    for layer, row in enumerate(rows):
        for position, stop in enumerate(row, 1):
            place = (
                _MARGIN + layer * (node_width + _LAYER_GAP),
                _MARGIN + (row_count - len(row)) * _ROW_HEIGHT // 2 + (position - 1) * _ROW_HEIGHT,
            )
            if len(stop) == 1:
                places[stop[0]] = place
            else:
                passing_places.setdefault(stop, []).append(place)
    chain_note = f" The longest chain of what is left: {graph.chain_text}." if graph.chain else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="graph-title graph-desc" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif">',
            f'<title id="graph-title">{escape(one_line(f"Backlog {graph.id}", 120))}</title>',
            f'<desc id="graph-desc">{escape(graph.summary)}.{escape(chain_note)}</desc>',
            f'<rect class="ground" width="{width}" height="{height}" fill="#ffffff"/>',
            *(
                _draw_edge(
                    [places[dependency], *passing_places.get((dependency, item.id), []), places[item.id]],
                    node_width,
                    graph.is_chain_edge(dependency, item.id),
                )
                for item in items
                for dependency in graph.depends_on[item.id]
            ),
            *(_draw_node(item, graph.titles[item.id], places[item.id], node_width) for item in items),
            "</svg>",
            "",
        ]
    )


def _count_cells(text: str) -> int:
    """Return the width of a text in letters of ASCII: characters of East Asia and pictures are twice as wide."""
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def _draw_edge(stops: list[tuple[int, int]], node_width: int, is_chain: bool) -> str:
    """Return the SVG path of an arrow along `stops`, from the first node to the last, straight where it passes a layer.

    `stops` are top left corners; `is_chain` draws it bold.
    """
    bend_width = _LAYER_GAP // 2
    x, y = stops[0][0] + node_width, stops[0][1] + _NODE_HEIGHT // 2
    line = f"M{x} {y}"
    for to_x, top in stops[1:]:
        to_y, end = top + _NODE_HEIGHT // 2, to_x - 7 if (to_x, top) == stops[-1] else to_x
        line += f"C{x + bend_width} {y} {to_x - bend_width} {to_y} {end} {to_y}" + (
            f"H{to_x + node_width}" if end == to_x else ""
        )
        x, y = to_x + node_width, to_y
    tip = stops[-1][0]
    head = f"M{tip - 8} {y - 4}L{tip} {y}L{tip - 8} {y + 4}Z"
    colour, stroke_width = ("#1a1d21", 3) if is_chain else ("#8a8f97", 1)
    kind = "chain" if is_chain else "edge"
    return (
        f'<path class="{kind}-line" d="{line}" fill="none" stroke="{colour}" stroke-width="{stroke_width}"/>'
        f'<path class="{kind}-head" d="{head}" fill="{colour}"/>'
    )


def _status_line(item: ItemView) -> str:
    """Return the line below an item's title: mark, id, phase, and of one that failed the reason, too."""
    status = f"{_MARKS.get(item.phase, '○')} {one_line(item.id, 40)} · {one_line(item.phase, 20)}"
    reason = phase_reason(item) if item.phase == "failed" else ""
    return shorten(f"{status}: {reason}", max(len(status), _REASON_CHARS)) if reason else status


def _draw_node(item: ItemView, title: str, corner: tuple[int, int], node_width: int) -> str:
    """Return the SVG group of one item: a box in its phase's colours with title, id and phase; as a tooltip its reason,
    and of one that failed what can be done."""
    (x, y), style = corner, item.phase if item.phase in _COLOURS else "after"
    fill, line = _COLOURS[style]
    tooltip = one_line(": ".join(part for part in (item.id, item.phase, item.because) if part), 200)
    tooltip += " (retry goes on with it, skip lets what depends on it begin)" if item.phase == "failed" else ""
    return (
        f'<g class="node {style}" data-item="{escape(one_line(item.id, 200))}"><title>{escape(tooltip)}</title>'
        f'<rect x="{x}" y="{y}" width="{node_width}" height="{_NODE_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="{line}" stroke-width="{3 if item.critical else 1}"/>'
        f'<text x="{x + 12}" y="{y + 17}" font-size="13" font-weight="600" fill="#1a1d21">'
        f"{escape(title or one_line(item.id, 40))}</text>"
        f'<text class="status" x="{x + 12}" y="{y + 32}" font-size="11" fill="#3c4148">'
        f"{escape(_status_line(item))}</text></g>"
    )
