"""The record of a rehearsal: its calls, what they cost, and whether conversations only ever grew."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perdure.rehearsal.wire import Request, canonical_json

REHEARSAL_CALLS_KEPT = 1000
REHEARSAL_BODIES_KEPT = 100
"""The number of calls a rehearsal keeps for tests, and the number with their request, which may have megabytes."""


INPUT_KINDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""Fields of a usage that together are the whole input."""


@dataclass
class RecordedCall:
    """One request to a model.

    outcome   `reply`, the name of the fault that was given, or `refused`: a rule of the API, or no line that matches
    body      the request; {} for all but the latest hundred
    line      which line of the screenplay answered, counted from 1
    message   of the error, when the answer was one
    dropped   the client went away before the whole answer was sent
    ended     nothing more will be sent
    began_at, ended_at  when it came, and when nothing more was sent: time.monotonic
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
    began_at: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0


def digest_chain(request: Request) -> list[str]:
    """Return one digest a message, each of everything up to it: model, tools, system, messages, without cache marks."""
    digest = hashlib.sha256(request.model.encode())
    for part in (*request.tools, *request.system):
        digest.update(canonical_json(part).encode())
    links = []
    for message in request.messages:
        digest.update(f"\n{message.role}".encode())
        for block in message.content:
            digest.update(canonical_json(block).encode())
        links.append(digest.hexdigest())
    return links


@dataclass(frozen=True)
class _PromptParts:
    """The parts of an answered request's prompt that a later one is compared with."""

    model: str
    system: str
    tools: str

    @classmethod
    def from_request(cls, request: Request) -> _PromptParts:
        return cls(
            request.model, "".join(map(canonical_json, request.system)), "".join(map(canonical_json, request.tools))
        )


class PerformanceRecord:
    """Counts for the report; `calls` keeps the latest calls whole."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.prefix_breaks = 0
        self._count = 0
        self._outcomes: Counter[str] = Counter()
        self._usage: Counter[str] = Counter()
        self._conversations: set[str] = set()
        self._sent_digests: set[str] = set()
        self._answered_digests: set[str] = set()
        self._repeat_count = 0
        self._parts_by_message_id: dict[str, _PromptParts] = {}
        self._miss_reasons: Counter[str] = Counter()

    def new_call(self) -> RecordedCall:
        """Append a new call and return it; delete the oldest calls and request bodies beyond the limits."""
        self._count += 1
        self.calls.append(RecordedCall(self._count))
        del self.calls[:-REHEARSAL_CALLS_KEPT]
        if len(self.calls) > REHEARSAL_BODIES_KEPT:
            self.calls[-1 - REHEARSAL_BODIES_KEPT].body = {}
        return self.calls[-1]

    def note_prefix(self, request: Request, links: list[str]) -> None:
        """Count a request that neither repeats nor extends what was sent before in its conversation.

        A conversation is its system prompt and first user message. Sending an older request again, and going on from
        there in another way, is what a crash or a rewind looks like, and legal.
        """
        opening = hashlib.sha256(
            "\n".join(map(canonical_json, (*request.system, request.messages[0]))).encode()
        ).hexdigest()
        is_known = opening in self._conversations
        grows = links[-1] in self._sent_digests or (len(links) > 2 and links[-3] in self._sent_digests)
        if is_known and not grows:
            self.prefix_breaks += 1
        self._conversations.add(opening)
        self._sent_digests.add(links[-1])

    def note_reply_begun(self, digest: str, usage: dict[str, Any]) -> None:
        """Count a reply that begins, and its usage, which is paid for however it ends.

        A conversation that was answered whole before counts as a repeat: paid for twice.
        """
        self._repeat_count += digest in self._answered_digests
        self._usage.update({kind: usage[kind] for kind in (*INPUT_KINDS, "output_tokens")})

    def diagnose_cache_miss(self, request: Request, links: list[str]) -> dict[str, Any] | None:
        """Return the API's reason why its cache cannot have what was sent with the reply that `diagnostics` names.

        None where it can, or the request names no reply. Also counts the reason and keeps this request's prompt parts
        for later requests. Message ids are made of the first 24 digits of a conversation's digest.
        """
        previous_id = request.diagnostics.previous_message_id if request.diagnostics else None
        parts_now = self._parts_by_message_id[f"msg_{links[-1][:24]}"] = _PromptParts.from_request(request)
        while len(self._parts_by_message_id) > REHEARSAL_CALLS_KEPT:
            del self._parts_by_message_id[next(iter(self._parts_by_message_id))]
        if previous_id is None or any(previous_id == f"msg_{link[:24]}" for link in links):
            return None
        previous_parts = self._parts_by_message_id.get(previous_id)
        if previous_parts is None:
            reason = "previous_message_not_found"
        else:
            part_names = ("model", "system", "tools")
            reason = next(
                (f"{part}_changed" for part in part_names if getattr(previous_parts, part) != getattr(parts_now, part)),
                "",
            )
            reason = reason or "messages_changed"
        self._miss_reasons[reason] += 1
        token_count = {} if reason == "previous_message_not_found" else {"cache_missed_input_tokens": 1}
        return {"cache_miss_reason": {"type": reason, **token_count}}

    def note_reply_sent(self, digest: str) -> None:
        """Record that the reply to this conversation was sent whole."""
        self._answered_digests.add(digest)

    def note_end(self, call: RecordedCall) -> None:
        """Mark a call as ended now and count its outcome."""
        call.ended, call.ended_at = True, time.monotonic()
        self._outcomes["dropped" if call.dropped and call.outcome == "reply" else call.outcome] += 1

    def report(self, title: str) -> dict[str, Any]:
        """Return the JSON of GET /rehearsal/report.

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
            "repeated": self._repeat_count,
            "prefix_breaks": self.prefix_breaks,
            "cache_misses": dict(sorted(self._miss_reasons.items())),
            "usage": usage,
            "cache_hit_ratio": round(usage["cache_read_input_tokens"] / total, 4) if total else None,
        }
