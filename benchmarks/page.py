"""What the page costs its host: a share of one core, with many deliveries running and one browser that looks.

`make bench-page`: for each of DELIVERIES (50 and 200) deliveries that run on a real server, one in twenty waiting for a
decision, the page in its own process as `perdure up` starts it: its processor time over SECONDS (20) with nothing new,
then over as long with five new deliveries a second, and how long `GET /` takes meanwhile. The deliveries are started
and no worker has them. The exit code is 1 when it is 10 % of a core with 200 (3 % with 50) or `GET /` has a median of
100 ms.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "page"))

import psutil
from page_lab import PLAN, TIMEOUT, Visitor, stands_waiting, visiting
from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.local.page import read_page, token_of
from perdure.local.server import ensure_server, stop_server
from perdure.page.server import Page
from perdure.plugin import perdure_plugin

SECONDS = float(os.environ.get("SECONDS", "20"))
MOST = {50: 3.0, 200: 10.0}
ANSWER_MS = 100
A_SECOND = 5


async def follow(visitor: Visitor, url: str) -> None:
    async with visitor.session.get(url + "/live/inbox", timeout=TIMEOUT) as stream:
        async for _ in stream.content.iter_any():
            pass


async def begin(client: Client, name: str, count: int, pause: float = 0) -> None:
    for number in range(count):
        asked = PLAN if number % 20 == 0 else None
        await stands_waiting(client, f"{name}-{number}", asked, PerdurePhase="build", PerdureRepository="of/somebody")
        await asyncio.sleep(pause)


async def share(process: psutil.Process, visitor: Visitor) -> tuple[float, list[float]]:
    """Percent of a core, and milliseconds of each look at the page."""
    before, began, took = process.cpu_times(), time.monotonic(), []
    while time.monotonic() - began < SECONDS:
        await asyncio.sleep(2)
        asked = time.monotonic()
        await visitor.get("/")
        took.append(1000 * (time.monotonic() - asked))
    now = process.cpu_times()
    used = now.user + now.system - before.user - before.system
    return 100 * used / (time.monotonic() - began), took


async def measure(count: int) -> bool:
    home = Home(Path(tempfile.mkdtemp(prefix="bench-page-")) / "home")
    info = await ensure_server(home, say=lambda _: None)
    client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.page"], env={**os.environ, "PERDURE_HOME": str(home.root)}
    )
    try:
        await begin(client, "there", count)
        while (record := read_page(home)) is None:
            await asyncio.sleep(0.2)
        async with visiting(Page(record.url, token_of(home))) as visitor:
            following = asyncio.create_task(follow(visitor, record.url))
            await asyncio.sleep(5)
            page = psutil.Process(process.pid)
            quiet, first = await share(page, visitor)
            news = asyncio.create_task(begin(client, "new", int(SECONDS * A_SECOND), 1 / A_SECOND))
            busy, then = await share(page, visitor)
            await news
            following.cancel()
    finally:
        process.terminate()
        process.wait()
        await stop_server(home)
    answer = statistics.median([*first, *then])
    print(
        f"| {count} | {quiet:.1f} % | {busy:.1f} % | {answer:.0f} ms, worst {max([*first, *then]):.0f} ms |", flush=True
    )
    return max(quiet, busy) < MOST.get(count, 10.0) and answer < ANSWER_MS


async def main() -> int:
    print("| Deliveries | nothing new | five new ones a second | `GET /` |\n|---|---|---|---|")
    return int(not all([await measure(int(count)) for count in os.environ.get("DELIVERIES", "50 200").split()]))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
