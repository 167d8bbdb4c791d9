"""Only what was understood as a picture is passed on, and nothing but its pixels."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.browser.capture import sanitize_png

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def header(
    width: int = 3, height: int = 2, depth: int = 8, colour: int = 2, rest: tuple[int, ...] = (0, 0, 0)
) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, *rest))


def pixels(width: int = 3, height: int = 2, channels: int = 3, first: int = 0) -> bytes:
    return zlib.compress((bytes([first]) + b"abcd"[:channels] * width) * height)


def png(*chunks: bytes) -> bytes:
    return SIGNATURE + b"".join(chunks) + chunk(b"IEND", b"")


GOOD = png(header(), chunk(b"IDAT", pixels()))


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (6, 4)])
def test_a_picture_stays_what_it_is(colour: int, channels: int) -> None:
    data = png(header(colour=colour), chunk(b"IDAT", pixels(channels=channels)))
    found = sanitize_png(data, 3, 2)
    assert (found.data, found.width, found.height) == (data, 3, 2)


def test_what_is_beside_the_pixels_is_left_out() -> None:
    packed = pixels()
    pieces = (chunk(b"IDAT", packed[:5]), chunk(b"tEXt", b"Comment\0<script>"), chunk(b"IDAT", packed[5:]))
    assert sanitize_png(png(header(), chunk(b"eXIf", b"x"), *pieces) + b"PK\x03\x04 behind the end", 3, 2).data == GOOD


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no PNG"),
        (b"GIF89a" + bytes(50), "no PNG"),
        (SIGNATURE, "cut off"),
        (GOOD[:-1], "cut off"),
        (GOOD[:-12], "cut off"),
        (GOOD[:-13], "damaged|cut off"),
        (GOOD.replace(b"IDAT", b"IDAS"), "damaged"),
        (png(chunk(b"IDAT", pixels())), "no header"),
        (png(header()), "cannot be unpacked|not as many"),
        (png(header(4, 2), chunk(b"IDAT", pixels(4))), "4 × 2 pixels large"),
        (png(header(3, 3), chunk(b"IDAT", pixels(3, 3))), "3 × 3 pixels large"),
        (png(header(0, 2), chunk(b"IDAT", pixels())), "0 × 2 pixels large"),
        (png(header(depth=16), chunk(b"IDAT", pixels())), "browsers do not write"),
        (png(header(colour=3), chunk(b"IDAT", pixels())), "browsers do not write"),
        (png(header(rest=(0, 0, 1)), chunk(b"IDAT", pixels())), "browsers do not write"),
        (png(header(), chunk(b"IDAT", b"not zlib")), "cannot be unpacked"),
        (png(header(), chunk(b"IDAT", pixels(height=1))), "not as many pixels"),
        (png(header(), chunk(b"IDAT", pixels(height=3))), "not as many pixels"),
        (png(header(), chunk(b"IDAT", pixels() + b"more")), "not as many pixels"),
        (png(header(), chunk(b"IDAT", zlib.compress(bytes(50_000_000)))), "not as many pixels"),
        (png(header(), chunk(b"IDAT", pixels(first=5))), "rows cannot be read"),
    ],
)
def test_what_is_no_such_picture_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sanitize_png(data, 3, 2)


@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_no_bytes_at_all_break_the_reading(noise: bytes, at: int) -> None:
    for data in (noise, SIGNATURE + noise, GOOD[:at] + noise + GOOD[at:]):
        try:
            found = sanitize_png(data, 3, 2)
        except ValueError:
            continue
        assert found.data == GOOD
