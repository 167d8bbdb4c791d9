"""The next items of a backlog to begin and to land: pure decisions over its state, the same for the same state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from math import floor

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_messages import ItemView, unbegun
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.limits import USD_LEAST
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.foreseeing import foreseen
from perdure.models.rules.slots import ROOM, next_free, no_slot
from perdure.models.touches import Meeting
from perdure.models.window import Offset, Window
from perdure.text import one_line

OVERTAKEN_MOST = 8
"""Items that may begin before the first one that waits for files, and keep it waiting because they change them too:
after twice the usual number at once, its files are kept free for it."""

EXPLAINED_MOST = 100
"""Items that wait of which each is told for whose files it does, where no slot is free either; of those behind them
only that. Nobody reads further, and for a thousand it took longer than a decision may."""


@dataclass(frozen=True)
class Start:
    """An item that begins now. `usd`: the most it may pay, over all its runs; None: as settings say."""

    id: str
    usd: float | None


def views(request: BacklogRequest, state: BacklogState, now: datetime) -> tuple[ItemView, ...]:
    """All items as they are shown, in the order in which they were added."""
    graph, why = Dependencies.of(state), refusals(request, state, now)
    critical = frozenset(graph.critical)
    return tuple(
        unbegun(_view(state, at, graph, why.get(id, ""), id in critical), state.status)
        for id, at in sorted(state.items.items(), key=lambda one: (one[1].order, one[0]))
    )


def startable(request: BacklogRequest, state: BacklogState, now: datetime) -> tuple[Start, ...]:
    """The items that begin now, first the one that unblocks most: the longest chain, priority and age decide ties."""
    return tuple(_Round(request, state, now).decided().starts)


def refusals(request: BacklogRequest, state: BacklogState, now: datetime) -> dict[str, str]:
    """Of items that are ready and do not begin now: why, in one line."""
    return _Round(request, state, now, explains=True).decided().why


def next_to_land(state: BacklogState) -> str:
    """The item whose turn it is; empty: somebody has it, or nobody asked.

    In the order in which they asked, whatever they unblock: what unblocks most was begun first, a landing takes a small
    part of a delivery's time, and so nobody waits longer than those before him take.
    """
    if state.turn:
        return ""
    asked = (id for id in state.queue if id in state.items and state.items[id].phase is ItemPhase.BUILDING)
    return next(asked, "")


def wanted(state: BacklogState) -> int:
    """The number of items that were to land: one whose parts took its place is none of them."""
    return sum(at.phase is not ItemPhase.DECOMPOSED for at in state.items.values())


def ended(request: BacklogRequest, state: BacklogState, now: datetime) -> bool:
    """Nothing can move any more: no item is being built, and none will begin, were the window open and nothing held."""
    if any(at.phase is ItemPhase.BUILDING for at in state.items.values()):
        return False
    freely = request.model_copy(update={"window": None})
    return not startable(freely, state.model_copy(update={"held": ""}), now)


def wakes(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """The time at which items may begin that wait for it alone: the window opens, or one that waits for a person leaves
    its slot. None: nothing waits for a time."""
    times = {time for time in (_opens(request, state, now), next_free(request, state, now)) if time is not None}
    return next((time for time in sorted(times) if startable(request, state, time)), None)


def _opens(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """The time at which the window opens; None: it is open."""
    if not request.window or (window := Window.parse(request.window)).is_open(now, _offsets(state)):
        return None
    return window.next_open(now, _offsets(state))


def _view(state: BacklogState, at: ItemState, graph: Dependencies, why: str, critical: bool) -> ItemView:
    phase, because = _standing(state, at, graph, why)
    waits = phase == "waits"
    if phase in ("building", "landing"):
        because = " · ".join(filter(None, (because, foreseen(state, at.item.id))))
    return ItemView(
        id=at.item.id,
        phase=phase,
        because=because,
        caption=at.item.caption,
        delivery=at.delivery,
        commit=at.commit,
        branch=at.branch,
        pull_request=at.pull_request,
        unblocks=graph.unblocks[at.item.id],
        depends_on=at.item.depends_on,
        blocked_by=graph.blocked.get(at.item.id, ""),
        gate=at.gate if waits else "",
        of=at.of if waits else "",
        since=at.since if waits else None,
        usd=at.usd,
        priority=at.item.priority,
        critical=critical,
    )


def _standing(state: BacklogState, at: ItemState, graph: Dependencies, why: str) -> tuple[str, str]:
    """The phase that is shown, and why it stands there, in one line."""
    id = at.item.id
    if at.phase is ItemPhase.BUILDING:
        if at.waits:
            return "building" if at.gate == ROOM else "waits", at.waits
        if id == state.turn:
            return "landing", "has the turn" + (f" since {state.granted:%H:%M} UTC" if state.granted else "")
        if id in state.queue:
            before = len([one for one in state.queue[: state.queue.index(id)] if one != state.turn]) + bool(state.turn)
            return "landing", f"{before} before it" if before else "is the next"
        return "building", ""
    if at.phase is not ItemPhase.WAITING:
        return at.phase.value, at.words or at.reason
    if culprit := graph.blocked.get(id):
        over = state.items.get(culprit)
        words = one_line((over.words or over.reason or over.phase.value) if over else "is not there", 100)
        return "blocked", f"blocked by {culprit} ({words})"
    if missing := graph.missing[id]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return "after", f"after {', '.join(missing[:3])}{more}"
    return "ready", why


def _offsets(state: BacklogState) -> tuple[Offset, ...]:
    return state.opened.offsets if state.opened is not None else ()


def _closed(request: BacklogRequest, state: BacklogState, now: datetime) -> str:
    """Say why nothing at all begins now; empty: something may."""
    if state.held:
        return state.held
    if request.window and not (window := Window.parse(request.window)).is_open(now, _offsets(state)):
        return f"window opens {window.day(now, _offsets(state))}{window.words}"
    return ""


def rank(graph: Dependencies, at: ItemState) -> tuple[int, int, int, int, str]:
    """Smallest first: how many it unblocks, the longest chain behind it, priority, age; no two are equal."""
    id = at.item.id
    return (-graph.unblocks[id], -graph.chain[id], -at.item.priority, at.order, id)


def left_usd(request: BacklogRequest, state: BacklogState) -> float | None:
    """Dollars that nobody has paid and no delivery that runs may still pay; None: there is no budget."""
    if request.budget_usd is None:
        return None
    return round(request.budget_usd + state.extra_usd - sum(_taken(at) for at in state.items.values()), 6)


def _taken(at: ItemState) -> float:
    return max(at.usd, at.granted or 0.0) if at.phase is ItemPhase.BUILDING else at.usd


@dataclass
class _Round:
    """One look at all that is ready, in order. `explains`: goes on to the end, for the reasons."""

    request: BacklogRequest
    state: BacklogState
    now: datetime
    explains: bool = False
    starts: list[Start] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)

    def decided(self) -> _Round:
        state = self.state
        closed = _closed(self.request, state, self.now)
        building = sorted((at for at in state.items.values() if at.phase is ItemPhase.BUILDING), key=_age)
        full = no_slot(self.request, state, building, self.now)
        if (closed or full) and not self.explains:
            return self  # as after most of what a backlog hears
        graph = Dependencies.of(state)
        ready = [state.items[id] for id, missing in graph.missing.items() if not missing]
        ready.sort(key=lambda at: rank(graph, at))
        left = left_usd(self.request, state)
        share_of = sum(1 for id in graph.missing if id not in graph.blocked)
        meeting, kept = Meeting(), list[ItemState]()
        first_kept, surprised = False, ""
        for at in ready:
            if full and not self.explains:
                break
            told = full and len(self.why) >= EXPLAINED_MOST
            words = closed
            if not words and left is not None and left < USD_LEAST:
                words = f"budget: ${_cents(max(left, 0.0)):.2f} left"
            if not words and not told and (other := self._other(meeting, at, [*building, *kept])):
                words = f"after {other}: same files"
                if not first_kept:
                    first_kept = True
                    overtook = self._overtook(meeting, at)
                    kept += [at] if len(overtook) >= OVERTAKEN_MOST else []
                    surprised = at.item.id if kept and any(not one.item.touches for one in overtook) else ""
            if not words and surprised and not at.touches and self.request.overlap == "wait":
                words = f"after {surprised}: its plan may name the same files"
            words = words or full
            if words:
                self.why[at.item.id] = words
                continue
            usd = at.item.budget_usd
            if left is not None:
                usd = max(USD_LEAST, min(left, usd if usd is not None else _cents(left / share_of)))
                left = round(left - usd, 6)
                usd = round(usd + at.usd, 6)
            share_of -= 1
            self.starts.append(Start(at.item.id, usd))
            building.append(at)
            full = no_slot(self.request, state, building, self.now)
        return self

    def _other(self, meeting: Meeting, at: ItemState, others: list[ItemState]) -> str:
        """The first of these that changes what this one changes; empty: none does, or that does not count."""
        if self.request.overlap == "build" or not at.touches:
            return ""
        met = (one.item.id for one in others if meeting.may(at.touches, one.touches))
        return next(met, "")

    def _overtook(self, meeting: Meeting, at: ItemState) -> list[ItemState]:
        """Those of the ones that keep it waiting that have begun since it was ready, as many as are too many."""
        items = self.state.items
        since = [items[id].ended for id in at.item.depends_on if id in items]
        ready = max((time for time in [*since, at.ended, at.added, self.state.began] if time is not None), default=None)
        if ready is None:
            return []
        begun = [one for one in items.values() if one.began is not None and one.began >= ready]
        found = list[ItemState]()
        for one in sorted((one for one in begun if one.touches and one is not at), key=_age):
            found += [one] if meeting.may(at.touches, one.touches) else []
            if len(found) >= OVERTAKEN_MOST:
                break
        return found


def _age(at: ItemState) -> tuple[int, str]:
    return (at.order, at.item.id)


def _cents(usd: float) -> float:
    """Rounded down: shares together are never more than there is."""
    return floor(usd * 100 + 1e-6) / 100
