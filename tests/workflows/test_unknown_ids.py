"""Whoever asks a client's handle for something of an id that no workflow has is told so in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from temporalio.service import RPCError

from perdure.client import Backlog, Delivery, Perdure
from perdure.client.delivery.rewinding import fork, rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import BadInput, PerdureError


async def _first(stream: AsyncIterator[Any]) -> Any:
    async for event in stream:
        return event
    return None


DELIVERY: dict[str, Callable[[Delivery], Awaitable[Any]]] = {
    "describe": lambda handle: handle.describe(),
    "events": lambda handle: _first(handle.events()),
    "request": lambda handle: handle.request(),
    "unread_messages": lambda handle: handle.unread_messages(),
    "progress": lambda handle: handle.progress(),
    "result": lambda handle: handle.result(),
    "past": lambda handle: handle.past(),
    "read_page": lambda handle: handle.read_page("logs"),
    "artifact": lambda handle: handle.artifact("a" * 64),
    "retry": lambda handle: handle.retry(),
    "approve": lambda handle: handle.approve("plan"),
    "reject": lambda handle: handle.reject("no"),
    "edit_plan": lambda handle: handle.edit_plan("1. x"),
    "answer": lambda handle: handle.answer("yes"),
    "add_budget": lambda handle: handle.add_budget(1.0),
    "say": lambda handle: handle.say("x"),
    "hold": lambda handle: handle.hold(),
    "resume": lambda handle: handle.resume(),
    "cancel": lambda handle: handle.cancel(),
    "store_text": lambda handle: handle.store_text("x"),
    "waits_for": lambda handle: handle.waits_for(),
}
BACKLOG: dict[str, Callable[[Backlog], Awaitable[Any]]] = {
    "describe": lambda handle: handle.describe(),
    "request": lambda handle: handle.request(),
    "past": lambda handle: handle.past(),
    "progress": lambda handle: handle.progress(),
    "result": lambda handle: handle.result(),
    "attach": lambda handle: handle.attach({}),
    "add": lambda handle: handle.add({"id": "api", "request": "x"}),
    "edit": lambda handle: handle.edit({"id": "api", "request": "x"}),
    "skip": lambda handle: handle.skip("api"),
    "retry": lambda handle: handle.retry("api"),
    "retry all": lambda handle: handle.retry(),
    "cancel_item": lambda handle: handle.cancel_item("api"),
    "prioritise": lambda handle: handle.prioritise("api", 1),
    "follow": lambda handle: handle.follow(),
    "decide": lambda handle: handle.decide("api", "approve", {}),
    "hold": lambda handle: handle.hold(),
    "resume": lambda handle: handle.resume(),
    "cancel": lambda handle: handle.cancel(),
}
NAMED = ("no delivery no-such-id", "no backlog no-such-id", "no delivery or backlog no-such-id")


@pytest.mark.timeout(60)
async def test_every_method_of_a_handle_says_in_one_line_that_there_is_no_such_workflow(perdure: Perdure) -> None:
    errors = dict[str, str]()

    async def call(name: str, method: Awaitable[Any]) -> None:
        try:
            await method
        except BadInput as error:
            if error.what not in NAMED:
                errors[name] = error.what
        except (RPCError, PerdureError) as error:
            errors[name] = repr(error)
        else:
            errors[name] = "raised nothing"

    for name, of_delivery in DELIVERY.items():
        await call(f"delivery: {name}", of_delivery(perdure.delivery("no-such-id")))
    for name, of_backlog in BACKLOG.items():
        await call(f"backlog: {name}", of_backlog(perdure.backlog("no-such-id")))
    await call("rewind", rewind(perdure.delivery("no-such-id"), "build:1"))
    await call("fork", fork(perdure.delivery("no-such-id"), "build:1"))
    await call("turns", turns(perdure.delivery("no-such-id")))
    assert errors == {}


def test_no_method_of_a_handle_is_left_out() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}

    # these ask about a queue, list what there is, or take any failure for an answer
    quiet = {"has_pollers", "hold_until_idle", "hold_reason", "ending_summary", "failed_notices"}
    assert public(Delivery) - quiet == set(DELIVERY)
    assert public(Backlog) | {"retry all"} == set(BACKLOG)
