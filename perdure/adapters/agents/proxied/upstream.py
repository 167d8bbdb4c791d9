"""The model's API behind the proxy: its address and its key, read from the environment and kept in this process, and
its client: one request, and its whole reply or one typed error, whose cause is the API's own error. The worker's host
reads the variables, the proxy uses the client."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin import model as builtin
from perdure.adapters.agents.builtin.errors import (
    BASE_URL_VARIABLE,
    LIMITED,
    RESTART,
    TEMPORARY_STATUS,
    Endpoint,
    UnacceptableResponse,
    make_response_hook,
    retry_after_seconds,
)
from perdure.adapters.agents.builtin.model import MODEL_CONNECT_S, MODEL_REPLY_S, MODEL_SILENCE_S
from perdure.adapters.agents.proxied.base import (
    IncompleteReply,
    OnBegun,
    ProxiedReply,
    ProxiedRequest,
    ProxiedWire,
    WireError,
)
from perdure.adapters.system.http_client import client_options
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import BadInput, ModelRefusesUs, ModelUnavailable, StepError
from perdure.text import one_line, redact_known, register_secrets

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response


ANTHROPIC, RESPONSES, CHAT, GEMINI = "anthropic", "openai-responses", "openai-chat", "gemini"


@dataclass(frozen=True)
class _WireVariables:
    """The environment variables of an upstream.

    key_headers       the variable of each key that may be set → the header it is sent in
    address_variable  the variable of its address
    default_address   used where that is not set
    """

    key_headers: Mapping[str, str]
    address_variable: str
    default_address: str


_BEARER = "authorization"
_ANTHROPIC = _WireVariables(
    dict(zip(builtin.KEY_VARIABLES, ("x-api-key", _BEARER), strict=True)), BASE_URL_VARIABLE, builtin.API_URL
)
_OPENAI = _WireVariables({"OPENAI_API_KEY": _BEARER}, "OPENAI_BASE_URL", "https://api.openai.com/v1")
_GEMINI = _WireVariables(
    {"GEMINI_API_KEY": "x-goog-api-key"}, "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"
)
WIRE_VARIABLES = {ANTHROPIC: _ANTHROPIC, RESPONSES: _OPENAI, CHAT: _OPENAI, GEMINI: _GEMINI}
"""By wire: the variables that a worker needs for an agent of that wire; people are shown them, too."""


@dataclass(frozen=True)
class Upstream:
    """The address to which requests of one wire go, and the key they carry.

    variable   the environment variable the key came from, for messages
    header     the one that carries the key
    headers    further headers, as secret as the key
    silence_s  the longest time, in seconds, for which the API may send nothing
    within_s   the longest time, in seconds, that one reply may take
    """

    wire: str
    base_url: str
    key: str = field(repr=False)
    variable: str
    header: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    silence_s: float = MODEL_SILENCE_S
    within_s: float = MODEL_REPLY_S

    def __post_init__(self) -> None:
        """Raise BadInput for an address that is no http(s) URL with a host, or has a query, and for a silence that is
        not positive."""
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            raise BadInput(
                "the model API's address is not a URL that can be called",
                where=WIRE_VARIABLES[self.wire].address_variable,
                fix=f"unset it, or set it to something like {WIRE_VARIABLES[self.wire].default_address}",
            )
        if not 0 < self.silence_s < math.inf:
            raise BadInput(f"{self.silence_s!r} is not a number of seconds", where=builtin.SILENCE_VARIABLE)
        register_secrets(*self.secrets)

    @classmethod
    def anthropic(cls, base_url: str, key: str) -> Upstream:
        """Return an upstream that speaks Anthropic Messages, for tests and tools. Raises BadInput for an address that
        is no http(s) URL."""
        return cls(
            ANTHROPIC,
            base_url,
            key,
            variable=builtin.KEY_VARIABLES[0],
            header=_ANTHROPIC.key_headers[builtin.KEY_VARIABLES[0]],
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values to keep out of everything that is stored or shown: key, further headers, the address's
        password."""
        password = urlsplit(self.base_url).password
        return (self.key, *self.headers.values(), *([password] if password else []))

    @property
    def account(self) -> str:
        """Return whose limits count, as a text: the address and the key, as the built-in agent's model does. It is a
        secret."""
        return f"{self.base_url}\n{self.key}"

    @property
    def endpoint(self) -> Endpoint:
        """Return the address with the variable of its key, as errors of requests are told with it."""
        return Endpoint(self.base_url, self.variable)

    def credentials(self) -> dict[str, str]:
        """Return the headers that carry the key, and the further ones."""
        value = f"Bearer {self.key}" if self.header == _BEARER else self.key
        return {**self.headers, self.header: value}


def upstreams_from_environment(environ: MutableMapping[str, str]) -> dict[str, Upstream]:
    """Return the upstreams that these variables name, by wire; a wire without a key has none.

    Removes keys and further headers from `environ`: what the worker starts must not inherit them. Raises BadInput for
    an address or a silence that cannot work.
    """
    names = {name for variables in WIRE_VARIABLES.values() for name in variables.key_headers}
    keys = {name: environ.pop(name, "").strip() for name in names}
    extra_headers = builtin.parse_headers(environ.pop(builtin.HEADERS_VARIABLE, ""))
    silence_s = builtin.parse_seconds(environ.get(builtin.SILENCE_VARIABLE))
    upstreams_by_wire = {}
    for wire, variables in WIRE_VARIABLES.items():
        variable = next((name for name in variables.key_headers if keys[name]), None)
        if variable is not None:
            upstreams_by_wire[wire] = Upstream(
                wire,
                environ.get(variables.address_variable, "").strip() or variables.default_address,
                keys[variable],
                variable=variable,
                header=variables.key_headers[variable],
                headers=extra_headers if wire == ANTHROPIC else {},
                silence_s=silence_s,
            )
    return upstreams_by_wire


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
        """Send a request by POST, once, and return the parsed reply when all of it has come.

        Of `headers` only those that the wire forwards are sent, with the upstream's key; `on_begun` is called when the
        first bytes of the reply come. Raises WireError for any status but 200 and for an error inside a reply,
        IncompleteReply for a whole reply that is not of the kind requested (events or JSON) or that the wire cannot
        parse, and what httpx2 raises where the connection fails or breaks off.
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
        """Parse the bytes of a reply by the wire, without the secrets that this process knows: some servers repeat what
        they were sent. Raises IncompleteReply for one that is not whole or of an unknown shape, and WireError when it
        says that the request failed."""
        try:
            return self._wire.parse_reply(request, is_stream, redact_known(body.decode("latin-1")).encode("latin-1"))
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

        The WireError's own message is cut to one line: people and the agent read it.
        """
        error.message = one_line(error.message, _MESSAGE_CHARS)
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
        """Return a ModelUnavailable for the upstream."""
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
        try:
            options = client_options(self._upstream.base_url)
        except BadInput as error:
            raise ModelRefusesUs(error.what, where=error.where, fix=error.fix) from None
        return httpx2.AsyncClient(
            follow_redirects=False,
            timeout=httpx2.Timeout(silence_s, connect=MODEL_CONNECT_S),
            **options,
            event_hooks={"response": [make_response_hook(silence_s)]},
        )


def _is_untrusted_certificate(error: BaseException | None) -> bool:
    """Return whether an error was caused by a certificate that is not trusted, anywhere in its chain of causes."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
