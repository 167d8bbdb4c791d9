"""Prompt-cache accounting by the documented rules, on tokens counted as bytes / 4.

A prefix is tools, then system, then messages, block by block. It is written at cache breakpoints, and found again at a
breakpoint or at one of the 19 blocks before it; what was found lives on for its time to live (5 minutes or 1 hour).
The counts are an approximation; the ratios follow from the rules.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perdure.rehearsal.wire import CacheControl, Media, Request, canonical

LOOK_BACK = 20
"""Blocks looked at for each breakpoint, its own included."""

TTL_S = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True)
class InputUsage:
    """Tokens of one request: read from the cache, written to it (by time to live), and neither."""

    fresh: int
    read: int
    written_5m: int
    written_1h: int

    @property
    def written(self) -> int:
        return self.written_5m + self.written_1h


@dataclass(frozen=True)
class _Prefix:
    """All blocks up to one: their hash, their tokens, and the breakpoint that stands here."""

    digest: str
    tokens: int
    mark: CacheControl | None


class PromptCache:
    """The cache of one organisation. `minimum` is the smallest prompt worth caching, in tokens."""

    def __init__(self, minimum: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._minimum = minimum
        self._clock = clock
        self._expires: dict[str, tuple[float, float]] = {}

    def charge(self, request: Request) -> InputUsage:
        """Account for one answered request: read what is there, write what is marked."""
        prefixes = list(_prefixes(request))
        now = self._clock()
        self._expires = {digest: entry for digest, entry in self._expires.items() if entry[0] > now}
        breakpoints = [n for n, prefix in enumerate(prefixes) if prefix.mark and prefix.tokens >= self._minimum]
        hit = max((found for n in breakpoints if (found := self._look_back(prefixes, n)) is not None), default=None)
        read = 0
        if hit is not None:
            read = prefixes[hit].tokens
            ttl = self._expires[prefixes[hit].digest][1]
            self._expires[prefixes[hit].digest] = (now + ttl, ttl)
        written = {"5m": 0, "1h": 0}
        covered = read
        for n in breakpoints:
            prefix = prefixes[n]
            ttl_name = prefix.mark.ttl if prefix.mark else "5m"
            written[ttl_name] += max(0, prefix.tokens - covered)
            covered = max(covered, prefix.tokens)
            self._write(prefix.digest, now, TTL_S[ttl_name])
        total = prefixes[-1].tokens
        return InputUsage(total - covered, read, written["5m"], written["1h"])

    def _look_back(self, prefixes: list[_Prefix], breakpoint_: int) -> int | None:
        for n in range(breakpoint_, max(-1, breakpoint_ - LOOK_BACK), -1):
            if prefixes[n].digest in self._expires and prefixes[n].tokens >= self._minimum:
                return n
        return None

    def _write(self, digest: str, now: float, ttl: float) -> None:
        """Using an entry refreshes it, for the longer of the times it was written with."""
        ttl = max(ttl, self._expires.get(digest, (0.0, 0.0))[1])
        self._expires[digest] = (now + ttl, ttl)


def tokens_of(part: BaseModel) -> int:
    """Of one block, tool or message part: its JSON's UTF-8 bytes / 4, rounded up; a picture's by its pixels."""
    pixels = image_tokens(part)
    return pixels if pixels is not None else _tokens(canonical(part))


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


def _prefixes(request: Request) -> Iterator[_Prefix]:
    digest = hashlib.sha256(f"{request.model}\n{request.output_config and request.output_config.format!r}".encode())
    tokens = 0

    def grown(place: str, part: BaseModel, mark: CacheControl | None) -> _Prefix:
        nonlocal tokens
        text = canonical(part)
        digest.update(f"{place}:{len(text)}:{text}".encode())
        tokens += image_tokens(part) or _tokens(text)
        return _Prefix(digest.hexdigest(), tokens, mark)

    for part in (*request.tools, *request.system):
        yield grown(type(part).__name__, part, part.cache_control)
    digest.update(f"{request.tool_choice!r}{request.thinking!r}".encode())
    last = (len(request.messages) - 1, len(request.messages[-1].content) - 1)
    for n, message in enumerate(request.messages):
        for m, block in enumerate(message.content):
            mark: CacheControl | None = getattr(block, "cache_control", None)
            if (n, m) == last:
                mark = mark or request.cache_control
            yield grown(message.role, block, mark)


MAX_BYTES = 5 * 1024 * 1024
"""Of one image's base64."""

MAX_PIXELS, MAX_PIXELS_OF_MANY, MANY = 8000, 2000, 20
"""The longest side of an image, and of one among more than twenty."""

_MAGIC = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_PIXELS_PER_TOKEN = 750


def image_problem(block: Media, images: int) -> str | None:
    """Return the API's complaint about an image among `images`; None when it takes it."""
    source = block.source
    if block.type != "image" or source.get("type") in ("url", "file"):
        return None
    if source.get("type") != "base64" or set(source) != {"type", "media_type", "data"}:
        return "source: Input tag does not match any of the expected tags: 'base64', 'url', 'file'"
    kind, data = source["media_type"], source["data"]
    if kind not in _MAGIC:
        return f"source.base64.media_type: Input should be one of {', '.join(map(repr, _MAGIC))}"
    if not isinstance(data, str) or len(data) > MAX_BYTES:
        return f"source.base64: image exceeds 5 MB maximum: {len(str(data))} bytes > {MAX_BYTES} bytes"
    try:
        image = base64.b64decode(data, validate=True)
    except binascii.Error:
        return "source.base64.data: Invalid base64 data"
    if not image.startswith(_MAGIC[kind]):
        return f"source.base64: Image does not match the provided media type {kind}"
    most = MAX_PIXELS_OF_MANY if images > MANY else MAX_PIXELS
    size = _png_size(image)
    if size is None or not size[0] or not size[1]:
        return "source.base64: Could not process image" if kind == "image/png" else None
    return f"source.base64: image dimensions exceed max allowed size: {most} pixels" if max(size) > most else None


def image_tokens(part: Any) -> int | None:
    """Return a PNG's cost, by its pixels; None for everything that counts as text here."""
    if not isinstance(part, Media) or part.type != "image":
        return None
    try:
        size = _png_size(base64.b64decode(str(part.source.get("data", ""))[:32]))
    except binascii.Error:
        return None
    return -(-size[0] * size[1] // _PIXELS_PER_TOKEN) if size else None


def _png_size(image: bytes) -> tuple[int, int] | None:
    if image[12:16] != b"IHDR" or len(image) < 24:
        return None
    width, height = struct.unpack(">II", image[16:24])
    return width, height
