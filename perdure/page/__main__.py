"""The page's process: `python -m perdure.page` beside a home's workers, with an address for `perdure page`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import asdict

from perdure import secrets

TRY_AGAIN_S = 2.0
"""Pause between two tries where Temporal does not answer yet, or the token cannot be read."""


async def main(address: str) -> int:
    """Serve this home's page until SIGTERM or SIGINT, and return the exit code: 0 then.

    Waits for a Temporal server and a readable token, printing each new error to stderr, but not that the server cannot
    be reached. Serves anew when the token has changed.

    address  a ListenAddress as JSON: where the page is, or why it cannot be there, is printed as a line of JSON, and 1
    returned in the second case. Empty: the page beside the workers, which holds the page's lock and records its
    address while it serves; raises BadInput when it cannot listen. When another process has the lock, returns 0 if that
    one serves and 1 if it has not said so.
    """
    from pydantic import TypeAdapter

    from perdure.adapters.system.files import try_lock
    from perdure.adapters.system.home import Home
    from perdure.client import Perdure
    from perdure.local.connect import connect_to_temporal, web_ui_base_url
    from perdure.local.page import (
        ListenAddress,
        ensure_page_token,
        read_page_record,
        wait_until_token_invalid,
        write_page_record,
    )
    from perdure.local.places import Places
    from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
    from perdure.page.server import freeze_loaded_objects, serve_page

    place = TypeAdapter(ListenAddress).validate_json(address) if address else None
    home, stopping = Home.find(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    lock = try_lock(Places(home).page_lock) if place is None else None
    if place is None and lock is None:
        return 0 if read_page_record(home) else 1  # another one is there, or begins
    # Many people are behind one proxy: a path of this host is no repository of theirs, unless its owner's settings say
    # so.
    signing = () if place is not None and place.user_header else (home.key(), home.queue())
    last_message = ""
    while not stopping.is_set():
        if place is None:
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
        try:
            async with serve_page(Perdure(client, *signing), token, place or ListenAddress(), web_ui) as page:
                if place is None:
                    write_page_record(home, page.url)
                else:
                    print(json.dumps(asdict(page)), flush=True)
                freeze_loaded_objects()
                await wait_until_token_invalid(home, token, stopping)
        except BadInput as error:
            if place is None:
                raise
            print(json.dumps({"what": error.what, "where": error.where, "fix": error.fix}), flush=True)
            return 1
    return 0


if __name__ == "__main__":
    secrets.take()
    code = asyncio.run(main("".join(sys.argv[1:])))
    sys.stdout.flush()
    os._exit(code)  # the SDK was seen to crash at interpreter exit (reference: temporal.md §0)
