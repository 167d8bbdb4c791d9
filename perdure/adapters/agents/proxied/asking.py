"""One request to the upstream: its whole reply, or one typed error caused by that of the wire."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.adapters.agents.builtin.bounds import UnacceptableResponse, make_response_hook
from perdure.adapters.agents.builtin.errors import LIMITED, RESTART, TEMPORARY_STATUS, retry_after_seconds
from perdure.adapters.agents.builtin.model import MODEL_CONNECT_S
from perdure.adapters.agents.proxied.base import Cut, OnBegun, ProxiedReply, ProxiedRequest, Wire, WireError
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.agents.text import redact_secrets
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import ModelRefusesUs, ModelUnavailable, StepError
from perdure.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_SAID_CHARS = 500
_BAD = 502


class Asking:
    """Asks one upstream; the connections to it are kept. `aclose` ends them."""

    def __init__(self, upstream: Upstream, wire: Wire) -> None:
        self._upstream, self._wire = upstream, wire
        self._client: AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def ask(self, request: ProxiedRequest, headers: Mapping[str, str], on_begun: OnBegun) -> ProxiedReply:
        """Ask once. `headers`: those of the agent; only the wire's own go on.

        `on_begun` is called when a reply has begun. Raises ModelUnavailable or ModelRefusesUs; one that the
        API itself has sent is caused by its WireError.
        """
        import httpx2

        try:
            async with asyncio.timeout(self._upstream.within_s):
                return await self._asked(request, headers, on_begun)
        except WireError as error:
            raise self._typed(error) from error
        except Cut as error:
            raise self._unavailable(f"the model's reply was cut off: {error}") from error
        except UnacceptableResponse as error:
            if not error.final:
                raise self._unavailable(str(error)) from error
            fix = f"set the address of the model's API to the one that answers itself, {RESTART}"
            raise self._refused(WireError(_BAD, "", str(error)), fix) from error
        except TimeoutError as error:
            raise self._unavailable("the model's reply did not come to an end") from error
        except httpx2.TimeoutException as error:
            raise self._unavailable("the model's API went silent") from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if _not_trusted(error):
                fix = f"set SSL_CERT_FILE to the file with your company's certificates, {RESTART}"
                said = "the certificate of the model's API is not trusted"
                raise self._refused(WireError(_BAD, "", said), fix) from error
            said = one_line(str(error), 300) or type(error).__name__
            raise self._unavailable(f"the model's API could not be reached: {said}") from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _asked(self, request: ProxiedRequest, headers: Mapping[str, str], on_begun: OnBegun) -> ProxiedReply:
        client = await self._open()
        sent = {name: headers[name] for name in self._wire.headers if name in headers}
        sent |= {"content-type": "application/json", "accept-encoding": "identity", **self._upstream.credentials()}
        url = self._upstream.base_url.rstrip("/") + self._base_of(request.path)
        content = await in_thread(lambda: json.dumps(request.body, separators=(",", ":")).encode())
        async with client.stream("POST", url, content=content, headers=sent) as response:
            if response.status_code != 200:
                raise self._refusal(response, await response.aread())
            pieces: list[bytes] = []
            async for piece in response.aiter_raw():
                if not pieces:
                    on_begun()
                pieces.append(piece)
            events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if events != request.stream:
            raise Cut("it is not of the kind that was asked for")
        return await in_thread(self._read, request, events, b"".join(pieces))

    def _read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        """Shapes that nobody foresaw are no reply; nothing of them is kept."""
        try:
            return self._wire.read(request, events, body)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Cut(f"it is no reply of this wire ({type(error).__name__})") from error

    def _base_of(self, path: str) -> str:
        """Addresses of OpenAI's end in `/v1`, which agents' paths begin with; of the others only some people's do."""
        return path.removeprefix("/v1") if self._upstream.base_url.rstrip("/").endswith("/v1") else path

    def _refusal(self, response: Response, body: bytes) -> WireError:
        error = self._wire.refusal(response.status_code, body)
        error.retry_after = retry_after_seconds(response.headers)
        return error

    def _typed(self, error: WireError) -> StepError:
        """A refusal of the upstream; its words are redacted here, for people and for the agent."""
        error.said = redact_secrets(one_line(error.said, _SAID_CHARS), self._upstream.secrets)
        status, kind = error.status, error.kind
        limited = LIMITED.get(kind) or LIMITED.get(status) or ""
        if limited or status in TEMPORARY_STATUS or status >= 500 or status < 400:
            what = f"the model's API is not available now ({kind or f'status {status}'}): {error.said}"
            where = self._upstream.endpoint.host
            return ModelUnavailable(what, where=where, retry_after=error.retry_after, limit_reason=limited)
        variable = self._upstream.variable
        fixes = {
            401: f"set {variable} to a valid key, {RESTART}",
            402: "add credit or raise the spend limit of the account, then: perdure retry",
            403: "use a key of a workspace that may, or set another model",
            404: "set the name of a model that this key can use",
        }
        return self._refused(error, fixes.get(status, "check the model and the agent of this step"))

    def _refused(self, error: WireError, fix: str) -> ModelRefusesUs:
        where = f"{self._upstream.variable} in the worker's environment, sent to {self._upstream.endpoint.host}"
        return ModelRefusesUs(f"the model's API refuses ({error.status}): {error.said}", where=where, fix=fix)

    def _unavailable(self, what: str) -> ModelUnavailable:
        what = redact_secrets(what, self._upstream.secrets)
        return ModelUnavailable(what, where=self._upstream.endpoint.host)

    async def _open(self) -> AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await in_thread(self._connect)
            return self._client

    def _connect(self) -> AsyncClient:
        """In a thread: certificates take a while to load."""
        import httpx2

        silence_s = self._upstream.silence_s
        return httpx2.AsyncClient(
            follow_redirects=False,
            timeout=httpx2.Timeout(silence_s, connect=MODEL_CONNECT_S),
            event_hooks={"response": [make_response_hook(silence_s)]},
        )


def _not_trusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
