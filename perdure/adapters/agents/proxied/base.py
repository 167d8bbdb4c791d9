"""A request that came from an agent and its whole reply, as data; a wire, which understands both; the ledger."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.adapters.agents.prices import BYTES_PER_TOKEN, max_cost
from perdure.models.ledger import Usage

REQUEST_BYTES = 32 * 1024**2
"""Of an agent's request: the Messages API itself takes no more."""

REPLY_TOKENS = 128_000
"""The longest reply, for requests that set no limit: the most that any of the models here writes at once."""

Json = dict[str, Any]
OnBegun = Callable[[], None]
"""Called when the reply has begun: from there on it may be billed."""


class WireError(Exception):
    """An answer that is no reply, in the words of the wire.

    status       HTTP status
    kind         of the error, as the wire names it; empty: what the wire says with that status
    said         for the agent and whoever reads its output; without secrets
    retry_after  seconds, when the agent shall come again
    """

    def __init__(self, status: int, kind: str, said: str, *, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.status, self.kind, self.said, self.retry_after = status, kind, said, retry_after


@dataclass(frozen=True)
class ProxiedRequest:
    """One request of an agent, understood by its wire.

    path          below the upstream's base address, with the query it is sent with
    model         as the agent names it
    body          what is sent on: of the agent's, all that was understood and may be sent
    key           sha256 of the canonical body without the fields that are ids: equal for a request that comes again
    upper_usd     the most that it and its reply can cost; None when that is not known
    upper_tokens  the most tokens both can have together
    messages      the conversation in the shape of our transcripts (Anthropic's): user and assistant in turns
    turn          it goes on with the agent's work, so a turn begins: it offers tools. Others (titles, summaries,
                  counting tokens) are beside the conversation
    stream        the reply is wanted as events
    price_known   the price table holds for it: no option of it changes the price
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
    """A whole reply: as the bytes the agent gets, and understood.

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
        """As it is kept; `from_json` gives the reply back, byte for byte."""
        kept = {"body": base64.b64encode(self.body).decode(), "usage": self.usage.model_dump(mode="json")}
        return {**vars(self), **kept}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> ProxiedReply:
        """ValueError, KeyError or TypeError when this is no reply that was kept."""
        return cls(
            status=kept["status"],
            content_type=kept["content_type"],
            body=base64.b64decode(kept["body"], validate=True),
            usage=Usage.model_validate(kept["usage"]),
            message=kept["message"],
            stop_reason=kept["stop_reason"],
        )


Ask = Callable[[OnBegun], Awaitable[ProxiedReply]]
"""Asks the upstream once."""


class Ledger(Protocol):
    """The place where each request waits for its turn, is looked for among the replies that were kept, and paid."""

    async def reply(self, request: ProxiedRequest, ask: Ask) -> ProxiedReply:
        """The reply for the agent: a kept one, or that of `ask`, kept and settled before it is returned.

        `ask` asks the upstream once. It raises ModelUnavailable (`limited`: for everybody with this key) or
        ModelRefusesUs; one that the API itself has sent is caused by its WireError. Before `OnBegun` was called nothing
        was billed. Raising these answers the agent with the API's error, any other PerdureError (a budget, an end of
        the step) with one that it does not try again after; a WireError says all of it itself.

        It is cancelled when the agent goes away before `ask` was called; afterwards the reply, which may be billed, is
        taken and kept although nobody waits for it any more. Two equal requests at one time are one call.
        """
        ...


@dataclass(frozen=True)
class Route:
    """A path that the wire serves. `model`: that of the path, where it is there; `free`: it costs nothing."""

    path: str
    query: str = ""
    model: str = ""
    stream: bool = False
    free: bool = False

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


class Wire(Protocol):
    """The shape in which an agent speaks to a model."""

    @property
    def name(self) -> str: ...

    @property
    def headers(self) -> frozenset[str]:
        """The names, in small letters, of the agent's headers that are sent on."""
        ...

    @property
    def ping(self) -> bytes:
        """An event that its clients take for a sign of life and nothing else; empty: they wait without one."""
        ...

    def route(self, path: str, query: str) -> Route | None:
        """None for every path but the model's."""
        ...

    def understand(self, route: Route, body: Json) -> ProxiedRequest:
        """WireError when the request is not of this wire, or asks for what the proxy does not let through."""
        ...

    def read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        """The reply in the bytes of a 200; `events`: they are a stream. Cut when they are not whole, WireError when
        they say that it failed."""
        ...

    def refusal(self, status: int, body: bytes) -> WireError:
        """The error in another answer's bytes."""
        ...

    def error(self, error: WireError) -> Json:
        """The body that the wire's clients understand as this error."""
        ...


class Cut(Exception):
    """A reply that is not whole, or none at all: it is neither kept nor acted on."""


@dataclass(frozen=True)
class Bounds:
    """The most a request can cost, and whether the price table holds for it."""

    usd: float | None
    tokens: int
    known: bool = True

    @classmethod
    def of(cls, route: Route, model: str, body: Json, most: int, *, hour: bool = False, known: bool = True) -> Bounds:
        """`most`: tokens of the longest reply; `hour`: what is cached is kept for an hour."""
        if route.free:
            return cls(0.0, 0, known)
        size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        usd = max_cost(model, size, most, hour=hour) if known else None
        return cls(usd, -(-size // BYTES_PER_TOKEN) + most, known)
