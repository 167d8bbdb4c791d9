"""Live parts of a page: sent again whenever they are different, in the form that htmx's extension for streams reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from aiohttp import web
from temporalio.service import RPCError

from perdure.models.errors import PerdureError
from perdure.page.render import render_text

T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""Pause between two looks at one delivery or backlog: people see it at once, and the server is asked for one
description."""

REST = 5
"""Times as long as making a part took, nothing is made after it: a page of hundreds of turns keeps at most a sixth of
one processor busy."""

_REST_MOST_S = 5.0
"""The longest such rest: a look that waited for a server that was gone was long, and took no processor."""

STILL_HERE = b": still here\n\n"
ALIVE_S = 15.0
"""Seconds of silence after which a line without meaning is sent, which shows whether somebody still reads."""


async def stream_part(
    request: web.Request,
    template: str,
    look: Callable[[], Awaitable[tuple[object, T]]],
    values: Callable[[T], Awaitable[dict[str, object]]],
) -> web.StreamResponse:
    """Answer with an event stream: `template` with `values(seen)`, at first and whenever it is different.

    `look()` returns a key and what was seen; only when the key has changed is the template rendered again. What cannot
    be read just now is read later: the browser keeps what it has. Ends when nobody reads any more.
    """
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await answer.prepare(request)
    with suppress(ConnectionResetError):
        await _send_changes(request, answer, template, look, values)
    return answer


async def _send_changes(
    request: web.Request,
    answer: web.StreamResponse,
    template: str,
    look: Callable[[], Awaitable[tuple[object, T]]],
    values: Callable[[T], Awaitable[dict[str, object]]],
) -> None:
    """Look every second, render when the key has changed and send what is different, until nobody reads any more.

    Sends a line without meaning after ALIVE_S of silence. Raises ConnectionResetError when nobody reads any more.
    """
    loop = asyncio.get_running_loop()
    last_key: object = None
    sent, last_sent_at = "", loop.time()
    while True:
        began = loop.time()
        try:
            key, seen = await look()
            text = sent if key == last_key else render_text(request, template, **await values(seen))
            last_key = key
        except (PerdureError, RPCError, TimeoutError):
            text = sent
        if text != sent:
            lines = "".join(f"data: {line}\n" for line in text.splitlines())
            await answer.write(f"{lines}\n".encode())
            sent, last_sent_at = text, loop.time()
        elif loop.time() - last_sent_at > ALIVE_S:
            await answer.write(STILL_HERE)
            last_sent_at = loop.time()
        await asyncio.sleep(max(LOOK_EVERY_S, min(_REST_MOST_S, REST * (loop.time() - began))))
