"""The `check` commands of a backlog's landed items: which run with the next landing, which did not run since the branch
last moved, and the question to a person about those that fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from perdure.models.backlog.request import CHECKS_MOST
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState
from perdure.models.rules.dependencies import Dependencies

_NAMES_SHOWN = 5


def checks_for_landing(state: BacklogState, item: str) -> dict[str, tuple[str, ...]]:
    """Return by item the commands that run when this item lands: its own, and up to CHECKS_MOST of landed items.

    Of landed items, those whose checks have not run for longest come first, then those that most items depend on, so
    that each has its turn.
    """
    own_commands = state.items[item].item.check if item in state.items else ()
    return ({item: own_commands} if own_commands else {}) | _select_checks(state, _landed_with_checks(state))


def due_checks(state: BacklogState) -> dict[str, tuple[str, ...]]:
    """Return, by item, commands of landed items that did not run on the branch as it is now; at most CHECKS_MOST
    commands."""
    return _select_checks(state, _unchecked_items(state))


def _select_checks(state: BacklogState, landed: list[ItemState]) -> dict[str, tuple[str, ...]]:
    """Return, by item, the commands of those landed items whose checks have not run for longest, then of those that
    most items depend on; at most CHECKS_MOST commands.

    It stops at the first item whose commands do not fit: if shorter ones went before it, it would never have its turn.
    """
    graph = Dependencies.from_state(state)
    remaining, selected = CHECKS_MOST, dict[str, tuple[str, ...]]()
    for item_state in sorted(
        landed,
        key=lambda item_state: (
            _last_check_time(item_state),
            -graph.dependent_count[item_state.item.id],
            item_state.order,
            item_state.item.id,
        ),
    ):
        if len(item_state.item.check) > remaining:
            break  # no shorter one goes before it, or it never had a turn
        remaining -= len(item_state.item.check)
        selected[item_state.item.id] = item_state.item.check
    return selected


def record_branch_move(state: BacklogState, item_ids: Iterable[str], now: datetime) -> None:
    """Record that the branch has moved now, to a commit on which the checks of these items passed."""
    state.landing.head_moved_at = now
    record_passed_checks(state, item_ids, now)


def record_passed_checks(state: BacklogState, item_ids: Iterable[str], now: datetime) -> None:
    """Record that the checks of these items passed now, on the branch as it is."""
    for item_id in item_ids:
        if item_id in state.items:
            state.items[item_id].landing.checked_at = now


def ask_about_checks(state: BacklogState, failing: Iterable[str], question: str) -> None:
    """Record in the state the question to a person about checks that fail at the end.

    It stands until they decide, or until `clear_resolved_question` finds that the same checks pass after all.
    """
    state.base.question, state.base.failing_items = question, tuple(failing)


def clear_resolved_question(state: BacklogState) -> None:
    """Remove the question about failing checks when all of them pass now, because another item has landed that mends
    them; else do nothing."""
    if state.base.failing_items and not {item_state.item.id for item_state in _unchecked_items(state)} & set(
        state.base.failing_items
    ):
        state.base.question, state.base.failing_items = "", ()


def unchecked_summary(state: BacklogState) -> str:
    """Return one line that names landed items whose checks are not known to pass on the branch as it is now; empty when
    there are none."""
    item_ids = unchecked_items(state)
    return unchecked_line(item_ids) if item_ids else ""


def unchecked_items(state: BacklogState) -> tuple[str, ...]:
    """Return the landed items whose checks are not known to pass on the branch as it is now."""
    return tuple(item_state.item.id for item_state in _unchecked_items(state))


def unchecked_line(item_ids: Sequence[str]) -> str:
    """Return one line that names these landed items, whose checks are not known to pass on the branch."""
    more = f" and {len(item_ids) - _NAMES_SHOWN} more" if len(item_ids) > _NAMES_SHOWN else ""
    return f"the checks of {', '.join(item_ids[:_NAMES_SHOWN])}{more} are not known to hold on the branch as it is"


def _landed_with_checks(state: BacklogState) -> list[ItemState]:
    """Return the landed items that have check commands."""
    return [
        item_state
        for item_state in state.items.values()
        if item_state.phase is ItemPhase.LANDED and item_state.item.check
    ]


def _unchecked_items(state: BacklogState) -> list[ItemState]:
    """Return the landed items whose checks did not pass since the branch was last moved; none when it never was."""
    moved_at = state.landing.head_moved_at
    return [
        item_state
        for item_state in _landed_with_checks(state)
        if moved_at is not None and (item_state.landing.checked_at is None or item_state.landing.checked_at < moved_at)
    ]


def _last_check_time(item_state: ItemState) -> float:
    """Return when an item's checks last passed, in seconds since 1970; 0: never."""
    return item_state.landing.checked_at.timestamp() if item_state.landing.checked_at is not None else 0.0
