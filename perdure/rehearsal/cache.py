"""Prompt-cache accounting by the documented rules, on tokens counted as bytes / 4.

A prefix is tools, then system, then messages, block by block. It is written at cache breakpoints, and hit at a
breakpoint or at one of the 19 blocks before it; a hit renews its time to live (5 minutes or 1 hour). The counts are an
approximation; the ratios follow from the rules.
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

from perdure.rehearsal.wire import CacheControl, Media, Request, canonical_json

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
    """Return the API's complaint about an image in a request of `images` images; None when it takes it.

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
