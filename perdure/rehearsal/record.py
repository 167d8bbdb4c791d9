"""The record of a rehearsal: its calls, what they cost by the documented rules of the prompt cache, and whether
conversations only ever grew. Tokens are counted as bytes / 4, those of a PNG by its pixels; what the API takes as an
image is checked here, too. Used by the other modules of `perdure.rehearsal` alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from perdure.rehearsal.wire import CacheControl, Media, Request, canonical_json

REHEARSAL_CALLS_KEPT = 1000
REHEARSAL_BODIES_KEPT = 100
"""The number of calls a rehearsal keeps for tests, and the number with their request, which may have megabytes."""


INPUT_KINDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""Fields of a usage that together are the whole input."""


@dataclass
class RecordedCall:
    """A request to a model.

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
        """Remember a request, and count it in `prefix_breaks` when it neither repeats nor extends what its conversation
        had sent.

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

        The reason is `{"cache_miss_reason": {"type": …}}`; None where the cache can have it, or the request names no
        reply. Also counts the reason and keeps this request's prompt parts for later requests. Message ids are made of
        the first 24 digits of a conversation's digest.
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
        """Mark a call as ended now and count its outcome; a reply whose client went away counts as dropped."""
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


LOOK_BACK_BLOCKS = 20
"""The number of blocks that are looked at for each breakpoint, its own included."""

TTL_S = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True)
class InputUsage:
    """Input tokens of one request: read from the cache, written to it (by time to live), and neither (`fresh`)."""

    fresh: int
    cache_read: int
    written_5m: int
    written_1h: int

    @property
    def written(self) -> int:
        """Return the tokens written to the cache, whatever their time to live."""
        return self.written_5m + self.written_1h


@dataclass(frozen=True)
class _Prefix:
    """All blocks up to one of them: their hash, their tokens, and the breakpoint that the last one carries."""

    digest: str
    tokens: int
    mark: CacheControl | None


class PromptCache:
    """The cache of one organisation, in memory. `minimum` is the smallest prompt worth caching, in tokens."""

    def __init__(self, minimum: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._minimum = minimum
        self._clock = clock
        self._expires: dict[str, tuple[float, float]] = {}

    def charge_request(self, request: Request) -> InputUsage:
        """Record one answered request in the cache and return the usage of its input.

        The longest cached prefix is read and its time to live renewed, prefixes at breakpoints are written, expired
        ones removed.
        """
        prefixes = list(_iter_prefixes(request))
        now = self._clock()
        self._expires = {digest: entry for digest, entry in self._expires.items() if entry[0] > now}
        breakpoints = [n for n, prefix in enumerate(prefixes) if prefix.mark and prefix.tokens >= self._minimum]
        hit_index = max(
            (index for n in breakpoints if (index := self._find_cached_prefix(prefixes, n)) is not None), default=None
        )
        cache_read = 0
        if hit_index is not None:
            cache_read = prefixes[hit_index].tokens
            ttl = self._expires[prefixes[hit_index].digest][1]
            self._expires[prefixes[hit_index].digest] = (now + ttl, ttl)
        written = {"5m": 0, "1h": 0}
        covered = cache_read
        for n in breakpoints:
            prefix = prefixes[n]
            ttl_name = prefix.mark.ttl if prefix.mark else "5m"
            written[ttl_name] += max(0, prefix.tokens - covered)
            covered = max(covered, prefix.tokens)
            self._refresh_entry(prefix.digest, now, TTL_S[ttl_name])
        total = prefixes[-1].tokens
        return InputUsage(total - covered, cache_read, written["5m"], written["1h"])

    def _find_cached_prefix(self, prefixes: list[_Prefix], breakpoint_: int) -> int | None:
        """Return the index of the longest cached prefix in the LOOK_BACK_BLOCKS blocks up to a breakpoint, or None."""
        for index in range(breakpoint_, max(-1, breakpoint_ - LOOK_BACK_BLOCKS), -1):
            if prefixes[index].digest in self._expires and prefixes[index].tokens >= self._minimum:
                return index
        return None

    def _refresh_entry(self, digest: str, now: float, ttl: float) -> None:
        """Set or renew a prefix's entry, for the longer of `ttl` and the time to live that it had."""
        ttl = max(ttl, self._expires.get(digest, (0.0, 0.0))[1])
        self._expires[digest] = (now + ttl, ttl)


def tokens_of(part: BaseModel) -> int:
    """Return the tokens of a block, tool or message part: its JSON's UTF-8 bytes / 4, rounded up; a PNG's by pixels."""
    pixels = image_tokens(part)
    return pixels if pixels is not None else _text_tokens(canonical_json(part))


def _text_tokens(text: str) -> int:
    """Return the tokens of a text: its UTF-8 bytes / 4, rounded up."""
    return -(-len(text.encode()) // 4)


def _iter_prefixes(request: Request) -> Iterator[_Prefix]:
    """Yield each prefix of a request, block by block: tools, system, messages.

    Model, output format, tool choice and thinking settings count into the hashes. The request's own `cache_control`
    marks its last block.
    """
    digest = hashlib.sha256(f"{request.model}\n{request.output_config and request.output_config.format!r}".encode())
    tokens = 0

    def extend(place: str, part: BaseModel, mark: CacheControl | None) -> _Prefix:
        nonlocal tokens
        text = canonical_json(part)
        digest.update(f"{place}:{len(text)}:{text}".encode())
        tokens += image_tokens(part) or _text_tokens(text)
        return _Prefix(digest.hexdigest(), tokens, mark)

    for part in (*request.tools, *request.system):
        yield extend(type(part).__name__, part, part.cache_control)
    digest.update(f"{request.tool_choice!r}{request.thinking!r}".encode())
    last = (len(request.messages) - 1, len(request.messages[-1].content) - 1)
    for message_index, message in enumerate(request.messages):
        for block_index, block in enumerate(message.content):
            mark: CacheControl | None = getattr(block, "cache_control", None)
            if (message_index, block_index) == last:
                mark = mark or request.cache_control
            yield extend(message.role, block, mark)


MAX_IMAGE_CHARS = 5 * 1024 * 1024
"""Limit on one image's base64."""

MAX_PIXELS, MAX_PIXELS_OF_MANY, MANY_IMAGES = 8000, 2000, 20
"""Limits on an image's longest side: of any image, and of one among more than MANY_IMAGES."""

_MAGIC = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_PIXELS_PER_TOKEN = 750


def image_problem(block: Media, images: int) -> str | None:
    """Return the API's complaint about an image in a request of `images` images; None when it takes it, and for a
    document.

    Checked are source, media type, size, base64, and a PNG's pixels; images by URL or file id are not looked at.
    """
    source = block.source
    if block.type != "image" or source.get("type") in ("url", "file"):
        return None
    if source.get("type") != "base64" or set(source) != {"type", "media_type", "data"}:
        return "source: Input tag does not match any of the expected tags: 'base64', 'url', 'file'"
    kind, data = source["media_type"], source["data"]
    if kind not in _MAGIC:
        return f"source.base64.media_type: Input should be one of {', '.join(map(repr, _MAGIC))}"
    if not isinstance(data, str) or len(data) > MAX_IMAGE_CHARS:
        return f"source.base64: image exceeds 5 MB maximum: {len(str(data))} bytes > {MAX_IMAGE_CHARS} bytes"
    try:
        image = base64.b64decode(data, validate=True)
    except binascii.Error:
        return "source.base64.data: Invalid base64 data"
    if not image.startswith(_MAGIC[kind]):
        return f"source.base64: Image does not match the provided media type {kind}"
    limit = MAX_PIXELS_OF_MANY if images > MANY_IMAGES else MAX_PIXELS
    size = _png_size(image)
    if size is None or not size[0] or not size[1]:
        return "source.base64: Could not process image" if kind == "image/png" else None
    return f"source.base64: image dimensions exceed max allowed size: {limit} pixels" if max(size) > limit else None


def image_tokens(part: Any) -> int | None:
    """Return a PNG's tokens, by its pixels; None for everything that counts as text here."""
    if not isinstance(part, Media) or part.type != "image":
        return None
    try:
        size = _png_size(base64.b64decode(str(part.source.get("data", ""))[:32]))
    except binascii.Error:
        return None
    return -(-size[0] * size[1] // _PIXELS_PER_TOKEN) if size else None


def _png_size(image: bytes) -> tuple[int, int] | None:
    """Return width and height from the header of a PNG's bytes; None when they are no PNG."""
    if image[12:16] != b"IHDR" or len(image) < 24:
        return None
    width, height = struct.unpack(">II", image[16:24])
    return width, height
