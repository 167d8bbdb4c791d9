"""Conflicts foreseen between items: as they were told last, shown on both, while both are built."""

from __future__ import annotations

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.ids import delivery_key
from perdure.models.rules.foreseeing import foresee, foreseen
from perdure.models.rules.scheduling import views
from tests.models.backlog_night import NOON, backlog


def building(*ids: str) -> BacklogState:
    state = backlog(*({"id": id} for id in ids))[1]
    for id, at in state.items.items():
        at.phase, at.delivery = ItemPhase.BUILDING, f"night/{id}"
    return state


def test_both_sides_show_it_until_one_has_landed_or_says_otherwise() -> None:
    state = building("api", "page", "docs")
    foresee(state, "api", {delivery_key("night/page"): "src/app.py", "other-delivery": "x", "night/api": "y"})
    assert foreseen(state, "api") == "likely to conflict with page in src/app.py"
    assert foreseen(state, "page") == "likely to conflict with api in src/app.py"
    assert foreseen(state, "docs") == ""
    request = backlog({"id": "x"})[0]
    shown = {view.id: (view.phase, view.because) for view in views(request, state, NOON)}
    assert shown["page"] == ("building", "likely to conflict with api in src/app.py")
    state.queue = ("page",)
    shown = {view.id: (view.phase, view.because) for view in views(request, state, NOON)}
    assert shown["page"] == ("landing", "is the next · likely to conflict with api in src/app.py")
    foresee(state, "page", {})
    assert foreseen(state, "api") == "", "the newer commit goes with it"
    foresee(state, "page", {delivery_key("night/api"): "a", delivery_key("night/docs"): "b"})
    assert foreseen(state, "page") == "likely to conflict with api in a, docs in b"
    state.items["api"].phase = ItemPhase.LANDED
    assert foreseen(state, "page") == "likely to conflict with docs in b"


def test_whatever_is_sent_little_is_kept() -> None:
    names = [f"i{at}" for at in range(30)]
    state = building(*names)
    foresee(state, "i0", {delivery_key(f"night/{id}"): "p" * 5000 for id in names})
    assert len(state.items["i0"].meets) == 10
    assert max(map(len, state.items["i0"].meets.values())) == 200
    assert foreseen(state, "i0").endswith(" and 8 more")
