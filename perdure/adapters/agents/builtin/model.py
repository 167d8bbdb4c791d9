"""The client of the Messages API, for the built-in agent: one request, one whole reply or one typed error; and the
environment variables it is made from, with their parsing, which the proxy of other agents uses, too."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin.errors import (
    BASE_URL_VARIABLE,
    Endpoint,
    make_response_hook,
    translate_error,
    unavailable_error,
)
from perdure.adapters.agents.builtin.model_request import (
    COMPACTION,
    ModelRequest,
    Reply,
    max_cost_usd,
    max_total_tokens,
    readable_call,
)
from perdure.adapters.agents.message_builder import MessageBuilder, json_object, token_count
from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.system.http_client import client_options
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage
from perdure.models.errors import BadInput, ModelRefusesUs
from perdure.text import register_secrets

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import RawMessageStreamEvent

MODEL_CONNECT_S = 10.0
MODEL_SILENCE_S = 120.0
"""Seconds for reaching the model API, and the longest it may send nothing: its pings come every few seconds."""

MODEL_REPLY_S = 3600.0
"""The limit of one whole reply, however alive its stream looks: 128,000 tokens at 50 a second take 43 minutes."""


__all__ = ["Model", "ModelRequest", "Reply", "max_cost_usd", "max_total_tokens"]

_MISSES = ("model_changed", "system_changed", "tools_changed", "messages_changed")
"""The API's reasons for a cache miss that are ours to mend; the others say that the API cannot tell."""

API_URL = "https://api.anthropic.com"
KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
SILENCE_VARIABLE = "PERDURE_MODEL_SILENCE_S"
WINDOW_VARIABLE = "PERDURE_MODEL_WINDOW"
SCHEMA_VARIABLE = "PERDURE_MODEL_SCHEMA"


class Model:
    """A client of the Messages API. It holds the key, in this process only.

    variable   the environment variable the key came from, for messages
    silence_s  how long the API may send nothing, in seconds; within_s: how long one reply may take
    window     tokens that prompt and reply may have together, where that is not the model's own number
    asks_schema  the server does not hold a model to a schema: the prompt asks for it as well
    secrets    the values to keep out of everything that is stored or shown
    """

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        variable: str = KEY_VARIABLES[0],
        silence_s: float = MODEL_SILENCE_S,
        within_s: float = MODEL_REPLY_S,
        window: int | None = None,
        asks_schema: bool = False,
    ) -> None:
        """Raise BadInput when `base_url` is not an HTTP address; no connection is made yet."""
        self._key = api_key
        self._headers = dict(headers or {})
        self._silence_s, self._within_s = silence_s, within_s
        self.window, self.asks_schema = window, asks_schema
        self._client: AsyncAnthropic | None = None
        self._client_lock = asyncio.Lock()
        address = _check_base_url(base_url or API_URL)
        password = urlsplit(address).password
        self.secrets = (api_key, *self._headers.values(), *([password] if password else []))
        register_secrets(*self.secrets)
        self._endpoint = Endpoint(address, variable)

    @property
    def account(self) -> str:
        """Return whose limits count, as a text: the API's address and the key. It is a secret."""
        return f"{self._endpoint.base_url}\n{self._key}"

    @property
    def supports_diagnostics(self) -> bool:
        """Return whether the API may be asked why its cache missed: only the API itself or one on this machine, because
        a gateway may refuse a field it does not know."""
        host = urlsplit(self._endpoint.base_url).hostname or ""
        return host in (urlsplit(API_URL).hostname, "127.0.0.1", "localhost", "::1")

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Model | None:
        """Return the model that these variables name, or None without a key.

        Removes keys and headers from `environ`: what the worker starts must not inherit them. Raises BadInput for an
        address, a silence, a window or a use of schemas that cannot work.
        """
        keys = {name: environ.pop(name, "").strip() for name in KEY_VARIABLES}
        headers = parse_headers(environ.pop(HEADERS_VARIABLE, ""))
        variable = next((name for name in KEY_VARIABLES if keys[name]), None)
        if variable is None:
            return None
        silence_s = parse_seconds(environ.get(SILENCE_VARIABLE))
        base_url = environ.get(BASE_URL_VARIABLE, "").strip() or None
        window = parse_window(environ.get(WINDOW_VARIABLE))
        asks_schema = parse_schema_use(environ.get(SCHEMA_VARIABLE)) == "asked"
        return cls(
            keys[variable],
            base_url,
            headers=headers,
            variable=variable,
            silence_s=silence_s,
            window=window,
            asks_schema=asks_schema,
        )

    async def ask(
        self, request: ModelRequest, *, on_first_event: Callable[[], None], on_text: Callable[[str], None]
    ) -> Reply:
        """Send a request once, without retries, and return the whole reply.

        `on_first_event` is called when the reply has begun (from there on it may be billed), `on_text` with every piece
        of text. Raises ModelUnavailable where the request can be sent again later: a reply that breaks off is one of
        these and is never returned in part. Raises ModelRefusesUs where a person must act; SummaryRefused, one of
        these, where the API does not sum conversations up, or not this one. An error that is a mistake of our own code
        is raised as it is.
        """
        client = await self._open_client()
        body = await in_thread(request.body)
        has_begun = False
        try:
            async with asyncio.timeout(self._within_s), await _open_stream(client, body, request.compact) as stream:
                used_ids = {
                    block["id"] for message in request.messages for block in message["content"] if "id" in block
                }
                builder = MessageBuilder(lambda block, text: readable_call(block, text, used_ids))
                async for event in _read_events(stream):
                    if not has_begun:
                        has_begun = True
                        on_first_event()
                    if text := builder.add(event):
                        on_text(text)
                if builder.message is None:
                    raise unavailable_error(
                        "the model API answered without a reply; is this a Messages API?", self._endpoint
                    )
                request_id = stream.response.headers.get("request-id")
                return self._to_reply(request, builder, request_id)
        except Exception as error:
            step_error = translate_error(error, request, self._endpoint)
            if step_error is None:
                raise
            raise step_error from error

    async def aclose(self) -> None:
        """Close the HTTP client where it was opened."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _open_client(self) -> AsyncAnthropic:
        """Return the library's client; it is made at the first call, in a thread."""
        async with self._client_lock:
            if self._client is None:
                self._client = await in_thread(self._make_client)
            return self._client

    def _make_client(self) -> AsyncAnthropic:
        """Make the library's client: without retries and redirects, with bounded responses. Called in a thread, because
        the library takes more than a second to import, its certificates 45 ms to load. Raises ModelRefusesUs where the
        environment names certificates or a proxy that cannot be used."""
        import anthropic
        import httpx2

        try:
            options = client_options(self._endpoint.base_url)
        except BadInput as error:  # nothing was asked, and nothing would be another time
            raise ModelRefusesUs(error.what, where=error.where, fix=error.fix) from None
        load_api_library()

        return anthropic.AsyncAnthropic(
            api_key=self._key,
            base_url=self._endpoint.base_url,
            default_headers={"accept-encoding": "identity", **self._headers},
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(
                base_url=self._endpoint.base_url,
                follow_redirects=False,
                timeout=httpx2.Timeout(self._silence_s, connect=MODEL_CONNECT_S),
                **options,
                event_hooks={"response": [make_response_hook(self._silence_s)]},
            ),
        )

    def _to_reply(self, request: ModelRequest, builder: MessageBuilder, request_id: str | None) -> Reply:
        """Convert the message that came to a Reply, with its price (None where it is not known) and the reason for a
        cache miss; unpaired surrogates are replaced. A reply as long as it may be was cut off, whatever its stop reason
        says. Raises ModelUnavailable for a message without a stop reason or its stream's end: it was cut off."""
        message, content = json_object(builder.message), builder.content()
        calls = any(block.get("type") == "tool_use" for block in content)
        stop_reason = message.get("stop_reason") or (("tool_use" if calls else "end_turn") if builder.has_ended else "")
        if not stop_reason:
            raise unavailable_error("the model's reply was cut off before its end", self._endpoint)
        stop_reason = _STOP_REASONS.get(str(stop_reason), stop_reason)
        usage = usage_of(json_object(message.get("usage")))
        if usage.output_tokens >= request.max_tokens and stop_reason in ("end_turn", "stop_sequence", "tool_use"):
            stop_reason = "max_tokens"
        model = str(message.get("model") or request.model)
        return Reply(
            message={"role": "assistant", "content": _without_surrogates(content)},
            stop_reason=str(stop_reason),
            model=model,
            usage=usage.model_copy(update={"cost_usd": usage_cost(model, usage) if usage.tokens else None}),
            request_id=request_id,
            detail=str(json_object(message.get("stop_details")).get("category") or ""),
            id=str(message.get("id") or ""),
            missed=_cache_miss_reason(message),
        )


_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Words of another API that servers in front of small models pass on."""


def _open_stream(client: AsyncAnthropic, body: bytes, compact: bool) -> Awaitable[AsyncStream[RawMessageStreamEvent]]:
    """Send a request's JSON as it is: the library would walk through the whole conversation to write it once more.
    `compact`: it asks for a summary, which is a beta."""
    import anthropic
    from anthropic.types import Message, RawMessageStreamEvent

    return client.post(
        "/v1/messages?beta=true" if compact else "/v1/messages",
        content=body,
        options={"headers": {"anthropic-beta": COMPACTION}} if compact else {},
        cast_to=Message,
        stream=True,
        stream_cls=anthropic.AsyncStream[RawMessageStreamEvent],
    )


async def _read_events(stream: AsyncStream[RawMessageStreamEvent]) -> AsyncIterator[Json]:
    """Yield the events of a reply; of one that came whole, as JSON, although a stream was requested, those that it
    would have come in. A JSON value that is no message has none."""
    if "json" not in stream.response.headers.get("content-type", ""):
        async for event in stream:
            yield event.to_dict(warnings=False)
        return
    message = json_object(json.loads(await stream.response.aread()))
    if isinstance(message.get("content"), list):
        yield {"type": "message_start", "message": message}
        for index, block in enumerate(message["content"]):
            yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "message_stop"}


def usage_of(tokens: Json) -> Usage:
    """Return the tokens of a reply from its field `usage`, without their price; what is no number counts as 0. Those of
    a summary, which the API names beside its usage, are added."""
    iterations = tokens.get("iterations")
    summaries = [json_object(iteration) for iteration in (iterations if isinstance(iterations, list) else ())]
    usage = Usage(
        input_tokens=token_count(tokens.get("input_tokens")),
        cache_read_tokens=token_count(tokens.get("cache_read_input_tokens")),
        cache_write_tokens=token_count(tokens.get("cache_creation_input_tokens")),
        cache_write_1h_tokens=token_count(json_object(tokens.get("cache_creation")).get("ephemeral_1h_input_tokens")),
        output_tokens=token_count(tokens.get("output_tokens")),
    )
    return sum((usage_of(iteration) for iteration in summaries if iteration.get("type") == "compaction"), usage)


def _cache_miss_reason(message: Json) -> str:
    """Return the API's reason for a miss of its cache, such as `messages changed`; empty where it names none that is
    ours to mend."""
    reason = str(json_object(json_object(message.get("diagnostics")).get("cache_miss_reason")).get("type"))
    return reason.replace("_", " ") if reason in _MISSES else ""


def load_api_library() -> None:
    """Import the API's library, and let it parse an empty reply, which builds the types of replies: seconds of a
    processor, once in a process. Nothing is sent. Not to be called from an event loop."""
    import anthropic
    import anyio.lowlevel
    import httpx2

    asyncio.run(anyio.lowlevel.checkpoint())  # loads the backend that requests are sent with
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=_EMPTY_REPLY)
    http_client = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(lambda _: response))
    body: Json = {"model": "none", "max_tokens": 1, "messages": [{"role": "user", "content": "none"}]}
    logs = [logging.getLogger(name) for name in ("httpx2", "anthropic._base_client")]
    for log in logs:  # they would tell of a request to a host that is not called
        log.disabled = True
    try:
        with anthropic.Anthropic(api_key="none", base_url=API_URL, max_retries=0, http_client=http_client) as client:
            for event in client.messages.create(**body, stream=True):
                event.to_dict(warnings=False)
    finally:
        for log in logs:
            log.disabled = False


def _sse_event(**fields: object) -> str:
    """Return one server-sent event with these fields; `type` is its name."""
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n"


_NO_TOKENS = {"input_tokens": 0, "output_tokens": 0}
_EMPTY_MESSAGE = {"id": "", "type": "message", "role": "assistant", "model": "none", "content": [], "usage": _NO_TOKENS}
_TEXT, _CALL = {"type": "text", "text": ""}, {"type": "tool_use", "id": "", "name": "", "input": {}}
_END = {"stop_reason": "end_turn", "stop_sequence": None}
_EMPTY_REPLY = "".join(
    (
        _sse_event(type="message_start", message={**_EMPTY_MESSAGE, "stop_reason": None, "stop_sequence": None}),
        _sse_event(type="content_block_start", index=0, content_block=_TEXT),
        _sse_event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "-"}),
        _sse_event(type="content_block_stop", index=0),
        _sse_event(type="content_block_start", index=1, content_block=_CALL),
        _sse_event(type="content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "{}"}),
        _sse_event(type="content_block_stop", index=1),
        _sse_event(type="message_delta", delta=_END, usage={"output_tokens": 0}),
        _sse_event(type="message_stop"),
    )
)
"""A reply with each kind of event, as the API streams it."""


def _without_surrogates(content: list[dict[str, object]]) -> Any:
    """Return blocks with unpaired surrogates replaced: they are JSON but not UTF-8, and kept they would break every
    request after this one."""
    text = json.dumps(content, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace")) if not text.isascii() else content


def _check_base_url(base_url: str) -> str:
    """Return the address, or raise BadInput where it is not an HTTP URL with a host."""
    url = urlsplit(base_url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadInput(
            "the model API's address is not a URL that can be called",
            where=BASE_URL_VARIABLE,
            fix=f"unset it, or set it to something like {API_URL}",
        )
    return base_url


def parse_headers(text: str) -> dict[str, str]:
    """Parse lines `name: value` into headers; other lines are left out."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_window(value: str | None) -> int | None:
    """Parse the value of the window's variable, a number of tokens; return None where it is not set.

    Raises BadInput for anything but a positive number, an empty text too.
    """
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or not int(value):
        raise BadInput(
            f"{value!r} is not a number of tokens", where=WINDOW_VARIABLE, fix="set it to 200000, or unset it"
        )
    return int(value)


def parse_schema_use(value: str | None) -> str:
    """Return whether a server holds a model to a JSON schema (`enforced`, also without a value) or is to be `asked` for
    it in the prompt as well. Raises BadInput for anything else."""
    if value not in (None, "asked", "enforced"):
        raise BadInput(
            f"{value!r} is no way to ask for a schema", where=SCHEMA_VARIABLE, fix="set it to asked, or unset it"
        )
    return value or "enforced"


def parse_seconds(value: str | None, name: str = SILENCE_VARIABLE, default: float = MODEL_SILENCE_S) -> float:
    """Parse the value of the environment variable `name` as seconds; `default` without a value. Raises BadInput for
    anything but a positive number."""
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadInput(f"{value!r} is not a number of seconds", where=name, fix=f"set it to {default:.0f}, or unset it")
    return seconds
