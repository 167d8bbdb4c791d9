"""A client of the upstream: one request, and its whole reply or one typed error, caused by that of the wire."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.adapters.agents.builtin.bounds import UnacceptableResponse, make_response_hook
from perdure.adapters.agents.builtin.errors import LIMITED, RESTART, TEMPORARY_STATUS, retry_after_seconds
from perdure.adapters.agents.builtin.model import MODEL_CONNECT_S
from perdure.adapters.agents.proxied.base import (
    IncompleteReply,
    OnBegun,
    ProxiedReply,
    ProxiedRequest,
    ProxiedWire,
    WireError,
)
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.agents.text import redact_secrets
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import ModelRefusesUs, ModelUnavailable, StepError
from perdure.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_MESSAGE_CHARS = 500
_BAD_GATEWAY = 502


class UpstreamClient:
    """A client of one upstream, whose connections are kept until `aclose`."""

    def __init__(self, upstream: Upstream, wire: ProxiedWire) -> None:
        self._upstream, self._wire = upstream, wire
        self._client: AsyncClient | None = None
        self._client_lock = asyncio.Lock()

    async def fetch_reply(self, request: ProxiedRequest, headers: Mapping[str, str], on_begun: OnBegun) -> ProxiedReply:
        """Send a request to the upstream once, without retries, and return the whole reply.

        headers   those of the agent's request; only the wire's `forwarded_headers` are sent on
        on_begun  called when the first bytes of a reply have come: from there on it may be billed

        Raises ModelUnavailable where the request can be sent again: a reply that was cut off, silence, no connection, a
        status that passes. Raises ModelRefusesUs where a person must act. An error that the API itself has sent is
        their cause, as a WireError.
        """
        import httpx2

        try:
            async with asyncio.timeout(self._upstream.within_s):
                return await self._post_request(request, headers, on_begun)
        except WireError as error:
            raise self._to_step_error(error) from error
        except IncompleteReply as error:
            raise self._unavailable_error(f"the model's reply was cut off: {error}") from error
        except UnacceptableResponse as error:
            if not error.final:
                raise self._unavailable_error(str(error)) from error
            fix = f"set the address of the model's API to the one that answers itself, {RESTART}"
            raise self._refusal_error(WireError(_BAD_GATEWAY, "", str(error)), fix) from error
        except TimeoutError as error:
            raise self._unavailable_error("the model's reply did not come to an end") from error
        except httpx2.TimeoutException as error:
            raise self._unavailable_error("the model's API went silent") from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if _is_untrusted_certificate(error):
                fix = f"set SSL_CERT_FILE to the file with your company's certificates, {RESTART}"
                message = "the certificate of the model's API is not trusted"
                raise self._refusal_error(WireError(_BAD_GATEWAY, "", message), fix) from error
            message = one_line(str(error), 300) or type(error).__name__
            raise self._unavailable_error(f"the model's API could not be reached: {message}") from error

    async def aclose(self) -> None:
        """Close the HTTP client where it was opened."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post_request(
        self, request: ProxiedRequest, headers: Mapping[str, str], on_begun: OnBegun
    ) -> ProxiedReply:
        """Send a request by POST with the upstream's key and return the parsed reply, once all of it has come.

        Raises WireError for any status but 200 and for an error inside a reply, and IncompleteReply for a reply that is
        not of the kind requested (events or JSON), or that the wire cannot parse.
        """
        client = await self._open_client()
        request_headers = {name: headers[name] for name in self._wire.forwarded_headers if name in headers}
        request_headers |= {
            "content-type": "application/json",
            "accept-encoding": "identity",
            **self._upstream.credentials(),
        }
        url = self._upstream.base_url.rstrip("/") + self._path_below_base(request.path)
        content = await in_thread(lambda: json.dumps(request.body, separators=(",", ":")).encode())
        async with client.stream("POST", url, content=content, headers=request_headers) as response:
            if response.status_code != 200:
                raise self._wire_error(response, await response.aread())
            pieces: list[bytes] = []
            async for piece in response.aiter_raw():
                if not pieces:
                    on_begun()
                pieces.append(piece)
            is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if is_stream != request.stream:
            raise IncompleteReply("it is not of the kind that was asked for")
        return await in_thread(self._parse_reply, request, is_stream, b"".join(pieces))

    def _parse_reply(self, request: ProxiedRequest, is_stream: bool, body: bytes) -> ProxiedReply:
        """Parse the bytes of a reply by the wire. Raises IncompleteReply for a shape that nobody foresaw: nothing of it
        is kept."""
        try:
            return self._wire.parse_reply(request, is_stream, body)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise IncompleteReply(f"it is no reply of this wire ({type(error).__name__})") from error

    def _path_below_base(self, path: str) -> str:
        """Return a request's path without the `/v1` it begins with, where the upstream's base address ends in `/v1`
        already: OpenAI's do, those of the others only sometimes."""
        return path.removeprefix("/v1") if self._upstream.base_url.rstrip("/").endswith("/v1") else path

    def _wire_error(self, response: Response, body: bytes) -> WireError:
        """Return the WireError in the body of an answer whose status is not 200, with the wait that its headers ask
        for."""
        error = self._wire.parse_error(response.status_code, body)
        error.retry_after = retry_after_seconds(response.headers)
        return error

    def _to_step_error(self, error: WireError) -> StepError:
        """Return the StepError that stands for a WireError of the upstream: ModelUnavailable for what passes by itself,
        else ModelRefusesUs with what to do about it.

        The WireError's own message is cut to one line, and secrets in it are redacted: people and the agent read it.
        """
        error.message = redact_secrets(one_line(error.message, _MESSAGE_CHARS), self._upstream.secrets)
        status, kind = error.status, error.kind
        limit_reason = LIMITED.get(kind) or LIMITED.get(status) or ""
        if limit_reason or status in TEMPORARY_STATUS or status >= 500 or status < 400:
            message = f"the model's API is not available now ({kind or f'status {status}'}): {error.message}"
            where = self._upstream.endpoint.host
            return ModelUnavailable(message, where=where, retry_after=error.retry_after, limit_reason=limit_reason)
        variable = self._upstream.variable
        fixes = {
            401: f"set {variable} to a valid key, {RESTART}",
            402: "add credit or raise the spend limit of the account, then: perdure retry",
            403: "use a key of a workspace that may, or set another model",
            404: "set the name of a model that this key can use",
        }
        return self._refusal_error(error, fixes.get(status, "check the model and the agent of this step"))

    def _refusal_error(self, error: WireError, fix: str) -> ModelRefusesUs:
        """Return a ModelRefusesUs for this error that tells people what to do, `fix`."""
        where = f"{self._upstream.variable} in the worker's environment, sent to {self._upstream.endpoint.host}"
        return ModelRefusesUs(f"the model's API refuses ({error.status}): {error.message}", where=where, fix=fix)

    def _unavailable_error(self, message: str) -> ModelUnavailable:
        """Return a ModelUnavailable for the upstream, without secrets in its message."""
        message = redact_secrets(message, self._upstream.secrets)
        return ModelUnavailable(message, where=self._upstream.endpoint.host)

    async def _open_client(self) -> AsyncClient:
        """Return the HTTP client; the first call makes it, in a thread."""
        async with self._client_lock:
            if self._client is None:
                self._client = await in_thread(self._make_client)
            return self._client

    def _make_client(self) -> AsyncClient:
        """Make the HTTP client, which bounds each response and follows no redirect. Called in a thread: its
        certificates take a while to load."""
        import httpx2

        silence_s = self._upstream.silence_s
        return httpx2.AsyncClient(
            follow_redirects=False,
            timeout=httpx2.Timeout(silence_s, connect=MODEL_CONNECT_S),
            event_hooks={"response": [make_response_hook(silence_s)]},
        )


def _is_untrusted_certificate(error: BaseException | None) -> bool:
    """Return whether an error was caused by a certificate that is not trusted, anywhere in its chain of causes."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
