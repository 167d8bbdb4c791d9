"""The page's process beside a home's workers, as their supervisor starts it: `python -m perdure.page`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from perdure import secrets

TRY_AGAIN_S = 2.0
"""Pause between two tries where Temporal does not answer yet, or the token cannot be read."""


async def main() -> int:
    """Serve this home's page until SIGTERM or SIGINT, and return the exit code.

    Holds the page's lock; where another process has it, returns 0 if that one serves and 1 if it has not said so. Waits
    for a Temporal server and a readable token, printing each new error to stderr, but not that the server cannot be
    reached. Records the page's address while it serves, and serves anew when the token has changed.
    """
    from perdure.adapters.system.files import try_lock
    from perdure.adapters.system.home import Home
    from perdure.client import Perdure
    from perdure.local.connect import connect_to_temporal, web_ui_base_url
    from perdure.local.page import ensure_page_token, read_page_record, wait_until_token_invalid, write_page_record
    from perdure.local.places import Places
    from perdure.models.errors import PerdureError, TemporalUnreachable
    from perdure.page.server import ListenAddress, freeze_loaded_objects, serve_page

    home, stopping = Home.find(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    lock = try_lock(Places(home).page_lock)
    if lock is None:
        return 0 if read_page_record(home) else 1  # another one is there, or begins
    last_message = ""
    while not stopping.is_set():
        Places(home).page_record.unlink(missing_ok=True)  # of one that has died, or that serves no more
        try:
            client, token = await connect_to_temporal(home, start=False, say=lambda _: None), ensure_page_token(home)
        except PerdureError as error:
            if not isinstance(error, TemporalUnreachable) and last_message != (last_message := str(error)):
                print(last_message, file=sys.stderr, flush=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), TRY_AGAIN_S)
            continue
        web_ui = await web_ui_base_url(home)
        async with serve_page(Perdure(client, home.key()), token, ListenAddress(), web_ui) as page:
            write_page_record(home, page.url)
            freeze_loaded_objects()
            await wait_until_token_invalid(home, token, stopping)
    return 0


if __name__ == "__main__":
    secrets.take()
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the SDK was seen to crash at interpreter exit (reference: temporal.md §0)
