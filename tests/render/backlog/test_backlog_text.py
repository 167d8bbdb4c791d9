"""A backlog as text, page and graph: what waits first, in layers, and words of others stay words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from perdure.models.backlog.state import BacklogProgress, ItemPhase, ItemView
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.rules.scheduling import item_views
from perdure.render.backlog.drawing import FORMATS, draw_graph
from perdure.render.backlog.report import BacklogReceipt, BacklogReport, backlog_report_lines, render_backlog_page
from perdure.render.backlog.text import SHOWN_ITEMS, change_lines, deciding_command, headline, status_lines
from tests.costs import examples
from tests.models.backlog_night import NOON, backlog, backlogs
from tests.models.test_details import NASTY

NOW = datetime(2026, 1, 5, 9, 4, tzinfo=UTC)


def view(id: str, phase: str, **more: object) -> ItemView:
    return ItemView.model_validate({"id": id, "phase": phase, **more})


def night(*items: ItemView, **more: object) -> BacklogProgress:
    said = {"backlog_id": "night", "run_id": "r", "repository": "/r", "status": "running", "branch": "perdure/night"}
    return BacklogProgress.model_validate({**said, "items": items, **more})


NIGHT = night(
    view("api", "landed", commit="9c1d2ab4"),
    view("parser", "landed", commit="77ab0000"),
    view("page", "building", caption="turn 9"),
    view(
        "docs", "waits", because="plan: approve?", gate="plan", since=NOW - timedelta(minutes=4), delivery="night/docs"
    ),
    view("schema", "failed", because="tests red after 4 fixes"),
    view("export", "blocked", blocked_by="schema", because="blocked by schema (tests red after 4 fixes)"),
    view("stats", "ready", because="after cache: same files"),
    usd=6.2,
    budget_usd=40.0,
)


def test_what_waits_comes_first_with_the_command_that_decides_it() -> None:
    lines = status_lines(NIGHT, now=NOW)
    counted = "night  7 items · 2 landed · 1 building · 1 waits for you · 1 blocked · 1 failed · 1 ready"
    assert (lines[0].startswith(counted), lines[0].endswith("  $6.20 of $40.00")) == (True, True)
    assert lines[lines.index("waits for you") + 1].split("  ") == [
        *("", "docs", "plan: approve?", "unblocks 0", "4m 00s", "perdure approve night/docs")
    ]
    assert lines[lines.index("waits for you") + 2 :] == [
        "landed    api 9c1d · parser 77ab",
        "building  page turn 9",
        "blocked   export by schema (tests red after 4 fixes)",
        "failed    schema (tests red after 4 fixes)",
        "ready     stats (after cache: same files)",
    ]


@pytest.mark.parametrize(
    ("gate", "command"),
    [
        ("plan", "perdure approve night/docs"),
        ("pull_request", "perdure approve night/docs"),
        ("landing", "perdure approve night/docs"),
        ("question", 'perdure answer night/docs "…"'),
        ("budget", "perdure budget night/docs --add 5"),
        ("", "perdure show night/docs"),
    ],
)
def test_each_gate_has_its_command(gate: str, command: str) -> None:
    assert deciding_command("night", view("docs", "waits", gate=gate)) == command


def test_where_its_delivery_says_more_exactly_what_it_asks_that_counts() -> None:
    question = Question(text="Which?", kind=QuestionKind.CHOICE, choices=("a", "b"), why="")
    asked = PendingDecision(
        gate=Gate.QUESTION, target="q", summary="Which?", since=NOW, options=("answer",), question=question
    )
    assert (
        deciding_command("night", view("docs", "waits", gate="question"), asked)
        == "perdure answer night/docs --choice 1"
    )


def test_held_and_ended_backlogs_say_so_with_what_to_type() -> None:
    held = status_lines(night(view("a", "ready"), held="held: release day"))
    assert held[1] == "! held: release day    perdure backlog resume night"
    ended = status_lines(
        night(view("a", "landed", commit="abcd123"), status="completed", message="1 landed", pull_request="/r.git#3")
    )
    assert ended[1:3] == ["completed: 1 landed", "pull request  /r.git#3"]


def test_the_command_that_brings_a_lost_branch_back_has_a_line_of_its_own_and_is_whole() -> None:
    push = f"git -C /{'long/' * 100}vault push /origin.git 17e4a050907c:refs/heads/perdure/night"
    why = (
        f"branch perdure/night was put back\n  where: /origin.git\n  fix: bring 17e4a050907c back, then retry:\n{push}"
    )
    stuck = night(
        view("api", "failed", because=why[:300]),
        view("docs", "failed", because="tests red"),
        held=f"held: api could not land: {why}",
        waiting="for its window",
    )
    assert status_lines(stuck)[1:8] == [
        "! held: api could not land: branch perdure/night was put back",
        "    where: /origin.git",
        "    fix: bring 17e4a050907c back, then retry:",
        f"    {push}",
        "    perdure backlog retry night api",
        "    perdure backlog resume night",
        "! waits for its window",
    ]
    assert "failed    api (branch perdure/night was put back) · docs (tests red)" in status_lines(stuck)
    assert f"    {push}" in change_lines(night(), stuck)


def test_a_thousand_items_are_a_screen_and_a_word_about_the_rest() -> None:
    lines = status_lines(night(*(view(f"item-{n}", "ready") for n in range(1000))))
    assert len(lines) < 20
    assert f"… {1000 - SHOWN_ITEMS} more" in lines[-1]
    assert all(len(line) < 200 for line in lines)


def test_words_of_others_move_no_cursor_and_make_no_lines() -> None:
    evil = "x\x1b[2J\nlanded    y"
    for phase in ("waits", "blocked", "failed", "ready", "building", "skipped"):
        said = [
            *status_lines(night(view("a", phase, because=evil, caption=evil), message=evil, held=evil, waiting=evil))
        ]
        assert not any("\x1b" in line or "\n" in line for line in said), phase
    assert not any(
        "\x1b" in line or "\n" in line for line in change_lines(None, night(view("a", "failed", because=evil)))
    )


def test_each_change_is_told_once() -> None:
    first = night(view("api", "building", caption="turn 1"), view("docs", "after", because="api"))
    then = night(
        view("api", "landed", commit="9c1d2ab4"),
        view("docs", "building"),
        view("new", "ready"),
        held="held: release day",
    )
    assert change_lines(None, first) == ["▸ api building"]
    assert change_lines(first, first) == []
    assert (
        change_lines(first, night(view("api", "building", caption="turn 2"), view("docs", "after", because="api")))
        == []
    )
    assert change_lines(first, then) == [
        "✓ api landed as 9c1d2ab",
        "▸ docs building",
        "▸ new was added",
        "! held: release day",
    ]
    asks = night(view("api", "waits", of="1", gate="plan", because="plan: approve?"))
    assert change_lines(night(view("api", "building")), asks) == [
        "! api waits for you: plan: approve?  perdure approve night/api"
    ]
    again = night(view("api", "waits", of="2", gate="plan", because="plan: approve?"))
    assert len(change_lines(asks, again)) == 1


def test_a_reason_does_not_repeat_the_state() -> None:
    stuck = night(
        view("a", "failed", because="failed"), view("b", "blocked", blocked_by="a", because="blocked by a (x)")
    )
    assert change_lines(None, stuck) == ["✗ a failed", "✗ b blocked by a (x)"]
    assert status_lines(stuck)[-2:] == ["blocked   b by a (x)", "failed    a"]
    opening = night(view("a", "ready"), waiting="creating its branch")
    assert status_lines(opening)[1] == change_lines(None, opening)[0] == "! creating its branch"


def test_money_that_nobody_knows_is_no_zero() -> None:
    assert headline(night(view("a", "ready"), usd=None)).endswith("cost unknown")


EVIL = "<script>alert(1)</script>\x1b[2J"


def report() -> BacklogReport:
    items = (
        ItemView(id="api", phase="landed", commit="9c1d2ab4" * 5, usd=0.2),
        ItemView(id="page", phase="failed", because=EVIL, caption=EVIL, depends_on=("api",)),
    )
    progress = BacklogProgress(
        backlog_id="night",
        run_id="r",
        repository=EVIL,
        status="ended",
        branch="perdure/night",
        message=EVIL,
        pull_request="https://forge.example/1",
        items=items,
    )
    receipt = BacklogReceipt(items=2, landed=1, lost=(EVIL,))
    return BacklogReport(progress, {"api": "Add it", "page": EVIL}, receipt)


def test_the_page_needs_nothing_else_and_carries_out_nothing() -> None:
    page = render_backlog_page(report())
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert 'href="https://forge.example/1"' in page
    assert "<svg" in page
    assert "items lost 1" in page
    assert "src=" not in page


def test_the_text_has_the_table_the_graph_and_the_receipt() -> None:
    lines = backlog_report_lines(report())
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert any(line.startswith("✓  api") and "9c1d2ab" in line and line.endswith("Add it") for line in lines)
    assert "! 1 of 2 landed · items lost 1 · landed twice 0 · branches without an owner 0" in text


LINE = re.compile(
    r"graph LR|  n\d+\[\"(?:(?:[\w -]|#\d+;)*(?:<br/>)?){3}\"\]:::\w+|  n\d+ [=-]{2}> n\d+|  class(?:Def)? .*|"
)
SVG = "{http://www.w3.org/2000/svg}"


def progress(*items: ItemView, id: str = "night") -> BacklogProgress:
    return BacklogProgress(backlog_id=id, run_id="r", repository="/r", status="running", items=items)


def night_of_drawing() -> BacklogProgress:
    request, state = backlog(
        {"id": "schema", "request": "Write the schema"},
        {"id": "api", "request": "Serve it"},
        {"id": "export", "request": "Export it", "depends_on": ("schema",)},
        {"id": "page", "request": "Show it", "depends_on": ("api", "export")},
        {"id": "docs", "request": "Describe it"},
    )
    state.items["api"].phase, state.items["docs"].phase = ItemPhase.LANDED, ItemPhase.FAILED
    state.items["docs"].message = "tests red: 2 of 44 fail"
    state.items["schema"].phase = ItemPhase.BUILDING
    return progress(*item_views(request, state, NOON))


def test_text_has_a_layer_for_each_step_and_marks_the_longest_chain() -> None:
    assert draw_graph(night_of_drawing(), "text").split("\n") == [
        "night  5 items · 1 building · 1 failed · 2 after others · 1 landed",
        "",
        "  1 *● Write the schema  schema  building",
        "     ✓ Serve it          api     landed",
        "     ✗ Describe it       docs    failed",
        "",
        "  2 *○ Export it         export  after      ← schema",
        "",
        "  3 *○ Show it           page    after      ← api, export",
        "",
        "* the longest chain of what is left: schema → export → page",
        "",
    ]


def test_mermaid_has_states_as_classes_and_the_longest_chain_in_thick_lines() -> None:
    lines = draw_graph(night_of_drawing(), "mermaid").split("\n")
    assert lines[:6] == [
        "graph LR",
        '  n0["Write the schema<br/>schema<br/>building"]:::building',
        '  n1["Serve it<br/>api<br/>landed"]:::landed',
        '  n2["Describe it<br/>docs<br/>failed"]:::failed',
        '  n3["Export it<br/>export<br/>after"]:::after',
        '  n4["Show it<br/>page<br/>after"]:::after',
    ]
    assert lines[6:9] == ["  n0 ==> n3", "  n1 --> n4", "  n3 ==> n4"]
    assert "  class n0,n3,n4 chain" in lines


def test_a_picture_says_in_words_what_it_shows() -> None:
    root = ElementTree.fromstring(draw_graph(night_of_drawing(), "svg"))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "graph-title graph-desc"
    assert root.findtext(f"{SVG}title") == "Backlog night"
    assert (root.findtext(f"{SVG}desc") or "").endswith("The longest chain of what is left: schema → export → page.")
    nodes = root.findall(f"{SVG}g")
    assert [node.findtext(f"{SVG}title") for node in nodes][3] == "export: after: after schema"
    thick = [node.findtext(f"{SVG}text") for node in nodes if node.find(f"{SVG}rect[@stroke-width='3']") is not None]
    assert thick == ["Write the schema", "Export it", "Show it"]
    assert [node.findall(f"{SVG}text")[1].text for node in nodes][1:4] == [
        "✓ api · landed", "✗ docs · failed: tests red: 2 of 44 fail", "○ export · after"
    ]  # fmt: skip
    assert (nodes[2].findtext(f"{SVG}title") or "").endswith(
        "(retry goes on with it, skip lets what depends on it begin)"
    )
    assert len(root.findall(f"{SVG}path[@fill='none']")) == 3
    assert len(root.findall(f"{SVG}path[@stroke-width='3']")) == 2


def test_a_better_title_of_an_item_is_shown_and_what_is_cut_has_the_id_behind_it() -> None:
    titles = dict.fromkeys(("api", "docs"), "A title that is much longer than a node of the picture may be")
    for format in FORMATS:
        drawing = draw_graph(night_of_drawing(), format, titles)
        assert "Serve it" not in drawing
        assert drawing.count("A title that is much longer th") == 2, format
        assert all(id in drawing for id in titles)


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
        node.get("data-item"): int((node.find(f"{SVG}rect") or node[1]).get("x") or 0)
        for node in root.findall(f"{SVG}g")
    }
    assert sorted(at) == sorted(item.id for item in shown.items)  # type: ignore[type-var]
    assert all(at[on] < at[item.id] for item in shown.items for on in item.depends_on)
    assert len(root.findall(f"{SVG}path[@fill='none']")) == sum(len(item.depends_on) for item in shown.items)
