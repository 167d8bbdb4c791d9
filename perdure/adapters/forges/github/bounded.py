"""Answers of a forge, read with an end: so many bytes unpacked, so many seconds in all, however slowly they drip.

PyGithub reads whole answers into memory, and its time limit is for each pause alone.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import requests
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

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
