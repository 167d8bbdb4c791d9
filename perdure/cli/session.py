"""Access of a command to Temporal: an event loop, a client, a worker; and how Ctrl-C ends it."""

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
    from perdure.client import Backlog, Delivery, Perdure, RunDescription

LOADED_AFTER_S = 5.0
"""Seconds after which a command has loaded all it needs; one that ends sooner leaves no garbage worth collecting."""

T = TypeVar("T")
DeliveryOrBacklog = TypeVar("DeliveryOrBacklog", "Delivery", "Backlog")


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own and return its result.

    asyncio is imported only here: help and mistakes do not need it.
    """
    import asyncio

    async def run_after_start() -> T:
        asyncio.get_running_loop().call_later(LOADED_AFTER_S, startup.loaded)
        return await work

    return asyncio.run(run_after_start())


async def connect_client(screen: Screen) -> Perdure:
    """Return a client that is connected to the configured Temporal server, else to this home's embedded one.

    Starts no server: raises TemporalUnreachable when it does not run.
    """
    from perdure.adapters.system.home import Home
    from perdure.client import Perdure
    from perdure.local.connect import connect_to_temporal

    return Perdure(await connect_to_temporal(Home.find(), start=False, say=screen.say))


async def ensure_worker(screen: Screen) -> None:
    """Start this home's server and worker unless they run, and check that there is a key for the model.

    Does nothing where TEMPORAL_* names another server, whose workers do the work. Raises BadInput where the key is
    missing or differs from the running worker's.
    """
    from perdure.adapters.system.home import Home
    from perdure.cli.request.validation import check_key, workers_elsewhere
    from perdure.local.up import ensure_running

    if not workers_elsewhere():
        check_key(secrets.environment())
        await ensure_running(Home.find(), screen.say)


async def describe_on_own_server(
    screen: Screen, workflow: DeliveryOrBacklog
) -> tuple[RunDescription | None, DeliveryOrBacklog]:
    """Return what this home's server knows of a delivery or backlog, and the handle to ask next time.

    The first is None when another home's server has answered: the handle is then of a new client. That is checked after
    the call: one that began while the own server died is answered by whoever has its port by then. Raises what
    `describe` raises, and TemporalUnreachable while another server is there and this home's is not.
    """
    from temporalio.service import RPCError

    from perdure.adapters.system.home import Home
    from perdure.local.server_guard import wrong_server_reason

    try:
        described: RunDescription | Exception = await workflow.describe()
    except (RPCError, BadInput) as error:
        described = error
    if await wrong_server_reason(workflow.client, Home.find()):
        return None, type(workflow)((await connect_client(screen)).client, workflow.id)
    if isinstance(described, Exception):
        raise described
    return described, workflow


def run_with_delivery(screen: Screen, id: str, work: Callable[[Delivery], Awaitable[T]], *, decision: str = "") -> T:
    """Find the delivery that `id`, as a person typed it, names; run `work` on it and return its result.

    `decision` is the update for which a delivery has to wait where `id` is @waiting. Raises BadInput where `id` names
    no single delivery.
    """

    async def resolve_and_run() -> T:
        perdure = await connect_client(screen)
        return await work(perdure.delivery(await resolve_id(perdure, id, decision)))

    return run_coroutine(resolve_and_run())


@contextmanager
def handle_interrupts(*, interrupts: bool) -> Iterator[None]:
    """Handle Ctrl-C directly while the context is open, for a person who types inside a coroutine.

    asyncio would only note the first Ctrl-C and drop what follows.

    interrupts  True: Ctrl-C raises KeyboardInterrupt at once; False: it is ignored, since it belongs to an editor that
    runs
    """

    def on_interrupt(number: int, frame: object) -> None:
        if interrupts:
            raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
