"""The record of a performance: the calls, what they cost, whether conversations only ever grew."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perdure.rehearsal.wire import Request, canonical

REHEARSAL_CALLS_KEPT = 1000
REHEARSAL_BODIES_KEPT = 100
"""Calls a rehearsal keeps for tests to look at, and how many with their request: a long one has megabytes."""


INPUT_KINDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""Of a usage; together the whole input."""


@dataclass
class Call:
    """One request to POST /v1/messages.

    outcome  `reply`, the name of the fault that was given, or `refused`: a rule of the API, or no line that matches
    body     the request; {} for all but the latest hundred
    line     which line of the screenplay answered, counted from 1
    message  of the error, when the answer was one
    dropped  the client went away before the whole answer was sent
    ended    nothing more will be sent
    began    when it came, over when nothing more was sent: time.monotonic
    """

    number: int
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    step: str | None = None
    turn: int = 0
    line: int | None = None
    outcome: str = "reply"
    status: int = 200
    message: str = ""
    usage: dict[str, Any] | None = None
    dropped: bool = False
    ended: bool = False
    began: float = field(default_factory=time.monotonic)
    over: float = 0.0


def chain(request: Request) -> list[str]:
    """One digest a message, each of everything up to it: model, tools, system, messages, without cache marks."""
    digest = hashlib.sha256(request.model.encode())
    for part in (*request.tools, *request.system):
        digest.update(canonical(part).encode())
    links = []
    for message in request.messages:
        digest.update(f"\n{message.role}".encode())
        for block in message.content:
            digest.update(canonical(block).encode())
        links.append(digest.hexdigest())
    return links


@dataclass(frozen=True)
class _Asked:
    """The parts of an answered request that a later one is compared with."""

    model: str
    system: str
    tools: str

    @classmethod
    def of(cls, request: Request) -> _Asked:
        return cls(request.model, "".join(map(canonical, request.system)), "".join(map(canonical, request.tools)))


class Record:
    """Counts for the report; `calls` keeps the latest ones whole."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.prefix_breaks = 0
        self._count = 0
        self._outcomes: Counter[str] = Counter()
        self._usage: Counter[str] = Counter()
        self._openings: set[str] = set()
        self._seen: set[str] = set()
        self._answered: set[str] = set()
        self._repeated = 0
        self._asked: dict[str, _Asked] = {}
        self._misses: Counter[str] = Counter()

    def new_call(self) -> Call:
        self._count += 1
        self.calls.append(Call(self._count))
        del self.calls[:-REHEARSAL_CALLS_KEPT]
        if len(self.calls) > REHEARSAL_BODIES_KEPT:
            self.calls[-1 - REHEARSAL_BODIES_KEPT].body = {}
        return self.calls[-1]

    def note_prefix(self, request: Request, links: list[str]) -> None:
        """Count a request that neither repeats nor extends what was sent before in its conversation.

        A conversation is its system prompt and first user message. Sending an older request again, and going on from
        there in another way, is what a crash or a rewind looks like, and legal.
        """
        opening = hashlib.sha256("\n".join(map(canonical, (*request.system, request.messages[0]))).encode()).hexdigest()
        known = opening in self._openings
        grows = links[-1] in self._seen or (len(links) > 2 and links[-3] in self._seen)
        if known and not grows:
            self.prefix_breaks += 1
        self._openings.add(opening)
        self._seen.add(links[-1])

    def note_reply(self, digest: str, usage: dict[str, Any]) -> None:
        """A reply is begun, and paid for however it ends."""
        self._repeated += digest in self._answered
        self._usage.update({kind: usage[kind] for kind in (*INPUT_KINDS, "output_tokens")})

    def diagnosis(self, request: Request, links: list[str]) -> dict[str, Any] | None:
        """The API's word on why its cache cannot have what was sent with the reply that `diagnostics` names; None where
        it can. Message ids are made of the first 24 digits of a conversation's digest."""
        previous = request.diagnostics.previous_message_id if request.diagnostics else None
        now = self._asked[f"msg_{links[-1][:24]}"] = _Asked.of(request)
        while len(self._asked) > REHEARSAL_CALLS_KEPT:
            del self._asked[next(iter(self._asked))]
        if previous is None or any(previous == f"msg_{link[:24]}" for link in links):
            return None
        was = self._asked.get(previous)
        if was is None:
            reason = "previous_message_not_found"
        else:
            parts = ("model", "system", "tools")
            reason = next((f"{part}_changed" for part in parts if getattr(was, part) != getattr(now, part)), "")
            reason = reason or "messages_changed"
        self._misses[reason] += 1
        missed = {} if reason == "previous_message_not_found" else {"cache_missed_input_tokens": 1}
        return {"cache_miss_reason": {"type": reason, **missed}}

    def note_sent(self, digest: str) -> None:
        """The whole of it went out."""
        self._answered.add(digest)

    def note_end(self, call: Call) -> None:
        call.ended, call.over = True, time.monotonic()
        self._outcomes["dropped" if call.dropped and call.outcome == "reply" else call.outcome] += 1

    def report(self, title: str) -> dict[str, Any]:
        """The JSON of GET /rehearsal/report.

        replies   requests that were answered with a whole message
        dropped   clients that went away in the middle of one
        repeated  replies begun for a request that had been answered whole before: paid for twice
        cache_misses  reasons that were given to clients who asked why the cache did not find what they had sent
        """
        faults = {name: n for name, n in sorted(self._outcomes.items()) if name not in ("reply", "refused", "dropped")}
        usage = {kind: self._usage[kind] for kind in (*INPUT_KINDS, "output_tokens")}
        total = sum(usage[kind] for kind in INPUT_KINDS)
        return {
            "title": title,
            "calls": self._count,
            "replies": self._outcomes["reply"],
            "dropped": self._outcomes["dropped"],
            "refused": self._outcomes["refused"],
            "faults": faults,
            "repeated": self._repeated,
            "prefix_breaks": self.prefix_breaks,
            "cache_misses": dict(sorted(self._misses.items())),
            "usage": usage,
            "cache_hit_ratio": round(usage["cache_read_input_tokens"] / total, 4) if total else None,
        }
