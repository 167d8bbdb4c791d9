"""Helpers of every workflow here: sending a signal to another workflow, which may have ended, asking which run has sent
one, and setting search attributes, by which the server lists and filters workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from temporalio import workflow
from temporalio.common import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models.backlog.state import SignalClaim, SignalOriginInput, SignalOriginResult
from perdure.models.ids import CHANGE, LABELS, TITLE, WAITING
from perdure.models.rules.admission import fit_keyword, fit_keywords

ORIGIN_PATIENCE, ORIGIN_ATTEMPT = timedelta(days=7), timedelta(minutes=15)
"""Times for asking the server who has sent signals, in all and at once: while it is away, nothing else goes on."""

ORIGIN_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=5), maximum_interval=timedelta(minutes=5))
"""Retries of that question."""


async def find_signal_problems(claims: Sequence[SignalClaim], after: int) -> tuple[str, ...]:
    """Return for each signal why it does not count, in one line: no run of ours, of the workflow that it names, has
    sent it to this one; empty: one has. `after`: an event of this history before all of them.

    The server is asked by local activity `signal_origin`, which is one event for all of them.
    """
    try:
        origins: Any = await workflow.execute_local_activity(
            "signal_origin",
            SignalOriginInput(claims=tuple(claims), after=after),
            result_type=SignalOriginResult,
            schedule_to_close_timeout=ORIGIN_PATIENCE,
            start_to_close_timeout=ORIGIN_ATTEMPT,
            retry_policy=ORIGIN_RETRIES,
        )
    except ActivityError as error:
        return (str(getattr(error.cause, "message", error)).partition("\n")[0],) * len(claims)
    reasons: tuple[str, ...] = origins.reasons
    return reasons


async def send_signal(
    other: workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any],
    signal: str,
    payload: Any,
    *,
    raises_cancel: bool = True,
) -> bool:
    """Send a signal to another workflow, and return True; return False when that workflow has ended.

    A cancellation of this workflow that comes meanwhile does not take the signal back. It is raised as CancelledError
    once the signal is through; with `raises_cancel` False it is swallowed, and the caller's next step notices it.
    """
    # By itself the SDK would take back a signal that is not sent yet, and raise an error of its own; or ask for that
    # after the signal has failed: a transition it does not know, after which the workflow stands still for good.
    sending, cancelled = asyncio.create_task(_try_signal(other, signal, payload)), False
    try:
        await workflow.wait([sending])
    except asyncio.CancelledError:
        cancelled = True
    is_running = await sending
    if cancelled and raises_cancel:
        raise asyncio.CancelledError
    return is_running


async def _try_signal(
    other: workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any], signal: str, payload: Any
) -> bool:
    """Send a signal and return True; False when the other workflow has ended."""
    try:
        await other.signal(signal, payload)
    except ApplicationError:
        return False
    return True


ATTRIBUTES = MappingProxyType(
    {
        name: SearchAttributeKey.for_keyword(name)
        for name in ("PerdureRepository", "PerdurePhase", "PerdureStatus", "PerdureBranch", "PerdurePullRequest")
    }
)
LATER_ATTRIBUTES = MappingProxyType({name: SearchAttributeKey.for_keyword(name) for name in (CHANGE, WAITING, TITLE)})
LABEL_LIST = SearchAttributeKey.for_keyword_list(LABELS)
COST_USD = SearchAttributeKey.for_float("PerdureCostUsd")


def title_attribute(title: str, registered: Sequence[str]) -> TypedSearchAttributes | None:
    """Return the search attribute that a child is started with: its title; None where the server has no such attribute,
    or requests are encrypted, which a title repeats."""
    return TypedSearchAttributes([SearchAttributePair(LATER_ATTRIBUTES[TITLE], title)]) if TITLE in registered else None


def set_search_attributes(
    values: Mapping[str, str],
    usd: float | None,
    later: Mapping[str, str] | None = None,
    labels: Sequence[str] = (),
    registered: Sequence[str] = (),
) -> None:
    """Set search attributes of the workflow, which costs one event of history; others keep their values.
    What is too long for one is cut: the server would refuse the workflow task.

    values         by name, as in ATTRIBUTES
    usd            what was spent; None: not known, and the attribute stays as it is
    later, labels  attributes of later releases: set only when the server has them, as `registered` lists
    """
    keywords = {ATTRIBUTES[name]: value for name, value in values.items()}
    keywords |= {LATER_ATTRIBUTES[name]: value for name, value in (later or {}).items() if name in registered}
    updates: list[SearchAttributeUpdate[Any]] = [key.value_set(fit_keyword(value)) for key, value in keywords.items()]
    updates += [LABEL_LIST.value_set(fit_keywords(labels))] if labels and LABELS in registered else []
    updates += [COST_USD.value_set(round(usd, 6))] if usd is not None else []
    workflow.upsert_search_attributes(updates)
