"""Shapes of backlogs to which something is said at a moment that no real delivery can be made to last."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.engine import HAPPY, Engine
from tests.replay.shapes_of_people import PORTS, Keep

sys.path.append(str(Path(__file__).parents[1] / "workflows"))  # its tests play such backlogs, with activities of theirs

from backlog_fixtures import Branch, backlog, night, until

from tests.deliveries import playing


async def between(root: Path, keep: Keep) -> None:
    """Left out, and held, as they are begun; asked for more as it ends."""
    async with Engine.open(root, HAPPY, ports=PORTS, own_server=True) as engine:
        branch = Branch(one="a", two="b", three="c")
        branch.signing, branch.closing = asyncio.Event(), asyncio.Event()
        async with playing(engine.client, branch):
            handle = await backlog(engine.client, "between", night({"id": "one"}, {"id": "two"}, proof="x"))
            while not branch.called["sign_item_request"]:
                await asyncio.sleep(0.02)
            await handle.execute_update("skip", {"item": "two"})
            await handle.signal("hold", {"note": "lunch"})
            await handle.query("progress")
            branch.signing.set()
            await until(handle, lambda phases: phases["one"] != "building")
            await handle.signal("resume", {})
            while not branch.called["close_backlog"]:
                await asyncio.sleep(0.02)
            await handle.execute_update("add", {"item": {"id": "three", "request": "x"}})
            branch.closing.set()
            await handle.result()
            await keep(handle, "backlog-held-in-between")


async def checked(root: Path, keep: Keep) -> None:
    """At its end a check fails that no landing had time for; what is added mends it."""
    async with Engine.open(root, HAPPY, ports=PORTS, own_server=True) as engine:
        branch = Branch(one="a", two="b", three="c")
        branch.base, branch.left_out, branch.last = [], {"two": "one"}, ["check of one: exit code 1"]
        async with playing(engine.client, branch):
            items = [{"id": "one", "check": ["true"]}, {"id": "two", "depends_on": ["one"]}]
            handle = await backlog(engine.client, "checked", night(*items))
            while not (await handle.query("progress")).get("asks"):
                await asyncio.sleep(0.05)
            await keep(handle, "backlog-waiting-at-last-checks")
            await handle.execute_update("add", {"item": {"id": "three", "request": "Mend it"}})
            await handle.result()
            await keep(handle, "backlog-with-last-checks")
