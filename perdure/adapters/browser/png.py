"""PNG files that came out of a sandbox: read whole, checked, and written anew with nothing but their pixels.

What a sandbox says is a picture goes to a model's API, which refuses a request for one it cannot read, and to people's
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
    """A PNG file that can be read. `width` and `height` in pixels."""

    data: bytes
    width: int
    height: int


def checked(data: bytes, widest: int, highest: int) -> Picture:
    """The picture in a PNG of 8 bits a channel, RGB or RGBA, in rows. ValueError says what is wrong with it.

    Needs memory for the pixels only: `widest` × `highest` × 4 bytes at most. Blocks for some 30 ms.
    """
    if data[:8] != _SIGNATURE:
        raise ValueError("it is no PNG")
    header, pixels = _parts(data)
    if len(header) != 13:
        raise ValueError("it has no header")
    width, height, depth, colour, compression, filtering, interlaced = struct.unpack(">IIBBBBB", header)
    if not (0 < width <= widest and 0 < height <= highest):
        raise ValueError(f"it is {width} × {height} pixels large")
    if depth != 8 or colour not in _CHANNELS or compression or filtering or interlaced:
        raise ValueError("it is of a kind that browsers do not write")
    row = 1 + width * _CHANNELS[colour]
    _check_rows(pixels, row, height)
    return Picture(_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b""), width, height)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """The header's bytes, and those of the compressed pixels."""
    header, at = b"", len(_SIGNATURE)
    pixels: list[bytes] = []
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        said = data[at + 8 + length : at + 12 + length]
        if len(said) != 4 or zlib.crc32(kind + body) != int.from_bytes(said):
            raise ValueError("it is damaged")
        if kind == b"IEND":
            return header, b"".join(pixels)
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            pixels.append(body)
        at += 12 + length
    raise ValueError("it is cut off")


def _check_rows(pixels: bytes, row: int, height: int) -> None:
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(pixels, row * height + 1)
    except zlib.error:
        raise ValueError("its pixels cannot be unpacked") from None
    if len(raw) != row * height or not unpacking.eof or unpacking.unused_data:
        raise ValueError("it has not as many pixels as it says")
    if max(raw[::row]) > _FILTERS:
        raise ValueError("its rows cannot be read")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
