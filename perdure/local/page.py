"""The process of the web page that `perdure up` keeps running: its token, its record, its start and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets as randomness
import shlex
import sys

from pydantic import BaseModel, ValidationError

from perdure import secrets
from perdure.adapters.system.files import hold_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.local.places import Places
from perdure.local.processes import command_tied_to_us, holds_lock
from perdure.models.errors import PerdureError

PAGE_RESTART_S = 5.0
"""Pause before a page that ended is started again: the home's disk may be full."""

PAGE_START_S = 20.0
"""Limit for a page to record its address: it takes a second, several on a busy machine."""

PAGE_STOP_S = 5.0
"""Limit for a page to end by itself before it is killed; it holds nothing that could be lost."""

TOKEN_POLL_S = 1.0
"""Pause between two looks at the token file, which end long sessions soon after their token."""

_POLL_S = 0.1

_TOKEN = re.compile("[0-9a-f]{64}")


class PageRecord(BaseModel):
    """Content of page.json: true while the page's lock is held. `url` is without the token."""

    pid: int
    url: str


def ensure_page_token(home: Home) -> str:
    """Return the secret that opens this home's page, 32 bytes in hex; create it if there is none.

    Removing the file `page.token` ends every session. Raises PerdureError for one that cannot be read, or that is
    damaged and would let strangers in: it is not replaced.
    """
    home.make_private()
    path = home.root / "page.token"
    fix = f"remove it: the page makes another one (rm -r {shlex.quote(str(path))})"
    try:
        with hold_lock(home.root / "page.token.lock"):
            if not os.path.lexists(path):
                write_whole(path, randomness.token_hex(32).encode())
            token = path.read_text().strip()
    except OSError as error:
        problem = f"the page's token cannot be read or made: {error.strerror}"
        raise PerdureError(problem, where=str(error.filename or path), fix=fix) from None
    except UnicodeDecodeError:
        token = ""
    if not _TOKEN.fullmatch(token):
        raise PerdureError("the page's token is damaged: it is not 64 digits in hex", where=str(path), fix=fix)
    return token


async def wait_until_token_invalid(home: Home, token: str, ended: asyncio.Event) -> None:
    """Wait until `ended` is set, or `token` is no longer this home's: whoever removes the token ends every session."""
    path = home.root / "page.token"
    while not ended.is_set():
        try:
            if path.read_text().strip() != token:
                return
        except (OSError, UnicodeDecodeError):
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TOKEN_POLL_S)


def read_page_record(home: Home) -> PageRecord | None:
    """Return the record of the page that runs beside this home's workers; None if none runs or none is written yet."""
    places = Places(home)
    try:
        record = PageRecord.model_validate_json(places.page_record.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    return record if holds_lock(record.pid, places.page_lock) else None


def page_url(home: Home) -> str:
    """Return the URL of the running page, without the token; empty where none runs."""
    running = read_page_record(home)
    return running.url if running else ""


def page_address(home: Home) -> str:
    """Return the URL at which a person opens the running page, with the token; empty where none runs.

    Raises the errors of ensure_page_token.
    """
    running = read_page_record(home)
    return f"{running.url}/?token={ensure_page_token(home)}" if running else ""


async def wait_for_page_status(home: Home) -> str:
    """Wait until the page runs and return the line that says where it is, or the line that says why there is none.

    Waits at most PAGE_START_S seconds.
    """
    deadline = asyncio.get_running_loop().time() + PAGE_START_S
    while asyncio.get_running_loop().time() < deadline:
        try:
            ensure_page_token(home)
        except PerdureError as error:
            return f"no page: {error.what}; {error.fix}"
        if address := page_address(home):
            return f"page at {address}"
        await asyncio.sleep(_POLL_S)
    return "the page does not say yet where it is; perdure page does once it is there"


async def keep_page_running(home: Home) -> None:
    """Start the page, and start it again PAGE_RESTART_S seconds after it ended, for ever; when cancelled, end it."""
    while True:
        process = await _start_page(home)
        try:
            await process.wait()
            await asyncio.sleep(PAGE_RESTART_S)
        finally:
            if process.returncode is None:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), PAGE_STOP_S)
            if process.returncode is None:
                process.kill()


async def _start_page(home: Home) -> asyncio.subprocess.Process:
    """Start the page's process and return it.

    It gets the variables that lead to Temporal, and no secret besides: no key of a model or a forge.
    """
    variables = secrets.environment()
    page_variables = {
        name: value for name, value in variables.items() if not secrets.is_secret(name) or name[:9] == "TEMPORAL_"
    }
    with secrets.handed_over({**page_variables, "PERDURE_HOME": str(home.root)}) as (env, pipe):
        return await asyncio.create_subprocess_exec(
            *command_tied_to_us([sys.executable, "-P", "-m", "perdure.page"]),
            stdin=asyncio.subprocess.DEVNULL,
            env=env,
            cwd=home.root,
            pass_fds=[pipe],
            start_new_session=True,
        )


def write_page_record(home: Home, url: str) -> None:
    """Write the record of this process, which holds the page's lock and serves the page at `url`."""
    record = PageRecord(pid=os.getpid(), url=url)
    write_whole(Places(home).page_record, record.model_dump_json().encode(), sync=False)
