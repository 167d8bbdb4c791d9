"""Parts of a page that are sent again whenever they are different, as htmx's extension for streams reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from aiohttp import web
from temporalio.service import RPCError

from perdure.models.errors import PerdureError
from perdure.page.render import rendered

T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""Between two looks at one delivery or backlog: people see it at once, and the server is asked for one description."""

REST = 5
"""Times as long as making a part took, nothing is made: a page of hundreds of turns keeps a sixth of one processor
busy at most."""

_REST_MOST_S = 5.0
"""A look that waited for a server that was gone was long, and took no processor."""

STILL_HERE = b": still here\n\n"
ALIVE_S = 15.0
"""Of silence, after which a line without meaning shows whether somebody still reads."""


async def stream(
    request: web.Request,
    template: str,
    look: Callable[[], Awaitable[tuple[object, T]]],
    values: Callable[[T], Awaitable[dict[str, object]]],
) -> web.StreamResponse:
    """Send `template` with `values(seen)` at first and whenever the key of `look() -> (key, seen)` is another.

    What cannot be read just now is read later: the browser keeps what it has. Ends when nobody reads any more.
    """
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await answer.prepare(request)
    with suppress(ConnectionResetError):
        await _send(request, answer, template, look, values)
    return answer


async def _send(
    request: web.Request,
    answer: web.StreamResponse,
    template: str,
    look: Callable[[], Awaitable[tuple[object, T]]],
    values: Callable[[T], Awaitable[dict[str, object]]],
) -> None:
    """Until nobody reads any more: ConnectionResetError then."""
    loop = asyncio.get_running_loop()
    known: object = None
    sent, told = "", loop.time()
    while True:
        began = loop.time()
        try:
            key, seen = await look()
            text = sent if key == known else rendered(request, template, **await values(seen))
            known = key
        except (PerdureError, RPCError, TimeoutError):
            text = sent
        if text != sent:
            lines = "".join(f"data: {line}\n" for line in text.splitlines())
            await answer.write(f"{lines}\n".encode())
            sent, told = text, loop.time()
        elif loop.time() - told > ALIVE_S:
            await answer.write(STILL_HERE)
            told = loop.time()
        await asyncio.sleep(max(LOOK_EVERY_S, min(_REST_MOST_S, REST * (loop.time() - began))))
