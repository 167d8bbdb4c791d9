"""One try to tell one address: what it answers decides, what it says is never read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import perdure
from perdure.adapters.notify.addresses import Address, headers
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import NoticeRefused, NoticeUnheard

if TYPE_CHECKING:
    import httpx2

NOTIFY_ATTEMPT_S = 15.0
"""For one try, connecting included: receivers should answer at once and work later; Slack does within a second."""

NOTIFY_RETRY_AFTER_S = 3600.0
"""The longest pause that a receiver may ask for: one that asks for more would otherwise be told once a day."""


_TRY_AGAIN = (408, 425, 429)
"""Beside 5xx: answers that may change without anybody acting."""

_telling: ContextVar[bool] = ContextVar("telling", default=False)


class _Silent(logging.Filter):
    """Keeps the HTTP client's own lines out of the log while it knows an address of ours: it writes them out whole."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _telling.get()


_SILENT = _Silent()
_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy")


async def send(
    address: Address,
    id: str,
    body: bytes,
    keys: Iterable[bytes],
    *,
    within: float = NOTIFY_ATTEMPT_S,
    least: float = 1.0,
) -> int:
    """POST it; the status of an answer that takes it (2xx). In seconds: `within` for all of it, `least` for a pause.

    NoticeUnheard when another try may help, with the pause that was asked for; NoticeRefused when it will not: a
    redirect (it would carry what is told to somebody nobody named) or a 4xx. Neither has more of the address than its
    host.
    """
    client = await in_thread(_client, address, within)
    import httpx2  # by now loaded, in the thread

    signed = headers(id, int(time.time()), body, keys)
    told = {"content-type": "application/json", "user-agent": f"perdure/{perdure.__version__}", **signed}
    failure = "did not answer"
    with _unlogged():
        try:
            async with (
                asyncio.timeout(within),
                client,
                client.stream("POST", address.url, content=body, headers=told) as answer,
            ):
                return _judged(address, answer.status_code, answer.headers.get("retry-after", ""), least)
        except TimeoutError:
            failure = f"did not answer within {within:.0f} s"
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            failure = "could not be reached" + _cause(error)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            raise NoticeRefused(f"{address.name}: this is not an address", fix=_FIX) from None
        except (httpx2.TransportError, OSError):
            pass  # its words may hold the address
    raise NoticeUnheard(f"{address.name} {failure}")


_FIX = "correct [notify] url or PERDURE_WEBHOOK_URL and restart the worker"


def _judged(address: Address, status: int, asked: str, least: float) -> int:
    if 200 <= status < 300:
        return status
    if 300 <= status < 400:
        words = f"{address.name} answered {status}: it sends elsewhere, and that is not followed"
        raise NoticeRefused(words, fix="write the address it sends to into [notify] url, if that is right")
    if status in _TRY_AGAIN or status >= 500:
        raise NoticeUnheard(f"{address.name} answered {status}", retry_after=retry_after(asked, least=least))
    gone = ": nobody listens there any more" if status == 410 else ""
    raise NoticeRefused(f"{address.name} answered {status}{gone}", fix=_FIX)


def retry_after(text: str, now: datetime | None = None, *, least: float = 1.0) -> float | None:
    """The pause that a header asks for, in seconds or as a date: `least` to NOTIFY_RETRY_AFTER_S; None without one."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - (now or datetime.now(UTC))).total_seconds()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, least), NOTIFY_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _cause(error: BaseException) -> str:
    """Say why there is no connection, where that can be said without the library's own words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            verified = isinstance(seen, ssl.SSLCertVerificationError)
            why = "certificate verify failed; SSL_CERT_FILE names more that are trusted" if verified else "TLS failed"
            return f": its certificate or its TLS is not accepted ({why})"
        if isinstance(seen, socket.gaierror):
            return ": there is no such host"
        if isinstance(seen, ConnectionRefusedError):
            return ": nobody listens there"
        seen = seen.__cause__ or seen.__context__
    return ""


def _client(address: Address, within: float) -> httpx2.AsyncClient:
    """In a thread: loading the certificates takes 45 ms. NoticeUnheard when the environment it follows is wrong."""
    import httpx2

    try:
        verified = httpx2.create_ssl_context()
    except OSError:
        words = f"{address.name} was not asked: the certificates that SSL_CERT_FILE or SSL_CERT_DIR names are none"
        raise NoticeUnheard(words) from None
    try:
        return httpx2.AsyncClient(verify=verified, timeout=within, follow_redirects=False)
    except (ValueError, ImportError, httpx2.InvalidURL):  # its words hold the proxy's address, password and all
        words = f"{address.name} was not asked: HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names no HTTP proxy"
        raise NoticeUnheard(words) from None


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_SILENT)  # adding it again changes nothing
    token = _telling.set(True)
    try:
        yield
    finally:
        _telling.reset(token)
