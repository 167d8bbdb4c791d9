"""The run of one command: its connection to Temporal, until it is done or interrupted."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import secrets, startup
from perdure.cli.ids import resolve_id
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput

if TYPE_CHECKING:
    from perdure.client import Backlog, Delivery, Described, Perdure

LOADED_AFTER_S = 5.0
"""After its start a command has loaded all it needs; those that are over sooner leave no garbage that counts."""

T = TypeVar("T")
Seen = TypeVar("Seen", "Delivery", "Backlog")


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Return what it comes to. asyncio is loaded only here: help and mistakes need none of it."""
    import asyncio

    async def carried() -> T:
        asyncio.get_running_loop().call_later(LOADED_AFTER_S, startup.loaded)
        return await work

    return asyncio.run(carried())


async def connected(screen: Screen) -> Perdure:
    """A client of the configured or the embedded server; raises TemporalUnreachable when it does not run."""
    from perdure.adapters.system.home import Home
    from perdure.client import Perdure
    from perdure.local.connect import connect

    return Perdure(await connect(Home.find(), start=False, say=screen.say))


async def worker_started(screen: Screen) -> None:
    """See that a worker of this home runs and has a key, where no workers elsewhere do the work."""
    from perdure.adapters.system.home import Home
    from perdure.cli.request.validation import check_key, workers_elsewhere
    from perdure.local.up import ensure_running

    if not workers_elsewhere():
        check_key(secrets.environment())
        await ensure_running(Home.find(), screen.say)


async def look_at(screen: Screen, seen: Seen) -> tuple[Described | None, Seen]:
    """Return what this home's server knows of a delivery or backlog, and where to ask next; None when another home's
    answered.

    Looked at afterwards: a call that began while ours was dying is answered by whoever has its port by then. Raises
    what describe raises, and TemporalUnreachable while somebody else is there and ours is not.
    """
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.local.strangers import astray

    try:
        found: Described | Exception = await seen.describe()
    except (RPCError, BadInput) as error:
        found = error
    if await astray(seen.client, Home.find()):
        return None, type(seen)((await connected(screen)).client, seen.id)
    if isinstance(found, Exception):
        raise found
    return found, seen


def with_delivery(screen: Screen, id: str, work: Callable[[Delivery], Awaitable[T]], *, decision: str = "") -> T:
    """Find a delivery by what a person typed and do something with it; `decision` is what @waiting waits for."""

    async def run() -> T:
        perdure = await connected(screen)
        return await work(perdure.delivery(await resolve_id(perdure, id, decision)))

    return carry_out(run())


@contextmanager
def person_at_work(*, interrupts: bool) -> Iterator[None]:
    """While a person types inside a coroutine. asyncio would only note the first Ctrl-C, and drop what follows.

    interrupts  Ctrl-C ends a question at once; in an editor it is the editor's, and nothing of ours may end by it
    """

    def heed(number: int, frame: object) -> None:
        if interrupts:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, heed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
