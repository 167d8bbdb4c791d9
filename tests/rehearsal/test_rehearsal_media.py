"""Pictures in a request: what the API refuses, and what it charges."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from anthropic import BadRequestError

PLAY = '[[line]]\nsay = "Seen."'


def png(width: int = 1280, height: int = 2000, size: int = 100_000) -> bytes:
    """As much of one as the API's rules look at."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(size)


def image(data: bytes | str, kind: str = "image/png") -> dict[str, Any]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": text}}


def look(*images: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*images, {"type": "text", "text": "Look."}]}]


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([{"type": "image", "source": {"type": "path"}}], "source: Input tag"),
        ([image(png(), "image/bmp")], "source.base64.media_type: Input should be one of"),
        ([image("no base64!")], "source.base64.data: Invalid base64 data"),
        ([image(png(), "image/jpeg")], "does not match the provided media type image/jpeg"),
        ([image(b"\x89PNG\r\n\x1a\n")], "Could not process image"),
        ([image(png(0, 5))], "Could not process image"),
        ([image(png(1280, 8001))], "max allowed size: 8000 pixels"),
        ([image(png(10, 2001, 10))] * 21, "max allowed size: 2000 pixels"),
        ([image(png(size=4_000_000))], "exceeds 5 MB maximum"),
    ],
)
async def test_a_picture_that_cannot_be_one_is_refused_with_its_place(rehearsal, ask, blocks, said):
    twin = await rehearsal(PLAY)
    with pytest.raises(BadRequestError, match=r"messages\.0\.content\.\d+\.image\.") as refused:
        await ask(twin, look(*blocks))
    assert said in str(refused.value)


async def test_a_picture_is_charged_by_its_pixels(rehearsal, ask):
    twin = await rehearsal(PLAY)
    without = (await ask(twin, look())).usage.input_tokens
    small = (await ask(twin, look(image(png(size=10))))).usage.input_tokens
    large = (await ask(twin, look(image(png(size=1_000_000))))).usage.input_tokens
    assert small == large == without + 3414
