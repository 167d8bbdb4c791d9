"""Errors of a request to the model: ours to retry, or a person's to mend.

By the error's `.type` first and its status second: an overload inside a stream arrives with status 200.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from time import time
from typing import Any
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin.bounds import Unacceptable
from perdure.adapters.agents.builtin.model_request import ModelRequest
from perdure.adapters.agents.text import redact
from perdure.models.errors import ModelRefusesUs, ModelUnavailable, StepError
from perdure.text import one_line

RETRY_AFTER_CAP_S = 600.0
"""A model API may ask for hours; ten minutes keeps the Web UI's countdown honest and costs one request."""


PASSING_TYPES = ("rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error")
PASSING_STATUS = (408, 409, 425, 429)
OVERLOADED, _LIMIT = "API is overloaded", "rate limit"
LIMITED = {"rate_limit_error": _LIMIT, 429: _LIMIT, "overloaded_error": OVERLOADED, 529: OVERLOADED}
"""Answers that everybody with this key is meant by: in words for people, "the model's …"."""
STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
_UNREADABLE = (ValueError, LookupError, AttributeError, AssertionError, RuntimeError)
"""Errors of the library on bytes that are not JSON, or events out of order: it adds them up without checking."""

_USED_UP = re.compile(r"anthropic-ratelimit-[a-z-]+-remaining", re.IGNORECASE)


class NotSummedUp(ModelRefusesUs):
    """The API does not sum this conversation up; the step goes on without that."""


_NOT_SUMMED_UP = (400, 404, 413, 422)
"""Answers to a model that has answered in this conversation before: it is the request for a summary that is refused."""

RESTART = "then start the worker again: perdure down && perdure up"


@dataclass(frozen=True)
class Endpoint:
    """The server we ask: `variable` is the environment variable the key came from; `secrets` never reach a message."""

    base_url: str
    variable: str
    secrets: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """Scheme and host alone: a URL may carry a password."""
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.hostname or ''}" + (f":{url.port}" if url.port else "")


def unavailable(what: str, endpoint: Endpoint, retry_after: float | None = None, limited: str = "") -> ModelUnavailable:
    what = redact(what, endpoint.secrets)
    return ModelUnavailable(what, where=endpoint.host, retry_after=retry_after, limited=limited)


def translate(error: Exception, question: ModelRequest, endpoint: Endpoint) -> StepError | None:
    """The error as our own; None for one that is nobody's but a programmer's."""
    import anthropic
    import httpx2

    if (refused := _of_peer(error, endpoint)) is not None:
        return refused
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, question, endpoint)
    if isinstance(error, TimeoutError):
        return unavailable("the model's reply did not come to an end", endpoint)
    if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
        return unavailable("the model API went silent", endpoint)
    if isinstance(error, anthropic.APIConnectionError):
        return unavailable(
            f"the model API could not be reached: {one_line(str(error.__cause__ or error), 300)}", endpoint
        )
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
        return unavailable(
            f"the model's reply was cut off: {one_line(str(error), 300) or type(error).__name__}", endpoint
        )
    if isinstance(error, (anthropic.APIError, httpx2.SSEError, *_UNREADABLE)):
        return unavailable(f"the model API answered with something else: {one_line(repr(error), 300)}", endpoint)
    return None


def _of_peer(error: BaseException, endpoint: Endpoint) -> StepError | None:
    """The fault of the peer itself, wherever in the error's causes it stands; None when there is none."""
    import ssl

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Unacceptable):
            if not seen.final:
                return unavailable(str(seen), endpoint)
            fix = f"set ANTHROPIC_BASE_URL to the address that answers itself, {RESTART}"
            return ModelRefusesUs(str(seen), where=endpoint.host, fix=fix)
        if isinstance(seen, ssl.SSLCertVerificationError):
            what = f"certificate verify failed: the certificate of {endpoint.host} is not trusted"
            fix = f"set SSL_CERT_FILE to the file with your company's certificates, or mend the server's, {RESTART}"
            return ModelRefusesUs(f"{what} ({seen.verify_message})", where=endpoint.host, fix=fix)
        if isinstance(seen, ssl.SSLError):
            return unavailable(f"TLS with {endpoint.host} failed: {seen.reason or 'it is no TLS server'}", endpoint)
        seen = seen.__cause__ or seen.__context__
    return None


def _of_status(error: Any, question: ModelRequest, endpoint: Endpoint) -> StepError:
    """`error` is an anthropic.APIStatusError; Any, so that importing this module does not import the library."""
    kind: str = error.type or ""
    said = redact(one_line(error.api_message or error.message or "", 500), endpoint.secrets)
    if (error.error_code or "").endswith("spend_limit_reached"):
        return _refuses(402, said, question, endpoint)
    if kind in PASSING_TYPES or (kind not in STATUS_OF_TYPE and _passes(error.status_code)):
        pause = retry_after(error.response.headers)
        name = kind or f"status {error.status_code}"
        limited = LIMITED.get(kind or error.status_code, "")
        return unavailable(f"the model API is not available now ({name}): {said}", endpoint, pause, limited)
    return _refuses(STATUS_OF_TYPE.get(kind, error.status_code), said, question, endpoint)


def _passes(status: int) -> bool:
    return status in PASSING_STATUS or status >= 500 or status < 400


def _refuses(status: int, said: str, question: ModelRequest, endpoint: Endpoint) -> ModelRefusesUs:
    """Every refusal says which setting it is about and what to do."""
    if question.compact and status in _NOT_SUMMED_UP:
        return NotSummedUp(f"the model API does not sum the conversation up ({status}): {said}", where=endpoint.host)
    setting = f"model in [steps.{step_of(question)}]"
    key = f"{endpoint.variable} in the worker's environment"
    if status == 401:
        return ModelRefusesUs(
            f"the model API does not accept the key: {said}",
            where=f"{key}, sent to {endpoint.host}",
            fix=f"set {endpoint.variable} to a valid key, {RESTART}",
        )
    if status == 402:
        return ModelRefusesUs(
            f"the model API wants to be paid first: {said}",
            where=f"the account of {key}, at {endpoint.host}",
            fix="add credit or raise the spend limit of the account, then: perdure retry",
        )
    if status == 403:
        return ModelRefusesUs(
            f"this key may not use model {question.model!r}: {said}",
            where=f"{key}; {setting}",
            fix="use a key of a workspace that may, or set another model",
        )
    if status == 404:
        return ModelRefusesUs(
            f"the model API does not know model {question.model!r}: {said}",
            where=f"{setting} of perdure.toml, or --model; asked at {endpoint.host}",
            fix="set the name of a model that this key can use",
        )
    if status == 413:
        return ModelRefusesUs(
            f"the conversation is larger than the model API takes: {said}",
            where=f"step {step_of(question)}, {len(question.messages)} messages",
            fix="ask for less at once: split the request, or shorten the files it names",
        )
    return ModelRefusesUs(
        f"the model API refuses the request ({status}): {said}",
        where=f"{setting}, {question.model!r}, at {endpoint.host}",
        fix="check model, effort and max_tokens of this step",
    )


def step_of(question: ModelRequest) -> str:
    """The step a question belongs to: the first line of every system prompt is `Step: <step>`."""
    return question.system.partition("\n")[0].removeprefix("Step:").strip() or "?"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the API asks us to wait, at most RETRY_AFTER_CAP_S; None when it does not say or cannot be read.

    Without `retry-after` the latest reset of what is used up (`anthropic-ratelimit-requests-remaining: 0`) is meant.
    """
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" in headers:
            seconds = _seconds(headers["retry-after"])
        else:
            used_up = [name for name in headers if _USED_UP.fullmatch(name) and headers[name] == "0"]
            resets = [headers.get(name.removesuffix("remaining") + "reset", "") for name in used_up]
            seconds = max(datetime.fromisoformat(reset).timestamp() for reset in resets if reset) - time()
    except (KeyError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_CAP_S) if seconds == seconds else None  # NaN is not a time


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return parsedate_to_datetime(value).timestamp() - time()
