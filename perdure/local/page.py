"""The process of the web page, as `perdure up` keeps it running and `perdure page` runs it: its address, its token, its
record, its start and end. Used by the command line, the supervisor and that process itself; what it serves is in
`perdure.page`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets as randomness
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError

from perdure import secrets
from perdure.adapters.system.files import hold_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.local.identity import HOST
from perdure.local.places import Places
from perdure.local.processes import command_tied_to_us, holds_lock
from perdure.models.errors import BadInput, PerdureError
from perdure.text import shell_word

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

    Removing the file `page.token` ends every session. Raises PerdureError when it cannot be read or made, or is damaged
    and would let strangers in: it is not replaced then.
    """
    home.make_private()
    path = home.root / "page.token"
    fix = f"remove it: the page makes another one (rm -r {shell_word(path)})"
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
    """Wait until `ended` is set, or `token` is no longer this home's: its file is gone, unreadable or has another.

    Whoever removes the token so ends every session. The file is read every TOKEN_POLL_S seconds.
    """
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

    Makes a token where there is none. Raises PerdureError when the token cannot be read or made, or is damaged.
    """
    running = read_page_record(home)
    return f"{running.url}/?token={ensure_page_token(home)}" if running else ""


async def wait_for_page_status(home: Home) -> str:
    """Wait until the page runs and return the line with its address, the token in it.

    Returns a line that says why there is no page when the token cannot be read, and one that says how to ask again when
    the page does not run within PAGE_START_S seconds.
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
            await _end_page(process)


async def run_page(home: Home, place: ListenAddress) -> AsyncIterator[ServedPage]:
    """Run a page at this address, in a process of its own, until SIGINT or SIGTERM; yield where it is, again each time
    this home's token has changed.

    Replaces this process's handlers of both signals, which then end the page. Raises PerdureError when the token cannot
    be read or made, or the page ends by itself with an error, and BadInput when it cannot listen there.
    """
    ensure_page_token(home)  # what is wrong with it is said here
    process = await _start_page(home, place)
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, process.terminate)
        assert process.stdout is not None
        async for line in process.stdout:
            told = json.loads(line)
            if "what" in told:
                raise BadInput(**told)
            yield ServedPage(**told)
        if await process.wait() not in (0, -signal.SIGTERM):
            raise PerdureError(f"the page has ended with code {process.returncode}")
    finally:
        await _end_page(process)


async def _end_page(process: asyncio.subprocess.Process) -> None:
    """End the page's process unless it has ended: by SIGTERM, and after PAGE_STOP_S seconds by SIGKILL."""
    if process.returncode is None:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), PAGE_STOP_S)
    if process.returncode is None:
        process.kill()


async def _start_page(home: Home, place: ListenAddress | None = None) -> asyncio.subprocess.Process:
    """Start the page's process and return it: the one beside the workers, or one for the address `place`.

    With `place`, the process writes each of its addresses, or why it cannot listen, as a line of JSON to a pipe. It
    gets this process's environment without secrets (no key of a model or a forge), but with all TEMPORAL_* variables,
    and SIGTERM when this process dies.
    """
    # The process has another working directory.
    resolved = place and replace(
        place,
        certificate=place.certificate and place.certificate.absolute(),
        key=place.key and place.key.absolute(),
    )
    arguments = [json.dumps(asdict(resolved), default=str)] if resolved else []
    variables = secrets.environment()
    page_variables = {
        name: value for name, value in variables.items() if not secrets.is_secret(name) or name[:9] == "TEMPORAL_"
    }
    with secrets.handed_over({**page_variables, "PERDURE_HOME": str(home.root)}) as (env, pipe):
        return await asyncio.create_subprocess_exec(
            *command_tied_to_us([sys.executable, "-P", "-m", "perdure.page", *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if place is not None else None,
            env=env,
            cwd=home.root,
            pass_fds=[pipe],
            start_new_session=True,
        )


def write_page_record(home: Home, url: str) -> None:
    """Write the record of this process, which holds the page's lock and serves the page at `url`."""
    record = PageRecord(pid=os.getpid(), url=url)
    write_whole(Places(home).page_record, record.model_dump_json().encode(), sync=False)


PORT = 8240
"""The default port, beside Temporal's 8233."""


@dataclass(frozen=True)
class ListenAddress:
    """The address at which the page listens, and the names it is asked by.

    names        names besides the host's own: a proxy's
    user_header  the header in which a proxy names the person; empty: the token opens the page
    """

    host: str = HOST
    port: int = PORT
    names: tuple[str, ...] = ()
    user_header: str = ""
    certificate: Path | None = None
    key: Path | None = None

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def make_ssl_context(self) -> ssl.SSLContext | None:
        """Create the TLS context for this address; None without a certificate.

        Raises BadInput for an address that strangers could listen in on, a proxy's header where others reach the port,
        a certificate without its key or a key without one, and a certificate that cannot be read.
        """
        if (self.certificate is None) != (self.key is None):
            raise BadInput(
                "a certificate needs its key, and a key its certificate",
                where="--tls-cert and --tls-key",
                fix="give both: --tls-cert FILE --tls-key FILE",
            )
        if self.user_header and not self.loopback:
            what = "whoever reaches the port could say in that header who they are"
            raise BadInput(what, where=self.host, fix="listen on 127.0.0.1, and let a proxy on this machine reach it")
        if not (self.loopback or self.tls):
            fix = "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy: --proxy-user-header NAME"
            raise BadInput("beyond this machine the token would be readable on its way", where=self.host, fix=fix)
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            what = f"the certificate cannot be used: {error.strerror or error}"
            raise BadInput(what, where=str(self.certificate)) from None
        return context


@dataclass(frozen=True)
class ServedPage:
    """A page that is served.

    `url`: without the token. `occupied_port`: the port that was wanted, where it was another's.
    """

    url: str
    token: str
    occupied_port: int | None = None

    @property
    def address(self) -> str:
        """Return the link a person opens, with the token; without one a proxy lets them in."""
        return f"{self.url}/?token={self.token}" if self.token else f"{self.url}/"
