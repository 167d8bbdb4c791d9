"""The line to GitHub: PyGithub with our limits, and nothing that waits or tries again by itself."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any

import github
import requests
from github import Auth, Github
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from perdure import __version__
from perdure.models.errors import ForgeRefused
from perdure.models.limits import FORGE_SILENCE_S

API_VERSION = "2022-11-28"
"""The one that every GitHub and every supported Enterprise Server speaks."""
PER_PAGE = 100  # the most that GitHub gives


def connect(
    api: str, token: str | None = None, *, app: tuple[str, str] | None = None, silence_s: int = FORGE_SILENCE_S
) -> Github:
    """For a `with`. `app` is an App's id and private key (PEM), for what only the App itself may ask; `silence_s`,
    in seconds, ends a request."""
    bound()
    logging.getLogger("github").setLevel(logging.WARNING)  # below that it logs bodies, and some of them are tokens
    auth: Auth.Auth | None = Auth.Token(token) if token else None
    if app is not None:
        auth = Auth.AppAuth(app[0], app[1], jwt_expiry=300)
    return github.Github(
        auth=auth,
        base_url=api,
        timeout=silence_s,
        user_agent=f"perdure/{__version__}",
        per_page=PER_PAGE,
        retry=_one_redirect(api),
        seconds_between_requests=None,
        seconds_between_writes=None,
        api_version=API_VERSION,
    )


def _one_redirect(api: str) -> Retry:
    """No retries, and an end to redirects: GitHub needs one to where a repository or an issue is now, and PyGithub
    would follow them for ever. This is the one thing it lets us see every answer with."""

    class OneRedirect(Retry):
        redirected = False

        def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
            again, self.redirected = self.redirected, status_code == 301
            if again and self.redirected:
                fix = "open the repository's page in a browser, and use the address it ends at"
                raise ForgeRefused("GitHub redirects us more than once", where=api, fix=fix)
            return False

    return OneRedirect(0, read=False)


FORGE_ANSWER_S, FORGE_ANSWER_BYTES = 120.0, 32 * 1024**2
"""For the whole of one answer, and of it unpacked: the largest, a page of a hundred comments, has some 7 MB."""


_CHUNK = 64 * 1024


class _Ends:
    """The head of an answer within FORGE_ANSWER_S: a line of it may come a byte at a time."""

    sock: Any

    def getresponse(self) -> Any:
        timer = threading.Timer(FORGE_ANSWER_S, _hang_up, (self.sock,))
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()  # type: ignore[misc]  # of the connection it is mixed into
        finally:
            timer.cancel()


class _Http(_Ends, HTTPConnection):
    pass


class _Https(_Ends, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


class _Bounded(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        end = time.monotonic() + FORGE_ANSWER_S
        response = super().send(request, *args, **options)
        found = bytearray()
        try:
            while data := response.raw.read1(_CHUNK, decode_content=True):
                found += data
                if len(found) > FORGE_ANSWER_BYTES:
                    raise requests.ConnectionError(f"its answer is longer than {FORGE_ANSWER_BYTES // 1024**2} MiB")
                if time.monotonic() > end:
                    raise requests.Timeout(f"its answer did not end within {FORGE_ANSWER_S:.0f} s")
        except (HTTPError, OSError) as error:
            response.close()
            if isinstance(error, requests.RequestException):
                raise
            raise requests.ConnectionError(error) from None
        response._content, response._content_consumed = bytes(found), True  # as requests itself keeps it
        return response


class _OverHttp(HTTPRequestsConnectionClass):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _mount(self, "http://")


class _OverHttps(HTTPSRequestsConnectionClass):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _mount(self, "https://")


def bound() -> None:
    """From here on every client of PyGithub in this process reads with an end, and connects for each request anew."""
    Requester.injectConnectionClasses(_OverHttp, _OverHttps)


def _mount(connection: HTTPRequestsConnectionClass | HTTPSRequestsConnectionClass, scheme: str) -> None:
    connection.adapter = _Bounded(max_retries=connection.retry)
    connection.session.mount(scheme, connection.adapter)


def _hang_up(sock: socket.socket | None) -> None:
    try:
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
