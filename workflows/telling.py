"""Messages to other workflows, which may have ended."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError


async def tell(
    other: workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any],
    signal: str,
    said: Any,
    *,
    heeds: bool = True,
) -> bool:
    """Send a signal. Returns False where the other one has ended.

    A cancellation that comes meanwhile takes nothing back, and is raised once the signal is through; with `heeds` False
    the next step heeds it. By itself the SDK would take back a signal that is not sent yet, and raise an error of its
    own; or ask for it where the signal has failed by then: that is no transition it knows, and the workflow would stand
    still for good.
    """
    sending, cancelled = asyncio.create_task(_sent(other, signal, said)), False
    try:
        await workflow.wait([sending])
    except asyncio.CancelledError:
        if not (cancelled := workflow.patched("signal-beside-a-cancel")):
            sending.cancel()
    there = await sending
    if cancelled and heeds:
        raise asyncio.CancelledError
    return there


async def _sent(
    other: workflow.ExternalWorkflowHandle[Any] | workflow.ChildWorkflowHandle[Any, Any], signal: str, said: Any
) -> bool:
    try:
        await other.signal(signal, said)
    except ApplicationError:
        return False
    return True
