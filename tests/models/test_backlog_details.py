"""What the Web UI shows of a backlog, and the table in its pull request."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.models.backlog.state import ItemPhase, OpenBacklogResult
from perdure.models.rules.dependencies import unlanded_outcomes
from perdure.models.webui.backlog import render_backlog_details
from perdure.models.webui.details import DETAILS_BYTES
from tests.costs import examples
from tests.models.backlog_night import NOON, backlog
from tests.models.test_details import NASTY


def test_what_waits_for_a_person_comes_first_with_its_decision_to_be_copied() -> None:
    request, state = backlog({"id": "docs"}, {"id": "api"}, {"id": "page", "depends_on": ("docs",)}, budget_usd=40.0)
    docs, api = state.items["docs"], state.items["api"]
    docs.phase, docs.child.id, docs.waiting.gate, docs.waiting.target = (
        ItemPhase.BUILDING,
        "night/docs",
        "plan",
        "1a2b3c4d",
    )
    docs.waiting.reason, docs.waiting.since, docs.child.granted_usd = "plan: approve?", NOON, 3.0
    api.phase, api.landing.commit, api.child.usd = ItemPhase.LANDED, "9c1d0000" * 5, 1.25
    state.opened = OpenBacklogResult(base="main", base_sha="b" * 40, branch="perdure/night", queue="q")
    shown = render_backlog_details(request, state, NOON).split("\n")
    assert shown[0] == "### Waiting for you: 3 items · 1 waits for you · 1 after others · 1 landed"
    assert "`perdure approve night/docs`" in shown
    assert '`{"item": "docs", "of": "1a2b3c4d"}`' in shown
    assert r"- paid \$1.25 of \$40.00, free \$35.75" in shown
    rows = [line for line in shown if line.startswith("| ")]
    assert [re.sub(r"[*|\\\xa0 ]+", " ", row).strip() for row in rows] == [
        "item why unblocks paid",
        "docs waits plan : approve? 1",
        "page after after docs",
        "api landed `9c1d000` $1.25",
    ]
    assert rows[1].startswith("| **docs**"), "the longest chain is marked"
    assert not rows[3].startswith("| **")


def test_a_question_is_answered_and_money_added_by_their_own_commands() -> None:
    request, state = backlog({"id": "a"}, {"id": "b"})
    for id, gate in (("a", "question"), ("b", "budget")):
        at = state.items[id]
        at.phase, at.child.id, at.waiting.gate, at.waiting.reason = ItemPhase.BUILDING, f"my night/{id}", gate, "?"
    shown = render_backlog_details(request, state, NOON)
    assert "`perdure answer 'my night/a' \"…\"`" in shown
    assert "`perdure budget 'my night/b' --add 5`" in shown
    assert '`{"item": "b", "of": "", "usd": 5}`' in shown


def test_the_items_that_wait_for_a_person_are_shown() -> None:
    request, state = backlog({"id": "big", "decompose": "ask"})
    at = state.items["big"]
    at.phase, at.waiting.gate, at.waiting.target, at.waiting.reason = (
        ItemPhase.BUILDING,
        "items",
        "1a2b3c4d",
        "approve the items",
    )
    at.waiting.about = "api: Add it\npage (after api): Show it"
    shown = render_backlog_details(request, state, NOON).replace("\\", "").split("\n")
    assert shown.index("  - api: Add it") + 1 == shown.index("  - page (after api): Show it")


def test_a_thousand_items_stay_within_what_temporal_takes() -> None:
    request, state = backlog(*[{"id": f"item-{at}", "request": "ü" * 200} for at in range(1000)])
    for number, at in enumerate(state.items.values()):
        at.phase, at.message = list(ItemPhase)[number % 6], "€" * 300
        at.waiting.reason = "€" * 300 if number % 2 else ""
        at.waiting.about = "\n".join(["€" * 300] * 10)
    shown = render_backlog_details(request, state, NOON)
    assert len(shown.encode()) <= DETAILS_BYTES
    listed = sum(1 for line in shown.split("\n") if line.startswith("| ") and "item-" in line.replace("\\", ""))
    assert f"| … {1000 - listed} more |" in shown


def test_the_pull_request_names_what_blocks_an_item_as_the_status_does() -> None:
    _, state = backlog({"id": "api"}, {"id": "page", "depends_on": ["api"]}, {"id": "docs"})
    state.items["api"].phase = ItemPhase.FAILED
    assert unlanded_outcomes(state) == {"api": "failed", "page": "blocked by api", "docs": "not begun"}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NASTY, min_size=4, max_size=4))
def test_no_word_of_strangers_breaks_the_table_or_becomes_markup(words: list[str]) -> None:
    asked = words[0].encode(errors="replace").decode()  # a half character is refused before anybody shows it
    request, state = backlog({"id": "a", "request": "x" + asked}, {"id": "b"})
    state.items["a"].phase, state.items["a"].message = ItemPhase.FAILED, words[1]
    state.items["b"].phase, state.items["b"].waiting.reason, state.items["b"].waiting.gate = (
        ItemPhase.BUILDING,
        words[2],
        "plan",
    )
    state.hold_reason, state.pull_request = words[3], words[1]
    for line in render_backlog_details(request, state, NOON).split("\n"):
        assert all(c.isprintable() for c in line.replace("\xa0", " "))
        outside = re.sub(r"`[^`]*`", "", re.sub(r"\\[^\w\s]", "", line))
        assert not re.search(r"[<>$]", outside)
        if line.startswith("|"):
            assert outside.count("|") == 6


def test_a_held_or_ended_backlog_says_how_it_goes_on() -> None:
    request, state = backlog({"id": "api"}, {"id": "page"})
    state.hold_reason = "held: lunch"
    held = render_backlog_details(request, state, NOON, "night")
    assert "`perdure backlog resume night`, or More Actions, Send a Signal `resume`" in held
    assert "perdure backlog retry" not in held
    state.hold_reason, state.status = "", "ended"
    state.items["api"].phase = ItemPhase.FAILED
    assert "`perdure backlog retry night`" in render_backlog_details(request, state, NOON, "night")
    state.items["api"].phase = state.items["page"].phase = ItemPhase.LANDED
    assert "perdure backlog re" not in render_backlog_details(request, state, NOON, "night")
    state.status, state.items["api"].phase = "failed", ItemPhase.WAITING
    assert "`perdure backlog retry night`" in render_backlog_details(request, state, NOON, "night")
