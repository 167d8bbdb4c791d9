"""Errors of a request to the model's API as our own, for the built-in agent's client and in part for the proxy: those
that are tried again, and those that a person has to mend; and the limits of a response: no redirect, no compression,
and bounds on size, lines and silence.

An error's `.type` counts before its status: an overload inside a stream arrives with status 200.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin.model_request import ModelRequest
from perdure.adapters.system.http_client import proxy_note
from perdure.models.errors import ModelRefusesUs, ModelUnavailable, StepError
from perdure.text import one_line, redact_known

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
            """Yield the chunks of the inner stream. Raises UnacceptableResponse for a body that is too long, and of an
            event stream also for an event that is too long, or when no line ends for `silence_s` seconds."""
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


RETRY_AFTER_CAP_S = 600.0
"""The longest wait a model API can ask for, which may ask for hours; ten minutes keeps the Web UI's countdown honest
and costs one request."""


TEMPORARY_TYPES = ("rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error")
TEMPORARY_STATUS = (408, 409, 425, 429)
OVERLOADED, _LIMIT = "API is overloaded", "rate limit"
LIMITED = {"rate_limit_error": _LIMIT, 429: _LIMIT, "overloaded_error": OVERLOADED, 529: OVERLOADED}
"""Errors that concern everybody with this key, by type or status, with what people read of them: "the model's …"."""
STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
_UNREADABLE = (ValueError, LookupError, AttributeError, AssertionError, RuntimeError)
"""Errors that the library raises on bytes that are not JSON, or events out of order: it adds them up without
checking."""

_USED_UP = re.compile(r"anthropic-ratelimit-[a-z-]+-remaining", re.IGNORECASE)


class SummaryRefused(ModelRefusesUs):
    """The API does not sum this conversation up; the step goes on without a summary."""


class ConversationTooLong(ModelRefusesUs):
    """The conversation does not fit into the model's context, as the API says in an error; a shorter one may."""


_TOO_LONG = re.compile(
    r"context.?(?:length|window|size)|n_ctx|exceed\w*\b.{0,80}\bcontext"
    r"|\b(?:prompt|input|conversation|request)\b.{0,20}\btoo (?:long|large)|too many (?:input |prompt )?tokens",
    re.IGNORECASE,
)
_TOO_LONG_STATUS = (400, 413, 422, 500)
"""Words and statuses of servers for a conversation that is longer than the model's context."""

_SUMMARY_REFUSED_STATUS = (400, 404, 413, 422)
"""Statuses that refuse the request for a summary, not the model, which has answered in this conversation before."""

BASE_URL_VARIABLE = "ANTHROPIC_BASE_URL"
RESTART = "then start the worker again: perdure down && perdure up"


@dataclass(frozen=True)
class Endpoint:
    """The server that is asked: `variable` is the environment variable its key came from."""

    base_url: str
    variable: str

    @property
    def host(self) -> str:
        """Return scheme, host and port alone, for a URL may carry a password, and the proxy that is used."""
        url = urlsplit(self.base_url)
        port = f":{url.port}" if url.port else ""
        return f"{url.scheme}://{url.hostname or ''}{port}{proxy_note(self.base_url)}"


def unavailable_error(
    message: str, endpoint: Endpoint, retry_after: float | None = None, limited: str = ""
) -> ModelUnavailable:
    """Return a ModelUnavailable for this endpoint.

    retry_after  seconds to wait before the next try, where the API says so
    limited      which limit of the key was reached, for people; empty: none
    """
    return ModelUnavailable(message, where=endpoint.host, retry_after=retry_after, limit_reason=limited)


def translate_error(error: Exception, request: ModelRequest, endpoint: Endpoint) -> StepError | None:
    """Return the StepError that stands for an error of a request: ModelRefusesUs where a person has to act (a redirect
    or packed answer, an untrusted certificate, a status that refuses), else ModelUnavailable, for a later try. None for
    an error that is a mistake in our code."""
    import anthropic
    import httpx2

    if (peer_error := _peer_error(error, endpoint)) is not None:
        return peer_error
    if isinstance(error, anthropic.APIStatusError):
        return _status_error(error, request, endpoint)
    if isinstance(error, TimeoutError):
        return unavailable_error("the model's reply did not come to an end", endpoint)
    if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
        return unavailable_error("the model API went silent", endpoint)
    if isinstance(error, anthropic.APIConnectionError):
        return unavailable_error(
            f"the model API could not be reached: {one_line(str(error.__cause__ or error), 300)}", endpoint
        )
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
        return unavailable_error(
            f"the model's reply was cut off: {one_line(str(error), 300) or type(error).__name__}", endpoint
        )
    if isinstance(error, (anthropic.APIError, httpx2.SSEError, *_UNREADABLE)):
        return unavailable_error(f"the model API answered with something else: {one_line(repr(error), 300)}", endpoint)
    return None


def _peer_error(error: BaseException, endpoint: Endpoint) -> StepError | None:
    """Return the StepError for a fault of the server itself, wherever in the error's chain of causes it stands:
    ModelRefusesUs for an untrusted certificate and a final unacceptable response, ModelUnavailable for any other
    unacceptable response and failed TLS. None when there is none."""
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnacceptableResponse):
            if not cause.final:
                return unavailable_error(str(cause), endpoint)
            fix = f"set ANTHROPIC_BASE_URL to the address that answers itself, {RESTART}"
            return ModelRefusesUs(str(cause), where=endpoint.host, fix=fix)
        if isinstance(cause, ssl.SSLCertVerificationError):
            problem = f"certificate verify failed: the certificate of {endpoint.host} is not trusted"
            fix = f"set SSL_CERT_FILE to the file with your company's certificates, or mend the server's, {RESTART}"
            return ModelRefusesUs(f"{problem} ({cause.verify_message})", where=endpoint.host, fix=fix)
        if isinstance(cause, ssl.SSLError):
            return unavailable_error(
                f"TLS with {endpoint.host} failed: {cause.reason or 'it is no TLS server'}", endpoint
            )
        cause = cause.__cause__ or cause.__context__
    return None


def _status_error(error: Any, request: ModelRequest, endpoint: Endpoint) -> StepError:
    """Return ModelUnavailable for a status that passes by itself, with the wait that the API asks for, else
    ModelRefusesUs.

    `error` is an anthropic.APIStatusError; Any, so that importing this module does not import the library.
    """
    error_type: str = error.type or ""
    message = one_line(redact_known(error.api_message or error.message or ""), 500)
    if (error.error_code or "").endswith("spend_limit_reached"):
        return _refusal(402, message, request, endpoint)
    if STATUS_OF_TYPE.get(error_type, error.status_code) in _TOO_LONG_STATUS and _TOO_LONG.search(message):
        return _refusal(413, message, request, endpoint)
    if error_type in TEMPORARY_TYPES or (error_type not in STATUS_OF_TYPE and _is_temporary(error.status_code)):
        pause_s = retry_after_seconds(error.response.headers)
        name = error_type or f"status {error.status_code}"
        limited = LIMITED.get(error_type or error.status_code, "")
        return unavailable_error(f"the model API is not available now ({name}): {message}", endpoint, pause_s, limited)
    return _refusal(STATUS_OF_TYPE.get(error_type, error.status_code), message, request, endpoint)


def _is_temporary(status: int) -> bool:
    """Return whether a status is one that passes by itself."""
    return status in TEMPORARY_STATUS or status >= 500 or status < 400


def _refusal(status: int, message: str, request: ModelRequest, endpoint: Endpoint) -> ModelRefusesUs:
    """Return the ModelRefusesUs for a status: it names the setting or key it is about and what to do, with advice of
    its own for 401, 402, 403, 404 and 413. It is a SummaryRefused where the request was for a summary and the status
    refuses that, not the model."""
    if request.compact and status in _SUMMARY_REFUSED_STATUS:
        return SummaryRefused(
            f"the model API does not sum the conversation up ({status}): {message}", where=endpoint.host
        )
    setting = f"model in [steps.{step_of(request)}]"
    key = f"{endpoint.variable} in the worker's environment"
    if status == 401:
        return ModelRefusesUs(
            f"the model API does not accept the key: {message}",
            where=f"{key}, sent to {endpoint.host}",
            fix=f"set {endpoint.variable} to a valid key, {RESTART}",
        )
    if status == 402:
        return ModelRefusesUs(
            f"the model API wants to be paid first: {message}",
            where=f"the account of {key}, at {endpoint.host}",
            fix="add credit or raise the spend limit of the account, then: perdure retry",
        )
    if status == 403:
        return ModelRefusesUs(
            f"this key may not use model {request.model!r}: {message}",
            where=f"{key}; {setting}",
            fix="use a key of a workspace that may, or set another model",
        )
    if status in (404, 405) and request.model not in message and "model" not in message.lower():
        return ModelRefusesUs(
            f"no Messages API at {endpoint.host}{urlsplit(endpoint.base_url).path}: it ends before /v1 ({message})",
            where=f"{BASE_URL_VARIABLE}; asked for {urlsplit(endpoint.base_url).path.rstrip('/')}/v1/messages there",
            fix=f"set {BASE_URL_VARIABLE} to the address as it is before /v1, {RESTART}",
        )
    if status == 404:
        return ModelRefusesUs(
            f"the model API does not know model {request.model!r}: {message}",
            where=f"{setting} of perdure.toml, or model of the request; asked at {endpoint.host}",
            fix="set the name of a model that this key can use",
        )
    if status == 413:
        return ConversationTooLong(
            f"the conversation is larger than the model API takes: {message}",
            where=f"step {step_of(request)}, {len(request.messages)} messages",
            fix="ask for less at once: split the request, or shorten the files it names; where prompt and max_tokens "
            f"together are too much, lower max_tokens in [steps.{step_of(request)}]",
        )
    return ModelRefusesUs(
        f"the model API refuses the request ({status}): {message}",
        where=f"{setting}, {request.model!r}, at {endpoint.host}",
        fix="check model, effort and max_tokens of this step",
    )


def step_of(request: ModelRequest) -> str:
    """Return the name of the step that a request belongs to, from the first line of its system prompt, `Step: <step>`;
    `?` where it has none."""
    return request.system.partition("\n")[0].removeprefix("Step:").strip() or "?"


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the API asks us to wait, at most RETRY_AFTER_CAP_S; None when it does not say or cannot
    be read.

    Without a `retry-after` header the latest reset of a limit that is used up counts
    (`anthropic-ratelimit-requests-remaining: 0`).
    """
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" in headers:
            seconds = _parse_retry_after(headers["retry-after"])
        else:
            used_up = [name for name in headers if _USED_UP.fullmatch(name) and headers[name] == "0"]
            resets = [headers.get(name.removesuffix("remaining") + "reset", "") for name in used_up]
            seconds = max(datetime.fromisoformat(reset).timestamp() for reset in resets if reset) - time.time()
    except (KeyError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_CAP_S) if seconds == seconds else None  # NaN is not a time


def _parse_retry_after(value: str) -> float:
    """Parse the value of a `retry-after` header, a number or a date, and return the seconds from now. Raises ValueError
    for anything else."""
    try:
        return float(value)
    except ValueError:
        return parsedate_to_datetime(value).timestamp() - time.time()
