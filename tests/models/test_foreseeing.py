"""Conflicts foreseen between items: as they were told last, shown on both, while both are built."""

from __future__ import annotations

from perdure.models.backlog.state import BacklogState, ItemPhase
from perdure.models.ids import delivery_key
from perdure.models.rules.scheduling import conflicts_text, item_views, record_conflicts
from tests.models.backlog_night import NOON, backlog


def building(*ids: str) -> BacklogState:
    state = backlog(*({"id": id} for id in ids))[1]
    for id, at in state.items.items():
        at.phase, at.child.id = ItemPhase.BUILDING, f"night/{id}"
    return state


def test_both_sides_show_it_until_one_has_landed_or_says_otherwise() -> None:
    state = building("api", "page", "docs")
    record_conflicts(state, "api", {delivery_key("night/page"): "src/app.py", "other-delivery": "x", "night/api": "y"})
    assert conflicts_text(state, "api") == "likely to conflict with page in src/app.py"
    assert conflicts_text(state, "page") == "likely to conflict with api in src/app.py"
    assert conflicts_text(state, "docs") == ""
    request = backlog({"id": "x"})[0]
    shown = {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)}
    assert shown["page"] == ("building", "likely to conflict with api in src/app.py")
    state.landing.queue = ("page",)
    shown = {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)}
    assert shown["page"] == ("landing", "is the next · likely to conflict with api in src/app.py")
    record_conflicts(state, "page", {})
    assert conflicts_text(state, "api") == "", "the newer commit goes with it"
    record_conflicts(state, "page", {delivery_key("night/api"): "a", delivery_key("night/docs"): "b"})
    assert conflicts_text(state, "page") == "likely to conflict with api in a, docs in b"
    state.items["api"].phase = ItemPhase.LANDED
    assert conflicts_text(state, "page") == "likely to conflict with docs in b"


def test_whatever_is_sent_little_is_kept() -> None:
    names = [f"i{at}" for at in range(30)]
    state = building(*names)
    record_conflicts(state, "i0", {delivery_key(f"night/{id}"): "p" * 5000 for id in names})
    assert len(state.items["i0"].foreseen.conflicts) == 10
    assert max(map(len, state.items["i0"].foreseen.conflicts.values())) == 200
    assert conflicts_text(state, "i0").endswith(" and 8 more")
