"""The cost of looking: a share of one core for the page with one browser and for `perdure top`, over many deliveries.

`make bench-looking`: for each of DELIVERIES (50 and 200) real workflows on a real server, each in a turn whose words
change CHANGES times a second (5: the worker here only talks), and one in twenty more that waits for a decision: what
`perdure top` takes on a terminal over SECONDS (20); then the page in its own process as `perdure up` starts it, with
one browser at its stream, as long with nothing new and as long with five new deliveries a second, and how long `GET /`
takes meanwhile. The exit code is 1 where a share is 3 % of a core with 50 or 10 % with 200, or `GET /` has a median of
100 ms.
"""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "page"))

import psutil
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker
from visitors import PLAN, TIMEOUT, Visitor, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ServedPage, ensure_page_token, read_page_record
from perdure.local.server import ensure_server, stop_server
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import Script
from workflows import WORKFLOWS

SECONDS = float(os.environ.get("SECONDS", "20"))
CHANGES = float(os.environ.get("CHANGES", "5"))
MOST = {50: 3.0, 200: 10.0}
ANSWER_MS = 100
A_SECOND = 5
SETTLED_S = 12
"""All that runs has been described once by then."""


class Talkers(Script):
    """Turns that say something else all the time, until it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.phases, self.turn = (Phase.BUILD,), self.talks
        self.said, self.at_work, self.over = 0, 0, False

    async def talks(self, work: TurnInput) -> TurnResult:
        self.at_work += 1
        number = 0
        while not self.over:
            self.said, number = self.said + 1, number + 1
            activity.heartbeat({"turn": work.turn + number // 50, "doing": f"pytest -q tests/test_{number}.py"})
            await asyncio.sleep(1 / CHANGES)
        return await self.builds(work)


async def follow(visitor: Visitor, url: str) -> None:
    async with visitor.session.get(url + "/live/inbox", timeout=TIMEOUT) as stream:
        async for _ in stream.content.iter_any():
            pass


async def more(client: Client, name: str, count: int, pause: float = 0) -> None:
    """Deliveries that no worker has, one in twenty with a decision to take."""
    for number in range(count):
        asked = PLAN if number % 20 == 0 else None
        await stands_waiting(client, f"{name}-{number}", asked, PerdurePhase="build", PerdureRepository="of/somebody")
        await asyncio.sleep(pause)


async def share(process: psutil.Process, visitor: Visitor | None = None) -> tuple[float, list[float]]:
    """Percent of a core, and milliseconds of each look at the page."""
    before, began, took = process.cpu_times(), time.monotonic(), []
    while time.monotonic() - began < SECONDS:
        await asyncio.sleep(2)
        if visitor is not None:
            asked = time.monotonic()
            await visitor.get("/")
            took.append(1000 * (time.monotonic() - asked))
    now = process.cpu_times()
    used = now.user + now.system - before.user - before.system
    return 100 * used / (time.monotonic() - began), took


async def page(home: Home, client: Client, running: list[str], stack: ExitStack) -> tuple[float, float, list[float]]:
    """Its share with nothing new and with new ones, and its answers."""
    process = subprocess.Popen([sys.executable, "-m", "perdure.page"], env=environment(home))
    stack.callback(ended, process)
    while (record := read_page_record(home)) is None:
        await asyncio.sleep(0.2)
    async with visiting(ServedPage(record.url, ensure_page_token(home))) as visitor:
        following = asyncio.create_task(follow(visitor, record.url))
        await whole(visitor, running)
        quiet, first = await share(psutil.Process(process.pid), visitor)
        news = asyncio.create_task(more(client, "new", int(SECONDS * A_SECOND), 1 / A_SECOND))
        busy, then = await share(psutil.Process(process.pid), visitor)
        await news
        following.cancel()
    ended(process)
    return quiet, busy, [*first, *then]


async def whole(visitor: Visitor, running: list[str]) -> None:
    """Every delivery is there with the words of its turn, and none is called silent."""
    async with asyncio.timeout(120):
        while True:
            _, shown = await visitor.get("/")
            if all(f">{name}<" in shown for name in running) and shown.count(": pytest -q") == len(running):
                assert "silent for" not in shown, "a worker that talks is called silent"
                return
            await asyncio.sleep(1)


async def top(home: Home, stack: ExitStack) -> float:
    """Its share on a terminal."""
    terminal, side = pty.openpty()
    threading.Thread(target=drained, args=(terminal,), daemon=True).start()
    command, env = [sys.executable, "-m", "perdure.cli", "top"], {**environment(home), "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=env, start_new_session=True)
    stack.callback(ended, process)
    await asyncio.sleep(SETTLED_S)
    used, _ = await share(psutil.Process(process.pid))
    assert process.poll() is None, "top ended by itself"
    ended(process)
    return used


def drained(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 65536):
            pass


def ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def environment(home: Home) -> dict[str, str]:
    return {**os.environ, "PERDURE_HOME": str(home.root)}


async def measure(count: int) -> bool:
    home = Home(Path(tempfile.mkdtemp(prefix="bench-looking-")) / "home")
    os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "0"  # every change of words is a write: no disk is measured here
    info = await ensure_server(home, say=lambda _: None)
    client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
    talkers, perdure, often = Talkers(), Perdure(client), timedelta(seconds=1 / CHANGES)
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=talkers.activities(),
        max_concurrent_activities=2 * count,
        max_heartbeat_throttle_interval=often,
        default_heartbeat_throttle_interval=often,
    )
    running = [f"talks-{number}" for number in range(count)]
    try:
        with ExitStack() as stack:
            async with worker:
                request = {"repository": "https://example.org/calc.git", "request": "Add sub", "phases": ["build"]}
                for name in running:
                    await perdure.submit(request, id=name)
                await more(client, "there", count // 20)
                while talkers.at_work < count:
                    await asyncio.sleep(0.2)
                said, began = talkers.said, time.monotonic()
                in_terminal = await top(home, stack)
                quiet, busy, took = await page(home, client, running, stack)
                rate = (talkers.said - said) / (time.monotonic() - began) / count
                talkers.over = True
                await asyncio.gather(*(perdure.delivery(name).result() for name in running))
    finally:
        await stop_server(home)
        shutil.rmtree(home.root.parent)
    answer = statistics.median(took)
    print(
        f"| {count} | {rate:.1f} | {in_terminal:.1f} % | {quiet:.1f} % | {busy:.1f} % "
        f"| {answer:.0f} ms, worst {max(took):.0f} ms |",
        flush=True,
    )
    return max(in_terminal, quiet, busy) < MOST.get(count, 10.0) and answer < ANSWER_MS


async def main() -> int:
    print("| Deliveries | changes a second, each | `top` | page | page, five new ones a second | `GET /` |")
    print("|---|---|---|---|---|---|")
    return int(not all([await measure(int(count)) for count in os.environ.get("DELIVERIES", "50 200").split()]))


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
