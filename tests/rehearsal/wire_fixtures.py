"""Requests on the wires that are not Anthropic's, as plain HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx2

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
PLAY = """
title = "wires"
[[line]]
step = "plan"
answer = { title = "A plan, with ümlauts" }
[[line]]
step = "implement"
turn = 1
think = "Hm."
say = "I look at the file before I change it."
use = [{ tool = "look", input = { path = "ä.py" } }, { tool = "look", input = { path = "b.py" } }]
[[line]]
step = "implement"
turn = 2
last = "def add"
say = "Done."
"""


async def post(url: str, body: Json, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        return await client.post(url, json=body, headers=headers or {"authorization": "Bearer k"})


def frames(answer: httpx2.Response) -> list[Json]:
    """The data of all server-sent events; the line that ends a stream is none."""
    found = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(one) for one in found if one != "[DONE]"]
