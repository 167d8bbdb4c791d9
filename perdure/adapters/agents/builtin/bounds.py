"""The limits of a model API's response: no redirect, no compression, and bounds on size, lines and silence."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response

MODEL_REPLY_BYTES = 64 * 1024**2
MODEL_ERROR_BYTES = 1024**2
"""The most bytes of a reply's stream (128,000 tokens, each in an event of its own, are 20 MB), and of an error's
body."""

MODEL_EVENT_BYTES, MODEL_EVENT_LINES = 4 * 1024**2, 1000
"""The most bytes and lines of one event of the stream: two lines, and some hundred KB where what the model thought is
signed."""


class UnacceptableResponse(Exception):
    """The server does not behave as a Messages API does. `final`: the next try would see the same."""

    def __init__(self, what: str, *, final: bool = False) -> None:
        super().__init__(what)
        self.final = final


def make_response_hook(silence_s: float) -> Callable[[Response], Awaitable[None]]:
    """Make an event hook for the HTTP client that checks each response's head and bounds its body.

    The hook, and reading the body later, raise UnacceptableResponse. `silence_s`: how long a stream may send no whole
    line, in seconds; a byte now and then is not a sign of life.
    """

    async def check_response(response: Response) -> None:
        """Raise UnacceptableResponse for a redirect or a compressed body; else replace the response's stream by a
        bounded one."""
        if response.is_redirect:
            what = f"the model API answers {response.status_code} and sends us elsewhere; the conversation stays here"
            raise UnacceptableResponse(what, final=True)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnacceptableResponse("the model API packs its answers although it was asked not to", final=True)
        response.stream = _bound_body(response, silence_s)

    return check_response


def _bound_body(response: Response, silence_s: float) -> AsyncByteStream:
    """Return a response's stream, bounded: reading it raises UnacceptableResponse when the body is longer than
    MODEL_REPLY_BYTES (of an error: MODEL_ERROR_BYTES).

    A successful response is an event stream; there it is also raised when no line ends for `silence_s` seconds, and for
    an event that is too long.
    """
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, inner: AsyncByteStream, max_bytes: int, events: bool) -> None:
            self._inner, self._max_bytes, self._events = inner, max_bytes, events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size, last_line_at, event = 0, time.monotonic(), _EventSize()
            async for chunk in self._inner:
                size += len(chunk)
                if size > self._max_bytes:
                    raise UnacceptableResponse(f"the model API's answer is longer than {_in_mib(self._max_bytes)}")
                if self._events:
                    event.count_chunk(chunk)
                if b"\n" in chunk:
                    last_line_at = time.monotonic()
                elif self._events and time.monotonic() - last_line_at > silence_s:
                    raise UnacceptableResponse(f"the model API finished no line of its answer in {silence_s:.0f} s")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    events = bool(response.is_success)  # the library reads it as a stream, whatever its content type is
    inner = response.stream
    assert isinstance(inner, httpx2.AsyncByteStream)
    return BoundedStream(inner, MODEL_REPLY_BYTES if response.is_success else MODEL_ERROR_BYTES, events)


class _EventSize:
    """The size of the event that is being received, since the last empty line: the library keeps all of it, and copies
    it for each line."""

    def __init__(self) -> None:
        self._bytes = self._lines = 0
        self._carriage_return = b""  # a \r at the end of a chunk, which may be the first half of \r\n
        self._line_end = b""  # a line's end, where that was the last thing received

    def count_chunk(self, chunk: bytes) -> None:
        """Count a chunk of the stream. Raises UnacceptableResponse when the event has more than MODEL_EVENT_BYTES or
        MODEL_EVENT_LINES.

        An event's end may be split between chunks: some gateways send each line in a chunk of its own.
        """
        chunk = self._carriage_return + chunk
        self._carriage_return = b"\r" if chunk.endswith(b"\r") else b""
        new = chunk[: len(chunk) - len(self._carriage_return)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = (self._line_end + new).rfind(b"\n\n")
        if end >= 0:
            self._bytes = self._lines = 0
            new = (self._line_end + new)[end + 1 :]
        if new:
            self._line_end = b"\n" if new.endswith(b"\n") else b""
        self._bytes += len(new)
        self._lines += new.count(b"\n")
        if self._bytes > MODEL_EVENT_BYTES or self._lines > MODEL_EVENT_LINES:
            raise UnacceptableResponse("the model API sends an event without an end")


def _in_mib(size: int) -> str:
    """Return a size in bytes as a text in MiB."""
    return f"{size // 1024**2} MiB"
