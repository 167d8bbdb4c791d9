"""The dependency graph as text, Mermaid and SVG: whole, in layers, and escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from perdure.models.backlog.state import BacklogProgress, ItemPhase, ItemView
from perdure.models.rules.scheduling import item_views
from perdure.render.backlog.drawing import FORMATS, draw_graph
from tests.examples import examples
from tests.models.backlog_night import NOON, backlog, backlogs
from tests.models.test_details import NASTY

LINE = re.compile(
    r"graph LR|  n\d+\[\"(?:[\w -]|#\d+;)*<br/>(?:[\w -]|#\d+;)*\"\]:::\w+|  n\d+ [=-]{2}> n\d+|  class(?:Def)? .*|"
)
SVG = "{http://www.w3.org/2000/svg}"


def progress(*items: ItemView, id: str = "night") -> BacklogProgress:
    return BacklogProgress(backlog_id=id, run_id="r", repository="/r", status="running", items=items)


def night() -> BacklogProgress:
    request, state = backlog(
        {"id": "schema"},
        {"id": "api"},
        {"id": "export", "depends_on": ("schema",)},
        {"id": "page", "depends_on": ("api", "export")},
        {"id": "docs"},
    )
    state.items["api"].phase, state.items["docs"].phase = ItemPhase.LANDED, ItemPhase.FAILED
    state.items["schema"].phase = ItemPhase.BUILDING
    return progress(*item_views(request, state, NOON))


def test_text_has_a_layer_for_each_step_and_marks_the_longest_chain() -> None:
    assert draw_graph(night(), "text").split("\n") == [
        "night  5 items · 1 building · 1 failed · 2 after others · 1 landed",
        "",
        "  1 *● schema  building",
        "     ✓ api     landed",
        "     ✗ docs    failed",
        "",
        "  2 *○ export  after      ← schema",
        "",
        "  3 *○ page    after      ← api, export",
        "",
        "* the longest chain of what is left: schema → export → page",
        "",
    ]


def test_mermaid_has_states_as_classes_and_the_longest_chain_in_thick_lines() -> None:
    lines = draw_graph(night(), "mermaid").split("\n")
    assert lines[:6] == [
        "graph LR",
        '  n0["schema<br/>building"]:::building',
        '  n1["api<br/>landed"]:::landed',
        '  n2["docs<br/>failed"]:::failed',
        '  n3["export<br/>after"]:::after',
        '  n4["page<br/>after"]:::after',
    ]
    assert lines[6:9] == ["  n0 ==> n3", "  n1 --> n4", "  n3 ==> n4"]
    assert "  class n0,n3,n4 chain" in lines


def test_a_picture_says_in_words_what_it_shows() -> None:
    root = ElementTree.fromstring(draw_graph(night(), "svg"))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "graph-title graph-desc"
    assert root.findtext(f"{SVG}title") == "Backlog night"
    assert (root.findtext(f"{SVG}desc") or "").endswith("The longest chain of what is left: schema → export → page.")
    nodes = root.findall(f"{SVG}g")
    assert [node.findtext(f"{SVG}title") for node in nodes][3] == "export: after: after schema"
    thick = [node.findtext(f"{SVG}text") for node in nodes if node.find(f"{SVG}rect[@stroke-width='3']") is not None]
    assert thick == ["schema", "export", "page"]
    assert len(root.findall(f"{SVG}path[@fill='none']")) == 3
    assert len(root.findall(f"{SVG}path[@stroke-width='3']")) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_drawn_of_nothing_and_a_circle_is_drawn_without_lines(format: str) -> None:
    assert draw_graph(progress(), format)
    circle = progress(
        ItemView(id="a", phase="after", depends_on=("b",)), ItemView(id="b", phase="?", depends_on=("a",))
    )
    assert "a" in draw_graph(circle, format)


@settings(max_examples=examples(60), deadline=None)
@given(NASTY, NASTY, NASTY)
def test_no_word_of_strangers_leaves_its_place_in_a_drawing(id: str, phase: str, because: str) -> None:
    shown = progress(
        ItemView(id=id, phase=phase, because=because, critical=True),
        ItemView(id="b", phase="ready", depends_on=(id,)),
        id=because,
    )
    root = ElementTree.fromstring(draw_graph(shown, "svg"))
    known = {SVG + name for name in ("svg", "g", "title", "desc", "rect", "path", "text")}
    assert {element.tag for element in root.iter()} <= known
    assert all(line.isprintable() for line in draw_graph(shown, "text").split("\n"))
    for line in draw_graph(shown, "mermaid").split("\n"):
        assert LINE.fullmatch(line)


@settings(max_examples=40, deadline=None)
@given(backlogs())
def test_every_item_and_every_line_between_two_is_drawn_once_and_no_line_goes_back(made: tuple[object, object]) -> None:
    request, state = made
    shown = progress(*item_views(request, state, NOON))  # type: ignore[arg-type]
    root = ElementTree.fromstring(draw_graph(shown, "svg"))
    at = {
        node.findtext(f"{SVG}text"): int((node.find(f"{SVG}rect") or node[1]).get("x") or 0)
        for node in root.findall(f"{SVG}g")
    }
    assert sorted(at) == sorted(item.id for item in shown.items)  # type: ignore[type-var]
    assert all(at[on] < at[item.id] for item in shown.items for on in item.depends_on)
    assert len(root.findall(f"{SVG}path[@fill='none']")) == sum(len(item.depends_on) for item in shown.items)
