"""The page that `perdure up` keeps running: its token, its record, its process."""

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
from perdure.adapters.system.files import locked, write_whole
from perdure.adapters.system.home import Home
from perdure.local.places import Places
from perdure.local.processes import dying_with_us, holds
from perdure.models.errors import PerdureError

AGAIN_S = 5.0
"""Before a page that ended is started again: it may be the home's disk that is full."""

STARTED_S = 20.0
"""For a page to say where it is: it takes a second, several on a busy machine."""

ENDED_S = 5.0
"""For a page to end by itself; it holds nothing that could be lost."""

TOKEN_LOOK_S = 1.0
"""Between two looks for the token: that long sessions outlive it."""

_POLL_S = 0.1

_TOKEN = re.compile("[0-9a-f]{64}")


class PageRecord(BaseModel):
    """page.json: true while the page's lock is held. `url`: without the token."""

    pid: int
    url: str


def token_of(home: Home) -> str:
    """The secret that opens this home's page: made once, 32 bytes in hex; removed, every session ends.

    PerdureError for one that cannot be read, or that would let strangers in: it is not replaced, but said.
    """
    home.make_private()
    path = home.root / "page.token"
    fix = f"remove it: the page makes another one (rm -r {shlex.quote(str(path))})"
    try:
        with locked(home.root / "page.token.lock"):
            if not os.path.lexists(path):
                write_whole(path, randomness.token_hex(32).encode())
            token = path.read_text().strip()
    except OSError as error:
        what = f"the page's token cannot be read or made: {error.strerror}"
        raise PerdureError(what, where=str(error.filename or path), fix=fix) from None
    except UnicodeDecodeError:
        token = ""
    if not _TOKEN.fullmatch(token):
        raise PerdureError("the page's token is damaged: it is not 64 digits in hex", where=str(path), fix=fix)
    return token


async def over(home: Home, token: str, ended: asyncio.Event) -> None:
    """Until the end, or until that token is not this home's any more: whoever removes it ends every session."""
    path = home.root / "page.token"
    while not ended.is_set():
        try:
            if path.read_text().strip() != token:
                return
        except (OSError, UnicodeDecodeError):
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TOKEN_LOOK_S)


def read_page(home: Home) -> PageRecord | None:
    """The page that runs beside this home's workers, None where there is none, or where it has not said yet where."""
    places = Places(home)
    try:
        record = PageRecord.model_validate_json(places.page_record.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    return record if holds(record.pid, places.page_lock) else None


def page_url(home: Home) -> str:
    """The address of that page, without the token; empty where none runs."""
    running = read_page(home)
    return running.url if running else ""


def page_address(home: Home) -> str:
    """The address at which a person opens that page, token included; empty where none runs. Errors as token_of."""
    running = read_page(home)
    return f"{running.url}/?token={token_of(home)}" if running else ""


async def page_told(home: Home) -> str:
    """The line that says where the page is, once it is there, or why there is none."""
    until = asyncio.get_running_loop().time() + STARTED_S
    while asyncio.get_running_loop().time() < until:
        try:
            token_of(home)
        except PerdureError as error:
            return f"no page: {error.what}; {error.fix}"
        if address := page_address(home):
            return f"page at {address}"
        await asyncio.sleep(_POLL_S)
    return "the page does not say yet where it is; perdure page does once it is there"


async def keep_page(home: Home) -> None:
    """The page, started again whenever it ends, until cancelled: then it is ended."""
    while True:
        process = await _start(home)
        try:
            await process.wait()
            await asyncio.sleep(AGAIN_S)
        finally:
            if process.returncode is None:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), ENDED_S)
            if process.returncode is None:
                process.kill()


async def _start(home: Home) -> asyncio.subprocess.Process:
    """It gets what leads to Temporal, and no key of a model or a forge."""
    known = secrets.environment()
    theirs = {name: value for name, value in known.items() if not secrets.is_secret(name) or name[:9] == "TEMPORAL_"}
    with secrets.handed_over({**theirs, "PERDURE_HOME": str(home.root)}) as (env, pipe):
        return await asyncio.create_subprocess_exec(
            *dying_with_us([sys.executable, "-P", "-m", "perdure.page"]),
            stdin=asyncio.subprocess.DEVNULL,
            env=env,
            cwd=home.root,
            pass_fds=[pipe],
            start_new_session=True,
        )


def record_page(home: Home, url: str) -> None:
    """Of this process, which holds the page's lock."""
    record = PageRecord(pid=os.getpid(), url=url)
    write_whole(Places(home).page_record, record.model_dump_json().encode(), sync=False)
