"""The page beside a home's workers, as their supervisor starts it: `python -m perdure.page`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from perdure import secrets

TRY_AGAIN_S = 2.0
"""Between two looks for a Temporal server that does not answer yet, or for a token that can be read."""


async def main() -> int:
    from perdure.adapters.system.files import try_lock
    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import pages_of
    from perdure.client import Perdure
    from perdure.local.connect import connect
    from perdure.local.page import over, read_page, record_page, token_of
    from perdure.local.places import Places
    from perdure.models.errors import PerdureError, TemporalUnreachable
    from perdure.page.server import Place, serve, settle

    home, ended = Home.find(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    lock = try_lock(Places(home).page_lock)
    if lock is None:
        return 0 if read_page(home) else 1  # another one is there, or begins
    said = ""
    while not ended.is_set():
        Places(home).page_record.unlink(missing_ok=True)  # of one that has died, or that serves no more
        try:
            client, token = await connect(home, start=False, say=lambda _: None), token_of(home)
        except PerdureError as error:
            if not isinstance(error, TemporalUnreachable) and said != (said := str(error)):
                print(said, file=sys.stderr, flush=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), TRY_AGAIN_S)
            continue
        web_ui = await pages_of(home)
        async with serve(Perdure(client, home.key()), token, Place(), web_ui) as page:
            record_page(home, page.url)
            settle()
            await over(home, token, ended)
    return 0


if __name__ == "__main__":
    secrets.take()
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the SDK was seen to crash at interpreter exit (reference: temporal.md §0)
