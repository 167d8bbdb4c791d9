"""Images in a request: what the API refuses about them, and what they cost. Documents are carried along unseen."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any

from perdure.rehearsal.wire import Media

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
