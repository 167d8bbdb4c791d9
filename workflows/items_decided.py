"""Decisions of people that a backlog takes for its deliveries: each is handed on as the delivery's own signal.

The delivery counts it once, however often and by whatever way it comes; what no longer fits is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.rules.handing import handed
from perdure.models.rules.inbox import SHAPES, NotCounted
from workflows.items import Items

READ_SOON = timedelta(seconds=10)
"""A delivery that is not busy with its end has read a signal in a fraction of a second."""


class HandsOn:
    """Updates `approve`, `reject`, `answer`, `edit_plan`, `add_budget`: as of a delivery, and `item`."""

    def __init__(self, state: BacklogState, items: Items) -> None:
        self._state, self._items = state, items
        for name in SHAPES:
            handler, validator = self._of(name)
            workflow.set_update_handler(name, handler, validator=validator)

    def _of(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def check(said: Any = None) -> None:
            self._checked(name, said)

        async def hand_on(said: Any = None) -> str:
            return await self._hand_on(name, said)

        return hand_on, check

    def _checked(self, name: str, said: Any) -> Any:
        try:
            return handed(self._state, name, said)
        except NotCounted as error:
            raise _refusal(error.what) from None

    async def _hand_on(self, name: str, given: Any) -> str:
        at, said = self._checked(name, given)
        if not said.get("of"):
            said |= {"id": said.get("id") or str(workflow.uuid4())}
        told, id = at.told, at.item.id
        try:
            await workflow.get_external_workflow_handle(at.delivery).signal("decide", {"update": name, "said": said})
        except ApplicationError:
            self._items.unsure.add(id)
            raise _refusal(f"{id} has ended just now: nothing was decided") from None
        words = f"{name} {said.get('of', '')}".rstrip() + f" was handed to {at.delivery}"
        if not said.get("of"):
            return words
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: at.told != told or at.phase is not ItemPhase.BUILDING,
                timeout=READ_SOON,
                timeout_summary=f"{id} reads the decision"[:100],
            )
            return f"{words}: it goes on"
        return f"{words}, which has not read it yet"


def _refusal(words: str) -> ApplicationError:
    return ApplicationError(words, type="NotCounted", non_retryable=True)
