"""Signals to other workflows, which may have ended."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError


async def send_signal(
    other: workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any],
    signal: str,
    payload: Any,
    *,
    raises_cancel: bool = True,
) -> bool:
    """Send a signal to another workflow; return False where that one has ended.

    A cancellation that comes meanwhile takes nothing back, and is raised once the signal is through; not with
    `raises_cancel` False: then the next step notices it. By itself the SDK would take back a signal that is not sent
    yet, and raise an error of its own; or ask for it where the signal has failed by then: that is no transition it
    knows, and the workflow would stand still for good.
    """
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
    """Send a signal; return False where the other workflow has ended."""
    try:
        await other.signal(signal, payload)
    except ApplicationError:
        return False
    return True
