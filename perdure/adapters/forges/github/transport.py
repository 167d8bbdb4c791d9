"""The connection to GitHub: PyGithub with our limits on time and size, which neither waits nor tries again by itself,
and follows one redirect only. `github.forge` and `github.account` open clients of it."""

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
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.limits import FORGE_SILENCE_S

API_VERSION = "2022-11-28"
"""The version of the API that every GitHub and every supported Enterprise Server speaks."""
PER_PAGE = 100  # the most that GitHub gives


def open_client(
    api: str, token: str | None = None, *, app: tuple[str, str] | None = None, silence_s: int = FORGE_SILENCE_S
) -> Github:
    """Return a client of the API at the address `api`, for a `with`. Sets our limits for every client of PyGithub in
    this process, and silences its log, in which tokens could stand. No request is sent.

    token      None: requests are sent as nobody
    app        an App's id and private key (PEM), for what only the App itself may ask
    silence_s  seconds without an answer that end a request
    """
    limit_all_clients()
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
        retry=_redirect_policy(api),
        seconds_between_requests=None,
        seconds_between_writes=None,
        api_version=API_VERSION,
    )


def _redirect_policy(api: str) -> Retry:
    """Return a policy for urllib3 that retries nothing, raises ForgeRefused at a second redirect, and counts what its
    client reads.

    GitHub needs one redirect, to where a repository or an issue is now, and PyGithub would follow them for ever. A
    retry policy is the only thing it lets us see every answer with.
    """

    class OneRedirect(Retry):
        redirected = False
        read_count = ReadCount(api)

        def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
            """Return False: nothing is retried. Raises ForgeRefused when an answer with a redirect follows another
            one."""
            was_redirected, self.redirected = self.redirected, status_code == 301
            if was_redirected and self.redirected:
                fix = "open the repository's page in a browser, and use the address it ends at"
                raise ForgeRefused("GitHub redirects us more than once", where=api, fix=fix)
            return False

    return OneRedirect(0, read=False)


FORGE_ANSWER_S, FORGE_ANSWER_BYTES = 120.0, 32 * 1024**2
"""Limits on the whole of one answer: its time, and its size when unpacked. The largest, a page of a hundred comments,
has some 7 MB."""


FORGE_READ_ANSWERS, FORGE_READ_BYTES, FORGE_READ_S = 300, 256 * 1024**2, 900.0
"""Limits on all answers of one client, which is opened for one thing to read or write: a server may name a next page
for ever. The most pages are those of the open pull requests, 30,000 here; the time holds waiting for others, too."""

_CHUNK = 64 * 1024


class ReadCount:
    """The count of answers and bytes that one client has read. `api`: the address that it reads from."""

    def __init__(self, api: str) -> None:
        self._api, self._answers, self._bytes, self._begun_at = api, 0, 0, time.monotonic()

    def add_answer(self, size: int) -> None:
        """Count an answer of this many bytes. Raises ForgeRefused above FORGE_READ_ANSWERS or FORGE_READ_BYTES,
        ForgeUnavailable after FORGE_READ_S."""
        self._answers, self._bytes = self._answers + 1, self._bytes + size
        if self._answers > FORGE_READ_ANSWERS or self._bytes > FORGE_READ_BYTES:
            what = f"the server has no end: {self._answers} answers, {self._bytes // 1024**2} MiB, for one thing"
            raise ForgeRefused(what, where=self._api, fix="check that this is GitHub's address")
        if time.monotonic() - self._begun_at > FORGE_READ_S:
            raise ForgeUnavailable(f"its answers did not end within {FORGE_READ_S:.0f} s", where=self._api)


class _HeadTimeLimit:
    """A mix-in for connections: the head of an answer has to arrive within FORGE_ANSWER_S, since a line of it may come
    a byte at a time."""

    sock: Any

    def getresponse(self) -> Any:
        """Return the connection's answer. When its head has not arrived within FORGE_ANSWER_S, shut the socket down,
        which makes reading raise an error."""
        timer = threading.Timer(FORGE_ANSWER_S, _shut_down_socket, (self.sock,))
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()  # type: ignore[misc]  # of the connection it is mixed into
        finally:
            timer.cancel()


class _BoundedHttpConnection(_HeadTimeLimit, HTTPConnection):
    pass


class _BoundedHttpsConnection(_HeadTimeLimit, HTTPSConnection):
    pass


class _BoundedHttpPool(HTTPConnectionPool):
    ConnectionCls = _BoundedHttpConnection


class _BoundedHttpsPool(HTTPSConnectionPool):
    ConnectionCls = _BoundedHttpsConnection


class _BoundedAdapter(HTTPAdapter):
    """The adapter of requests that limits the time and size of every answer."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Set up the pools of connections with those of ours, which limit the time for an answer's head."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _BoundedHttpPool, "https": _BoundedHttpsPool}

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """Return the pools of connections through a proxy, with those of ours."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = {"http": _BoundedHttpPool, "https": _BoundedHttpsPool}
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request and return its response with the whole content read. Raises requests.ConnectionError for a
        content above FORGE_ANSWER_BYTES, requests.Timeout for one that takes longer than FORGE_ANSWER_S."""
        deadline = time.monotonic() + FORGE_ANSWER_S
        response = super().send(request, *args, **options)
        content = bytearray()
        try:
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                content += chunk
                if len(content) > FORGE_ANSWER_BYTES:
                    raise requests.ConnectionError(f"its answer is longer than {FORGE_ANSWER_BYTES // 1024**2} MiB")
                if time.monotonic() > deadline:
                    raise requests.Timeout(f"its answer did not end within {FORGE_ANSWER_S:.0f} s")
        except (HTTPError, OSError) as error:
            response.close()
            if isinstance(error, requests.RequestException):
                raise
            raise requests.ConnectionError(error) from None
        count = getattr(self.max_retries, "read_count", None)
        if count is not None:  # of a client that open_client has made
            count.add_answer(len(content))
        response._content, response._content_consumed = bytes(content), True  # as requests itself keeps it
        return response


class _HttpClientConnection(HTTPRequestsConnectionClass):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _mount_adapter(self, "http://")


class _HttpsClientConnection(HTTPSRequestsConnectionClass):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _mount_adapter(self, "https://")


def limit_all_clients() -> None:
    """Set our connections for every client of PyGithub in this process: from now on each reads with limits and connects
    for each request anew."""
    Requester.injectConnectionClasses(_HttpClientConnection, _HttpsClientConnection)


def _mount_adapter(connection: HTTPRequestsConnectionClass | HTTPSRequestsConnectionClass, scheme: str) -> None:
    """Replace the adapter of a PyGithub connection by ours, with the same retry policy."""
    connection.adapter = _BoundedAdapter(max_retries=connection.retry)
    connection.session.mount(scheme, connection.adapter)


def _shut_down_socket(sock: socket.socket | None) -> None:
    """Close both directions of a socket, so that a read of it in another thread ends. None and errors are ignored."""
    try:
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
