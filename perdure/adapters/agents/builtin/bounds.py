"""The bounds of a model API's answer: no redirect, nothing packed, limits of size, lines and silence."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response

MODEL_REPLY_BYTES = 64 * 1024**2
MODEL_ERROR_BYTES = 1024**2
"""Of a reply's stream (128,000 tokens, each in an event of its own, are 20 MB), and of an error's body."""

MODEL_EVENT_BYTES, MODEL_EVENT_LINES = 4 * 1024**2, 1000
"""Of one event of the stream: two lines, and some hundred KB where what the model thought is signed."""


class Unacceptable(Exception):
    """The peer does not behave as a Messages API does. `final`: the next try would see the same."""

    def __init__(self, what: str, *, final: bool = False) -> None:
        super().__init__(what)
        self.final = final


def bounding(silence_s: float) -> Callable[[Response], Awaitable[None]]:
    """An event hook of the HTTP client: it looks at each answer's head and bounds its body. `silence_s`: how long
    there may be no whole line, in seconds; a byte now and then is not a sign of life."""

    async def hook(response: Response) -> None:
        if response.is_redirect:
            what = f"the model API answers {response.status_code} and sends us elsewhere; the conversation stays here"
            raise Unacceptable(what, final=True)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unacceptable("the model API packs its answers although it was asked not to", final=True)
        response.stream = _bounded(response, silence_s)

    return hook


def _bounded(response: Response, silence_s: float) -> AsyncByteStream:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: AsyncByteStream, most: int, events: bool) -> None:
            self._inner, self._most, self._events = inner, most, events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size, since, event = 0, time.monotonic(), _Event()
            async for chunk in self._inner:
                size += len(chunk)
                if size > self._most:
                    raise Unacceptable(f"the model API's answer is longer than {_in_words(self._most)}")
                if self._events:
                    event.feed(chunk)
                if b"\n" in chunk:
                    since = time.monotonic()
                elif self._events and time.monotonic() - since > silence_s:
                    raise Unacceptable(f"the model API finished no line of its answer in {silence_s:.0f} s")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    events = bool(response.is_success)  # whatever it calls itself, the library reads it as a stream
    inner = response.stream
    assert isinstance(inner, httpx2.AsyncByteStream)
    return Bounded(inner, MODEL_REPLY_BYTES if response.is_success else MODEL_ERROR_BYTES, events)


class _Event:
    """Counts what came since the last empty line: the library keeps all of it, and copies it for each line."""

    def __init__(self) -> None:
        self._bytes = self._lines = 0
        self._half = b""  # the first of the two bytes that may end a line
        self._ended = b""  # the end of a line, where one was the last that came

    def feed(self, chunk: bytes) -> None:
        """An end of an event may be split between chunks: some gateways send each line in one of its own."""
        chunk = self._half + chunk
        self._half = b"\r" if chunk.endswith(b"\r") else b""
        new = chunk[: len(chunk) - len(self._half)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = (self._ended + new).rfind(b"\n\n")
        if end >= 0:
            self._bytes = self._lines = 0
            new = (self._ended + new)[end + 1 :]
        if new:
            self._ended = b"\n" if new.endswith(b"\n") else b""
        self._bytes += len(new)
        self._lines += new.count(b"\n")
        if self._bytes > MODEL_EVENT_BYTES or self._lines > MODEL_EVENT_LINES:
            raise Unacceptable("the model API sends an event without an end")


def _in_words(size: int) -> str:
    return f"{size // 1024**2} MiB"
