"""The data and protocols of the proxy: an agent's request, its whole reply, the wire (the model API that the agent
speaks) that parses both, and the ledger, which pays for replies. What they do is in the modules beside."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.adapters.agents.prices import BYTES_PER_TOKEN, max_cost
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage
from perdure.text import redact_known

REQUEST_BYTES = 32 * 1024**2
"""The most bytes of an agent's request: the Messages API itself takes no more."""

REPLY_TOKENS = 128_000
"""The longest reply in tokens, for requests that set no limit: the most that any of the models here writes at once."""

OnBegun = Callable[[], None]
"""A function that is called when the reply has begun: from there on it may be billed."""


class WireError(Exception):
    """An error answer of a model's API, or of the proxy in its place, with what the wire says about it, without the
    secrets that this process knows.

    status       HTTP status
    kind         the error's type, as the wire names it; empty: the type that the wire has for that status
    message      for the agent and whoever reads its output
    retry_after  seconds after which the agent shall try again; None: not said
    """

    def __init__(self, status: int, kind: str, message: str, *, retry_after: float | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        self.kind, self.message = redact_known(kind), redact_known(message)
        super().__init__(self.message)


@dataclass(frozen=True)
class ProxiedRequest:
    """A request of an agent, parsed by its wire.

    path          below the upstream's base address, with the query it is sent with
    model         as the agent names it
    body          what is sent on: the part of the agent's body that is known and may be sent
    key           SHA-256 of the canonical body without the fields that are ids: equal for a request that is sent again
    upper_usd     the most that it and its reply can cost, in US dollars; None when that is not known
    upper_tokens  the most tokens both can have together
    messages      the conversation in the shape of our transcripts (Anthropic's): user and assistant in turns
    turn          whether it goes on with the agent's work, so that a turn begins: it offers tools. Other requests
    (titles,
                  summaries, counting tokens) are beside the conversation
    stream        whether the reply is requested as server-sent events
    price_known   whether the price table holds for it: no option of it changes the price
    """

    wire: str
    path: str
    model: str
    body: Json
    key: str
    upper_usd: float | None
    upper_tokens: int
    messages: list[Json]
    turn: bool = True
    stream: bool = False
    price_known: bool = True


@dataclass(frozen=True)
class ProxiedReply:
    """A whole reply: the bytes that the agent gets, and what was parsed of them.

    message      {"role": "assistant", "content": [blocks]} in the shape of our transcripts
    stop_reason  end_turn, tool_use, max_tokens, refusal or another word of the wire; None beside a conversation
    """

    status: int
    content_type: str
    body: bytes
    usage: Usage
    message: Json
    stop_reason: str | None

    def to_json(self) -> Json:
        """Return the reply as a JSON object to be stored; `from_json` gives it back, byte for byte."""
        encoded = {"body": base64.b64encode(self.body).decode(), "usage": self.usage.model_dump(mode="json")}
        return {**vars(self), **encoded}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ProxiedReply:
        """Parse a reply that `to_json` made. Raises ValueError, KeyError or TypeError for anything else."""
        return cls(
            status=stored["status"],
            content_type=stored["content_type"],
            body=base64.b64decode(stored["body"], validate=True),
            usage=Usage.model_validate(stored["usage"]),
            message=stored["message"],
            stop_reason=stored["stop_reason"],
        )


UpstreamCall = Callable[[OnBegun], Awaitable[ProxiedReply]]
"""A function that sends a request to the upstream once and returns the reply."""


class Ledger(Protocol):
    """The place where a request waits for its turn, where its reply is looked up among the stored ones, and where it is
    paid."""

    async def reply(self, request: ProxiedRequest, ask: UpstreamCall) -> ProxiedReply:
        """Return the reply for the agent: a stored one, or that of `ask`, which is stored and settled before it is
        returned.

        `ask` sends the request to the upstream once. It raises ModelUnavailable (with a `limit_reason`: for everybody
        with this key) or ModelRefusesUs; an error that the API itself has sent is their cause, as a WireError. Before
        it has called its `OnBegun`, nothing was billed.

        The proxy turns what this raises into the agent's answer: these two into the API's error, any other PerdureError
        (a budget, the end of the step) into one that the agent does not try again after, a WireError into itself.

        It is cancelled when the agent goes away before `ask` was called; afterwards the reply, which may be billed, is
        fetched and stored although nobody waits for it any more. Two equal requests at one time are one call.
        """
        ...


@dataclass(frozen=True)
class Route:
    """A path of the API that the wire serves.

    path    as it was requested; query: the part behind its `?`
    model   the one that the path names; empty: the body names it
    stream  whether the path requests server-sent events
    free    whether it costs nothing: it only counts tokens
    """

    path: str
    query: str = ""
    model: str = ""
    stream: bool = False
    free: bool = False

    @property
    def target(self) -> str:
        """Return the path, with its query where it has one."""
        return f"{self.path}?{self.query}" if self.query else self.path


class ProxiedWire(Protocol):
    """The API in whose shape an agent speaks to a model: it parses requests and replies, and writes errors."""

    @property
    def name(self) -> str: ...

    @property
    def forwarded_headers(self) -> frozenset[str]:
        """Return the names, in small letters, of the agent's headers that are sent on."""
        ...

    @property
    def ping(self) -> bytes:
        """Return an event that the wire's clients take for a sign of life and nothing else; empty: they wait without
        one."""
        ...

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route for a path and its query; None for every path but the model's."""
        ...

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse the body of an agent's request, and leave out what the proxy does not send on.

        Raises WireError when the request is not of this wire, or asks for what the proxy does not let through.
        """
        ...

    def parse_reply(self, request: ProxiedRequest, is_stream: bool, body: bytes) -> ProxiedReply:
        """Parse the body of an answer with status 200, a stream of events where `is_stream`.

        Raises IncompleteReply when it is not whole, and WireError when it says that the request failed.
        """
        ...

    def parse_error(self, status: int, body: bytes) -> WireError:
        """Parse the body of an answer with another status than 200 as an error."""
        ...

    def error_body(self, error: WireError) -> Json:
        """Return the JSON body that the wire's clients read as this error."""
        ...


class IncompleteReply(Exception):
    """A reply that is not whole, or no reply at all: it is neither stored nor acted on."""


@dataclass(frozen=True)
class RequestBounds:
    """The most that a request and its reply can cost.

    usd          in US dollars; None: not known
    tokens       of both together
    price_known  whether the price table holds for the request
    """

    usd: float | None
    tokens: int
    price_known: bool = True

    @classmethod
    def for_request(
        cls,
        route: Route,
        model: str,
        body: Json,
        max_tokens: int,
        *,
        one_hour_cache: bool = False,
        price_known: bool = True,
    ) -> RequestBounds:
        """Return the bounds of a request, from the size of its body and the longest reply; a free route costs nothing.

        max_tokens      tokens of the longest reply
        one_hour_cache  whether what is cached is kept for an hour, which costs more
        price_known     whether the price table holds for the request; else `usd` is None
        """
        if route.free:
            return cls(0.0, 0, price_known)
        size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        usd = max_cost(model, size, max_tokens, hour=one_hour_cache) if price_known else None
        return cls(usd, -(-size // BYTES_PER_TOKEN) + max_tokens, price_known)
