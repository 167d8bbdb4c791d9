"""Whatever is sent to a workflow of any type, or starts one: no task fails, and it can be queried, cancelled and ended.

FUZZ=SEED:COUNT sends another number of messages, from another seed (`make fuzz`).
"""

from __future__ import annotations

import os
import time

import pytest
from temporalio.client import Client

from tests.deliveries import Script, client, playing
from tests.fuzz.messages import KINDS, draw_messages
from tests.fuzz.player import play
from tests.temporal_server import server

__all__ = ["client", "server"]

SEED, COUNT = map(int, os.environ.get("FUZZ", "1:120").split(":"))
A_SECOND = 5
"""Messages that are sent in a second at least, on a slow machine."""


@pytest.mark.timeout(300 + COUNT)
async def test_no_message_stops_a_workflow(client: Client) -> None:
    messages = draw_messages(COUNT, SEED)
    assert {(message.kind, message.act) for message in messages} >= {(kind, "start") for kind in KINDS}
    since = time.monotonic()
    async with playing(client, Script(gates=("plan",)), within=250 + COUNT / A_SECOND * 5):
        outcome = await play(client, messages)
    print(
        f"seed {SEED}: {len(messages)} messages, {outcome.sent} taken by the server, {outcome.runs} runs, "
        f"{time.monotonic() - since:.0f} s, {len(outcome.problems)} problems"
    )
    assert outcome.problems == [], f"{len(outcome.problems)} problems:\n" + "\n".join(outcome.problems[:20])
    assert outcome.sent > COUNT / 2
