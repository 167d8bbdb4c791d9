"""PNG files that came out of a sandbox: read whole, checked, and written anew with nothing but their pixels.

What a sandbox says is a picture goes to a model's API, which refuses a request with one it cannot read, and to people's
browsers. So nothing is passed on that was not understood: no metadata, nothing behind the end.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}  # RGB and RGBA: all that Chromium writes
_FILTERS = 4


@dataclass(frozen=True)
class Picture:
    """A PNG file that is known to be readable. `width` and `height` in pixels."""

    data: bytes
    width: int
    height: int


def sanitize_png(data: bytes, max_width: int, max_height: int) -> Picture:
    """Check a PNG of 8 bits a channel, RGB or RGBA, not interlaced, and return it written anew, without metadata.

    Raises ValueError, which says what is wrong with it. Needs memory for the pixels only: `max_width` × `max_height` ×
    4 bytes at most. Blocks for some 30 ms.
    """
    if data[:8] != _SIGNATURE:
        raise ValueError("it is no PNG")
    header, pixels = _read_chunks(data)
    if len(header) != 13:
        raise ValueError("it has no header")
    width, height, depth, colour, compression, filter_method, interlaced = struct.unpack(">IIBBBBB", header)
    if not (0 < width <= max_width and 0 < height <= max_height):
        raise ValueError(f"it is {width} × {height} pixels large")
    if depth != 8 or colour not in _CHANNELS or compression or filter_method or interlaced:
        raise ValueError("it is of a kind that browsers do not write")
    row_bytes = 1 + width * _CHANNELS[colour]
    _check_rows(pixels, row_bytes, height)
    return Picture(
        _SIGNATURE + _make_chunk(b"IHDR", header) + _make_chunk(b"IDAT", pixels) + _make_chunk(b"IEND", b""),
        width,
        height,
    )


def _read_chunks(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a PNG's header and those of its compressed pixels. Raises ValueError for a wrong checksum, or
    without an end."""
    header, offset = b"", len(_SIGNATURE)
    pixels: list[bytes] = []
    while offset + 12 <= len(data):
        (length,) = struct.unpack(">I", data[offset : offset + 4])
        kind, body = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + length]
        checksum = data[offset + 8 + length : offset + 12 + length]
        if len(checksum) != 4 or zlib.crc32(kind + body) != int.from_bytes(checksum):
            raise ValueError("it is damaged")
        if kind == b"IEND":
            return header, b"".join(pixels)
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            pixels.append(body)
        offset += 12 + length
    raise ValueError("it is cut off")


def _check_rows(pixels: bytes, row_bytes: int, height: int) -> None:
    """Raise ValueError unless the pixels unpack to exactly `height` rows of `row_bytes` bytes, each with a filter that
    PNG knows."""
    decompressor = zlib.decompressobj()
    try:
        rows = decompressor.decompress(pixels, row_bytes * height + 1)
    except zlib.error:
        raise ValueError("its pixels cannot be unpacked") from None
    if len(rows) != row_bytes * height or not decompressor.eof or decompressor.unused_data:
        raise ValueError("it has not as many pixels as it says")
    if max(rows[::row_bytes]) > _FILTERS:
        raise ValueError("its rows cannot be read")


def _make_chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG, with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
