"""The model behind the Messages API: one question, one whole reply or one typed error."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure.adapters.agents.builtin.bounds import bounding
from perdure.adapters.agents.builtin.errors import Endpoint, translate, unavailable
from perdure.adapters.agents.builtin.model_request import ModelRequest, Reply, most_tokens, upper_bound
from perdure.adapters.agents.prices import price
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import BadInput
from perdure.models.ledger import Usage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message
    from anthropic.types import Usage as ApiUsage
    from anthropic.types.beta import BetaCompactionIterationUsage, BetaMessage, BetaUsage

MODEL_CONNECT_S = 10.0
MODEL_SILENCE_S = 120.0
"""Reaching the model API, and the longest it may send nothing: its pings come every few seconds."""

MODEL_REPLY_S = 3600.0
"""For one whole reply, however alive its stream looks: 128,000 tokens at 50 a second take 43 minutes."""


__all__ = ["Model", "ModelRequest", "Reply", "most_tokens", "upper_bound"]

_MISSES = ("model_changed", "system_changed", "tools_changed", "messages_changed")
"""Reasons that are ours to mend; the others say that the API cannot tell."""

API = "https://api.anthropic.com"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
BASE_URL = "ANTHROPIC_BASE_URL"
SILENCE = "PERDURE_MODEL_SILENCE_S"
WINDOW = "PERDURE_MODEL_WINDOW"


class Model:
    """Holds the key, in this process only.

    `variable` is the environment variable the key came from, for messages; `silence_s` how long the API may send
    nothing, `within_s` how long one reply may take, in seconds; `window`: tokens that prompt and reply may have, where
    that is not the model's own.
    `secrets` are the values to keep out of everything that is stored or shown.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        variable: str = KEYS[0],
        silence_s: float = MODEL_SILENCE_S,
        within_s: float = MODEL_REPLY_S,
        window: int | None = None,
    ) -> None:
        """BadInput when `base_url` is not an HTTP address."""
        self._key = api_key
        self._headers = dict(headers or {})
        self._silence_s, self._within_s = silence_s, within_s
        self.window = window
        self._client: AsyncAnthropic | None = None
        self._opening = asyncio.Lock()
        address = _address(base_url or API)
        password = urlsplit(address).password
        self.secrets = (api_key, *self._headers.values(), *([password] if password else []))
        self._endpoint = Endpoint(address, variable, self.secrets)

    @property
    def account(self) -> str:
        """Tells whose limits count: the key and where it is used. A secret."""
        return f"{self._endpoint.base_url}\n{self._key}"

    @property
    def diagnoses(self) -> bool:
        """The API itself, or one on this machine, is asked about its cache; a gateway may refuse a field it does not
        know."""
        host = urlsplit(self._endpoint.base_url).hostname or ""
        return host in (urlsplit(API).hostname, "127.0.0.1", "localhost", "::1")

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Model | None:
        """The model these variables name, or None without a key.

        Keys and headers are taken out of `environ`: what the worker starts must not inherit them. BadInput as in
        the constructor.
        """
        keys = {name: environ.pop(name, "").strip() for name in KEYS}
        headers = headers_in(environ.pop(HEADERS, ""))
        variable = next((name for name in KEYS if keys[name]), None)
        if variable is None:
            return None
        silence_s = positive(environ.get(SILENCE))
        base_url = environ.get(BASE_URL, "").strip() or None
        window = window_in(environ.get(WINDOW))
        return cls(keys[variable], base_url, headers=headers, variable=variable, silence_s=silence_s, window=window)

    async def ask(
        self, question: ModelRequest, *, on_first_event: Callable[[], None], on_text: Callable[[str], None]
    ) -> Reply:
        """Ask once, without retries.

        `on_first_event` is called when the reply has begun (from there on it may be billed), `on_text` with every
        piece of text. ModelUnavailable: ask again later; a reply that breaks off is one of these and is never
        returned in part. ModelRefusesUs: a person must act; NotSummedUp, one of these: the API does not sum
        conversations up, or not this one.
        """
        client = await self._open()
        body = await in_thread(question.body)
        messages = client.beta.messages if question.compact else client.messages
        begun = False
        try:
            async with asyncio.timeout(self._within_s), messages.stream(**body) as stream:
                async for event in stream:
                    if not begun:
                        begun = True
                        on_first_event()
                    if event.type == "text":
                        on_text(event.text)
                if not begun:
                    raise unavailable("the model API answered without a reply; is this a Messages API?", self._endpoint)
                return self._reply(await stream.get_final_message(), stream.request_id)
        except Exception as error:
            known = translate(error, question, self._endpoint)
            if known is None:
                raise
            raise known from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _open(self) -> AsyncAnthropic:
        async with self._opening:
            if self._client is None:
                self._client = await in_thread(self._connect)
            return self._client

    def _connect(self) -> AsyncAnthropic:
        """In a thread: the library takes more than a second to import, its certificates 45 ms to load."""
        import anthropic
        import httpx2

        load()

        return anthropic.AsyncAnthropic(
            api_key=self._key,
            base_url=self._endpoint.base_url,
            default_headers={"accept-encoding": "identity", **self._headers},
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(
                base_url=self._endpoint.base_url,
                follow_redirects=False,
                timeout=httpx2.Timeout(self._silence_s, connect=MODEL_CONNECT_S),
                event_hooks={"response": [bounding(self._silence_s)]},
            ),
        )

    def _reply(self, message: Message | BetaMessage, request_id: str | None) -> Reply:
        if message.stop_reason is None:
            raise unavailable("the model's reply was cut off before its end", self._endpoint)
        usage = usage_of(message.usage)
        content = [block.to_dict(mode="json") for block in message.content]
        detail = message.stop_details.to_dict(mode="json") if message.stop_details is not None else {}
        return Reply(
            message={"role": "assistant", "content": _encodable(content)},
            stop_reason=message.stop_reason,
            model=message.model,
            usage=usage.model_copy(update={"cost_usd": price(message.model, usage)}),
            request_id=request_id,
            detail=str(detail.get("category") or ""),
            id=message.id,
            missed=_missed(message),
        )


def usage_of(tokens: ApiUsage | BetaUsage | BetaCompactionIterationUsage) -> Usage:
    """Without its price. A summary's part is named beside a usage and not counted in it."""
    parts = [one for one in getattr(tokens, "iterations", None) or () if one.type == "compaction"]
    own = Usage(
        input_tokens=tokens.input_tokens,
        cache_read_tokens=tokens.cache_read_input_tokens or 0,
        cache_write_tokens=tokens.cache_creation_input_tokens or 0,
        cache_write_1h_tokens=tokens.cache_creation.ephemeral_1h_input_tokens if tokens.cache_creation else 0,
        output_tokens=tokens.output_tokens,
    )
    return sum(map(usage_of, parts), own)


def _missed(message: Message | BetaMessage) -> str:
    """The API's reason for a miss of its cache, such as `messages changed`; empty where it names none."""
    found = message.diagnostics.cache_miss_reason if message.diagnostics is not None else None
    known = found is not None and found.type in _MISSES
    return str(found.type).replace("_", " ") if found is not None and known else ""


def load() -> None:
    """Import the API library, and have it take a reply of nothing, which builds the types of requests and replies:
    seconds of a processor, once in a process. Not to be called from an event loop."""
    import anthropic
    import anyio.lowlevel
    import httpx2

    asyncio.run(anyio.lowlevel.checkpoint())  # what requests are sent with
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=_NOTHING)
    nobody = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(lambda _: answer))
    with anthropic.Anthropic(api_key="none", base_url=API, max_retries=0, http_client=nobody) as client:
        asking = client.messages.stream(model="none", max_tokens=1, messages=[{"role": "user", "content": "none"}])
        with asking as stream:
            stream.get_final_message()


def _event(**fields: object) -> str:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n"


_NO_TOKENS = {"input_tokens": 0, "output_tokens": 0}
_NO_MESSAGE = {"id": "", "type": "message", "role": "assistant", "model": "none", "content": [], "usage": _NO_TOKENS}
_TEXT, _CALL = {"type": "text", "text": ""}, {"type": "tool_use", "id": "", "name": "", "input": {}}
_END = {"stop_reason": "end_turn", "stop_sequence": None}
_NOTHING = "".join(
    (
        _event(type="message_start", message={**_NO_MESSAGE, "stop_reason": None, "stop_sequence": None}),
        _event(type="content_block_start", index=0, content_block=_TEXT),
        _event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "-"}),
        _event(type="content_block_stop", index=0),
        _event(type="content_block_start", index=1, content_block=_CALL),
        _event(type="content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "{}"}),
        _event(type="content_block_stop", index=1),
        _event(type="message_delta", delta=_END, usage={"output_tokens": 0}),
        _event(type="message_stop"),
    )
)
"""A reply with each kind of event, as the API streams it."""


def _encodable(content: list[dict[str, object]]) -> Any:
    """Half a surrogate pair is JSON but not UTF-8: kept, it would break every request after this one."""
    text = json.dumps(content, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace")) if not text.isascii() else content


def _address(base_url: str) -> str:
    url = urlsplit(base_url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadInput(
            "the model API's address is not a URL that can be called",
            where=BASE_URL,
            fix=f"unset it, or set it to something like {API}",
        )
    return base_url


def headers_in(text: str) -> dict[str, str]:
    """The headers of lines `name: value`."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def window_in(value: str | None) -> int | None:
    """Tokens of a variable; None without it. BadInput when it is no such number."""
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or not int(value):
        raise BadInput(f"{value!r} is not a number of tokens", where=WINDOW, fix="set it to 200000, or unset it")
    return int(value)


def positive(value: str | None, name: str = SILENCE, otherwise: float = MODEL_SILENCE_S) -> float:
    """Seconds in the words of the variable `name`; `otherwise` without it. BadInput when it is no such number."""
    if value is None:
        return otherwise
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadInput(
            f"{value!r} is not a number of seconds", where=name, fix=f"set it to {otherwise:.0f}, or unset it"
        )
    return seconds
