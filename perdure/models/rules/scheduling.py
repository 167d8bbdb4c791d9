"""Pure decisions over a backlog's state: which items begin next and which lands next, the slots they are built in, why
an item waits, and the conflicts foreseen between items. The same for the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import floor

from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState, ItemView, item_as_cut_off
from perdure.models.backlog.touches import OverlapCheck
from perdure.models.ids import delivery_key
from perdure.models.limits import USD_LEAST
from perdure.models.rules.dependencies import Dependencies
from perdure.models.schedule import Offset, Window
from perdure.text import format_money, one_line

_SHOWN, _KEPT, _CHARS = 2, 10, 200
"""Pairs in one line; pairs and characters of a path that are kept of one item, whatever is sent."""


def record_conflicts(state: BacklogState, id: str, conflicts: Mapping[str, str]) -> None:
    """Record in the state which other items an item's newest commit would conflict with, each with the first path.

    conflicts  path by key of the other delivery; those of no item of this backlog are ignored

    What was recorded about the item before is removed, in its own report and in those of the others.
    """
    keys = {
        delivery_key(item_state.child.id): item_id
        for item_id, item_state in state.items.items()
        if item_state.child.id and item_id != id
    }
    conflicts_by_item = [(keys[key], path[:_CHARS]) for key, path in sorted(conflicts.items()) if key in keys]
    for item_state in state.items.values():
        item_state.foreseen.conflicts.pop(id, None)
    state.items[id].foreseen.conflicts = dict(conflicts_by_item[:_KEPT])


def conflicts_text(state: BacklogState, id: str) -> str:
    """Return `likely to conflict with page in src/app.py`, about other items that are being built now; empty when none
    is known."""
    pairs = dict(state.items[id].foreseen.conflicts)
    pairs |= {
        other: item_state.foreseen.conflicts[id]
        for other, item_state in state.items.items()
        if id in item_state.foreseen.conflicts and other not in pairs
    }
    building = (other for other in pairs if other in state.items and state.items[other].phase is ItemPhase.BUILDING)
    descriptions = [f"{other} in {one_line(pairs[other], 60)}" for other in sorted(building)]
    if not descriptions:
        return ""
    more = f" and {len(descriptions) - _SHOWN} more" if len(descriptions) > _SHOWN else ""
    return f"likely to conflict with {', '.join(descriptions[:_SHOWN])}{more}"


SLOT_KEPT = timedelta(minutes=2)
"""The time an item that waits for a person keeps its slot: who sits beside it has answered by then."""

LIMIT_GATE = "room"
"""`gate` of an item that waits for other deliveries of the repository: nobody is asked, and it keeps its slot."""

WAITING_MOST = 2
"""Times `parallel` that are under way at most, those that wait for a person among them: so many go on at once, if all
are answered in the same moment."""


def no_slot_reason(request: BacklogRequest, state: BacklogState, building: Sequence[ItemState], now: datetime) -> str:
    """Return the reason why no further item gets a slot, in one line: `parallel` are being built, or too many are under
    way with those that wait for people; empty: there is a slot.

    An item that has waited for a person for SLOT_KEPT does not occupy a slot, and takes one again when that is decided,
    beyond `parallel` if need be.
    """
    frees_slots = state.opened is not None and state.opened.frees_waiting_slots
    without_slot = [
        item_state
        for item_state in building
        if frees_slots and (waiting_since := _waiting_since(item_state)) and now >= waiting_since + SLOT_KEPT
    ]
    if len(building) - len(without_slot) >= request.parallel:
        return f"{len(building) - len(without_slot)} of {request.parallel} slots busy"
    if len(building) >= WAITING_MOST * request.parallel:
        return f"{len(building)} under way, {len(without_slot)} of them wait for you: answer one"
    return ""


def next_free_slot(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """Return the time at which a slot becomes free because items have waited for a person for SLOT_KEPT.

    None: there is a slot now, or none becomes free in this way.
    """
    building = [item_state for item_state in state.items.values() if item_state.phase is ItemPhase.BUILDING]
    if not no_slot_reason(request, state, building, now):
        return None
    times = sorted(
        {waiting_since + SLOT_KEPT for item_state in building if (waiting_since := _waiting_since(item_state))}
    )
    return next((time for time in times if time > now and not no_slot_reason(request, state, building, time)), None)


def _waiting_since(item_state: ItemState) -> datetime | None:
    """Return since when a person has to decide before the item goes on; None: nobody is asked."""
    return item_state.waiting.since if item_state.phase is ItemPhase.BUILDING and item_state.waiting.reason else None


OVERTAKEN_MOST = 8
"""Items that may begin before the first one that waits for files, and keep it waiting because they change them too.

After so many, twice the usual number at once, its files are kept free for it.
"""

EXPLAINED_MOST = 100
"""Waiting items of which each is told whose files it waits for, where no slot is free either; those behind them are
told only of the slots. Nobody reads further, and for a thousand it took longer than a decision may."""


@dataclass(frozen=True)
class ItemStart:
    """An item that begins now. `usd`: the most it may pay, over all its runs; None: as settings say."""

    id: str
    usd: float | None


def item_views(request: BacklogRequest, state: BacklogState, now: datetime) -> tuple[ItemView, ...]:
    """Return all items as they are shown to people, in the order in which they were added."""
    graph, reasons = Dependencies.from_state(state), waiting_reasons(request, state, now)
    critical = frozenset(graph.critical)
    return tuple(
        item_as_cut_off(_item_view(state, item_state, graph, reasons.get(id, ""), id in critical), state.status)
        for id, item_state in sorted(state.items.items(), key=lambda pair: (pair[1].order, pair[0]))
    )


def startable_items(request: BacklogRequest, state: BacklogState, now: datetime) -> tuple[ItemStart, ...]:
    """Return the items that begin now, each with what it may pay; first the one that unblocks most others, then longest
    chain, priority and age."""
    return tuple(_StartRound(request, state, now).decide_starts().starts)


def waiting_reasons(request: BacklogRequest, state: BacklogState, now: datetime) -> dict[str, str]:
    """Return, by item, why items that depend on nothing unfinished do not begin now, each in one line."""
    return _StartRound(request, state, now, explains=True).decide_starts().reasons


def next_to_land(state: BacklogState) -> str:
    """Return the id of the item that gets the turn to land now; empty: another one has the turn, or none has asked.

    Items land in the order in which they asked, whatever they unblock: what unblocks most was begun first, a landing
    takes a small part of a delivery's time, and so no item waits longer than the landings before it take.
    """
    if state.landing.item:
        return ""
    candidates = (id for id in state.landing.queue if id in state.items and state.items[id].phase is ItemPhase.BUILDING)
    return next(candidates, "")


def count_items_to_land(state: BacklogState) -> int:
    """Count the items of the backlog, without those that were replaced by their parts."""
    return sum(item_state.phase is not ItemPhase.DECOMPOSED for item_state in state.items.values())


def is_finished(request: BacklogRequest, state: BacklogState, now: datetime) -> bool:
    """Return True when nothing of the backlog can move any more: no item is being built, and none would begin even if
    the window were open and the backlog not held."""
    if any(item_state.phase is ItemPhase.BUILDING for item_state in state.items.values()):
        return False
    without_window = request.model_copy(update={"window": None})
    return not startable_items(without_window, state.model_copy(update={"hold_reason": ""}), now)


def next_start_time(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """Return the time at which an item may begin that waits only for that time: the window opens, or an item that waits
    for a person gives up its slot. None: no item waits for a time."""
    times = {
        time for time in (_window_opening(request, state, now), next_free_slot(request, state, now)) if time is not None
    }
    return next((time for time in sorted(times) if startable_items(request, state, time)), None)


def _window_opening(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """Return the time at which the window opens; None when it is open, or the backlog has none."""
    if not request.window or (window := Window.parse(request.window)).is_open(now, _offsets(state)):
        return None
    return window.next_opening(now, _offsets(state))


def _item_view(
    state: BacklogState, item_state: ItemState, graph: Dependencies, reason: str, critical: bool
) -> ItemView:
    """Return one item as it is shown. `reason`: why an item that depends on nothing unfinished does not begin;
    critical: it is on the longest chain."""
    phase, because = _phase_and_reason(state, item_state, graph, reason)
    waits = phase == "waits"
    if phase in ("building", "landing"):
        because = " · ".join(filter(None, (because, conflicts_text(state, item_state.item.id))))
    return ItemView(
        id=item_state.item.id,
        phase=phase,
        because=because,
        caption=item_state.item.caption,
        delivery=item_state.child.id,
        commit=item_state.landing.commit,
        branch=item_state.stacked.branch,
        pull_request=item_state.stacked.address,
        unblocks=graph.unblocks[item_state.item.id],
        depends_on=item_state.item.depends_on,
        blocked_by=graph.blocked_by.get(item_state.item.id, ""),
        gate=item_state.waiting.gate if waits else "",
        target=item_state.waiting.target if waits else "",
        since=item_state.waiting.since if waits else None,
        usd=item_state.child.usd,
        priority=item_state.item.priority,
        critical=critical,
    )


def _phase_and_reason(state: BacklogState, item_state: ItemState, graph: Dependencies, reason: str) -> tuple[str, str]:
    """Return the phase in which an item is shown, and in one line why it is in that phase, empty when there is nothing
    to say.

    reason  why an item that depends on nothing unfinished does not begin
    """
    id = item_state.item.id
    if item_state.phase is ItemPhase.BUILDING:
        if item_state.waiting.reason:
            return "building" if item_state.waiting.gate == LIMIT_GATE else "waits", item_state.waiting.reason
        if id == state.landing.item:
            return "landing", "has the turn" + (
                f" since {state.landing.granted_at:%H:%M} UTC" if state.landing.granted_at else ""
            )
        if id in state.landing.queue:
            landings_before = len(
                [
                    item_id
                    for item_id in state.landing.queue[: state.landing.queue.index(id)]
                    if item_id != state.landing.item
                ]
            ) + bool(state.landing.item)
            return "landing", f"{landings_before} before it" if landings_before else "is the next"
        return "building", ""
    if item_state.phase is not ItemPhase.WAITING:
        return item_state.phase.value, item_state.message or item_state.child.reason
    if culprit := graph.blocked_by.get(id):
        culprit_state = state.items.get(culprit)
        culprit_reason = one_line(
            (culprit_state.message or culprit_state.child.reason or culprit_state.phase.value)
            if culprit_state
            else "is not there",
            100,
        )
        return "blocked", f"blocked by {culprit} ({culprit_reason})"
    if missing := graph.missing[id]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return "after", f"after {', '.join(missing[:3])}{more}"
    return "ready", reason


def _offsets(state: BacklogState) -> tuple[Offset, ...]:
    """Return the UTC offsets of the window's zone; none before the backlog's base was found."""
    return state.opened.offsets if state.opened is not None else ()


def _closed_reason(request: BacklogRequest, state: BacklogState, now: datetime) -> str:
    """Return the reason why no item at all may begin now: the backlog is held, or its window is closed; empty: items
    may."""
    if state.hold_reason:
        return state.hold_reason
    if request.window and not (window := Window.parse(request.window)).is_open(now, _offsets(state)):
        return f"window opens {window.day_prefix(now, _offsets(state))}{window.opening_text}"
    return ""


def start_rank(graph: Dependencies, item_state: ItemState) -> tuple[int, int, int, int, str]:
    """Return an item's sort key for starting, smallest first; no two are equal.

    It counts how many items it unblocks, then the longest chain behind it, priority, and age.
    """
    id = item_state.item.id
    return (-graph.unblocks[id], -graph.chain_length[id], -item_state.item.priority, item_state.order, id)


def unreserved_usd(request: BacklogRequest, state: BacklogState) -> float | None:
    """Return the dollars of the backlog's budget that no item has paid and no running one may still pay, which may be
    negative; None when the backlog has no budget."""
    if request.budget_usd is None:
        return None
    return round(
        request.budget_usd
        + state.tasks.extra_usd
        - sum(_reserved_usd(item_state) for item_state in state.items.values()),
        6,
    )


def _reserved_usd(item_state: ItemState) -> float:
    """Return the dollars that an item takes from the backlog's budget: while it is built the most that it may pay, else
    what it has paid."""
    return (
        max(item_state.child.usd, item_state.child.granted_usd or 0.0)
        if item_state.phase is ItemPhase.BUILDING
        else item_state.child.usd
    )


@dataclass
class _StartRound:
    """One pass over all items that depend on nothing unfinished, which decides which of them begin.

    explains  goes on after the last start, so that `reasons` has every item that does not begin
    """

    request: BacklogRequest
    state: BacklogState
    now: datetime
    explains: bool = False
    starts: list[ItemStart] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def decide_starts(self) -> _StartRound:
        """Decide for every ready item whether it begins now: fill `starts` and `reasons`, and return the round itself.
        Unless it `explains`, it stops when nothing more can begin.

        An item does not begin while the backlog is held or its window closed, while money or a free slot is missing,
        and while items that are being built change the same files. When OVERTAKEN_MOST others have begun before the
        first item that waits for files, later items that change its files wait for it, and so do items of unknown files
        when an overtaker's files had not been known beforehand.

        A start gets the item's own budget, or else an equal share of what remains of the backlog's, and never more than
        remains.
        """
        state = self.state
        closed = _closed_reason(self.request, state, self.now)
        building = sorted(
            (item_state for item_state in state.items.values() if item_state.phase is ItemPhase.BUILDING), key=_age_key
        )
        full = no_slot_reason(self.request, state, building, self.now)
        if (closed or full) and not self.explains:
            return self  # as after most of what a backlog hears
        graph = Dependencies.from_state(state)
        ready = [state.items[id] for id, missing in graph.missing.items() if not missing]
        ready.sort(key=lambda item_state: start_rank(graph, item_state))
        remaining_usd = unreserved_usd(self.request, state)
        sharers = sum(1 for id in graph.missing if id not in graph.blocked_by)
        overlap_check, protected = OverlapCheck(), list[ItemState]()
        is_first_checked, overtaken_by_surprise = False, ""
        for item_state in ready:
            if full and not self.explains:
                break
            is_explained = full and len(self.reasons) >= EXPLAINED_MOST
            reason = closed
            if not reason and remaining_usd is not None and remaining_usd < USD_LEAST:
                reason = f"waiting for budget: {format_money(_floor_to_cents(max(remaining_usd, 0.0)))} left"
            if (
                not reason
                and not is_explained
                and (other := self._overlapping_item(overlap_check, item_state, [*building, *protected]))
            ):
                reason = f"after {other}: same files"
                if not is_first_checked:
                    is_first_checked = True
                    overtakers = self._find_overtakers(overlap_check, item_state)
                    protected += [item_state] if len(overtakers) >= OVERTAKEN_MOST else []
                    overtaken_by_surprise = (
                        item_state.item.id
                        if protected and any(not overtaker.item.touches for overtaker in overtakers)
                        else ""
                    )
            if not reason and overtaken_by_surprise and not item_state.touches and self.request.overlap == "wait":
                reason = f"after {overtaken_by_surprise}: its plan may name the same files"
            reason = reason or full
            if reason:
                self.reasons[item_state.item.id] = reason
                continue
            usd = item_state.item.budget_usd
            if remaining_usd is not None:
                usd = max(
                    USD_LEAST, min(remaining_usd, usd if usd is not None else _floor_to_cents(remaining_usd / sharers))
                )
                remaining_usd = round(remaining_usd - usd, 6)
                usd = round(usd + item_state.child.usd, 6)
            sharers -= 1
            self.starts.append(ItemStart(item_state.item.id, usd))
            building.append(item_state)
            full = no_slot_reason(self.request, state, building, self.now)
        return self

    def _overlapping_item(self, overlap_check: OverlapCheck, item_state: ItemState, others: list[ItemState]) -> str:
        """Return the id of the first of these items that may change the same files; empty when none does, this one's
        files are not known, or the backlog ignores overlaps."""
        if self.request.overlap == "build" or not item_state.touches:
            return ""
        overlapping = (
            other.item.id for other in others if overlap_check.may_overlap(item_state.touches, other.touches)
        )
        return next(overlapping, "")

    def _find_overtakers(self, overlap_check: OverlapCheck, item_state: ItemState) -> list[ItemState]:
        """Return the items that may change the same files and have begun since this one was ready, the oldest first, at
        most OVERTAKEN_MOST."""
        items = self.state.items
        times = [items[id].child.ended_at for id in item_state.item.depends_on if id in items]
        ready_since = max(
            (
                time
                for time in [*times, item_state.child.ended_at, item_state.added_at, self.state.began_at]
                if time is not None
            ),
            default=None,
        )
        if ready_since is None:
            return []
        began_later = [
            other
            for other in items.values()
            if other.child.began_at is not None and other.child.began_at >= ready_since
        ]
        overtakers = list[ItemState]()
        for other in sorted(
            (other for other in began_later if other.touches and other is not item_state), key=_age_key
        ):
            overtakers += [other] if overlap_check.may_overlap(item_state.touches, other.touches) else []
            if len(overtakers) >= OVERTAKEN_MOST:
                break
        return overtakers


def _age_key(item_state: ItemState) -> tuple[int, str]:
    """Return a sort key by which older items come first."""
    return (item_state.order, item_state.item.id)


def _floor_to_cents(usd: float) -> float:
    """Return an amount rounded down to cents, so that all shares together are never more than there is."""
    return floor(usd * 100 + 1e-6) / 100
