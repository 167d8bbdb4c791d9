"""A model server that answers few requests at a time: the others wait in the worker, and say so."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.worker import attempt
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.pace import Pace
from perdure.adapters.worker.turn.builtin_agent import ask_model
from perdure.adapters.worker.turn.paid_replies import PaidReplies
from perdure.models.delivery.turn import TurnInput
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.rehearsal.record import RecordedCall
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.rehearsal.wires.base import RehearsalWire
from tests.homes import fresh_home
from tests.waiting import patient, until

QUESTION = ModelRequest(
    model="claude-sonnet-5-5",
    max_tokens=1000,
    effort="low",
    system="Step: implement\n\nWork.",
    tools=(),
    messages=({"role": "user", "content": [{"type": "text", "text": "hello"}]},),
    schema=None,
)
WORK = TurnInput(delivery="one", step=Step.IMPLEMENT, attempt=1, turn=1, checkpoint="c", contract="0" * 64)


class Counting(Rehearsal):
    """A server that counts the requests that are under way, and answers them once `opened` is set."""

    def __init__(self) -> None:
        super().__init__(Screenplay.parse('[[line]]\nsay = "fine"\n'))
        self.under_way = self.most = self.came = 0
        self.opened = asyncio.Event()

    async def _answer_request(self, wire: RehearsalWire, http: web.Request, call: RecordedCall) -> web.StreamResponse:
        self.came += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.opened.wait()
            await asyncio.sleep(0.05)
            return await super()._answer_request(wire, http, call)
        finally:
            self.under_way -= 1


class Shown(dict[str, Any]):
    """What an attempt shows of itself, kept in `said`."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def update(self, facts: Any) -> None:
        self.said.append(str(facts.get("doing")))


class Deliveries:
    """Deliveries that ask one server, spread over two workers of one home."""

    def __init__(self, root: Path, url: str, at_once: int | None) -> None:
        self.home = fresh_home(root / "home")
        self._root = root
        self.models = [Model("sk-rehearsal-0123456789", url) for _ in range(2)]
        self._paces = [Pace.for_model(self.home, model, at_once) for model in self.models]
        self.shown: dict[int, Shown] = {}
        self.books: dict[int, PaidReplies] = {}

    def begin(self, number: int) -> asyncio.Task[Reply]:
        return asyncio.create_task(self._ask(number))

    async def _ask(self, number: int) -> Reply:
        attempt.current_facts.set(self.shown.setdefault(number, Shown()))
        directory, worker = self._root / str(number), number % 2
        self.books[number] = PaidReplies(ReplyStore(directory), SpendLog(directory), self._paces[worker])
        return await ask_model(self.books[number], self.models[worker], QUESTION, WORK, "run")

    def waiting(self) -> list[int]:
        return [number for number, shown in self.shown.items() if shown.said[-1:] == [WAITS]]

    async def close(self) -> None:
        for model in self.models:
            await model.aclose()


WAITS = "waiting for one of 2 places: other requests to the model's server are under way"


@pytest.mark.timeout(60)
async def test_no_more_requests_are_under_way_than_the_server_answers_and_the_others_say_that_they_wait(
    tmp_path: Path,
) -> None:
    async with Counting() as server:
        deliveries = Deliveries(tmp_path, server.url, 2)
        tasks = [deliveries.begin(number) for number in range(8)]
        await until(lambda: server.under_way == 2 and len(deliveries.waiting()) == 6)
        server.opened.set()
        replies = await asyncio.gather(*tasks)
        await deliveries.close()
    assert [reply.message["content"][0]["text"] for reply in replies] == ["fine"] * 8
    assert (server.most, server.came) == (2, 8)
    assert sum(books.waited_s > 0 for books in deliveries.books.values()) >= 6, "the time limit does not count it"
    assert all(books.waited_s > books.paced_s for books in deliveries.books.values()), "not held to be a refusal"


@pytest.mark.timeout(60)
async def test_without_the_setting_all_requests_go_at_once(tmp_path: Path) -> None:
    async with Counting() as server:
        deliveries = Deliveries(tmp_path, server.url, None)
        tasks = [deliveries.begin(number) for number in range(8)]
        await until(lambda: server.under_way == 8)
        server.opened.set()
        await asyncio.gather(*tasks)
        await deliveries.close()


@pytest.mark.timeout(60)
async def test_a_wait_that_is_cancelled_ends_at_once_without_a_request_and_a_request_frees_its_place(
    tmp_path: Path,
) -> None:
    async with Counting() as server:
        deliveries = Deliveries(tmp_path, server.url, 2)
        under_way = [deliveries.begin(number) for number in range(2)]
        await until(lambda: server.under_way == 2)
        waiting = [deliveries.begin(number) for number in range(2, 5)]
        await until(lambda: len(deliveries.waiting()) == 3)
        for task in (waiting[0], under_way[0]):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, patient(5))
        await until(lambda: server.came == 3)
        server.opened.set()
        await asyncio.gather(under_way[1], *waiting[1:])
        await deliveries.close()
    assert server.came == 4, "but for the one whose wait was cancelled"
    assert SpendLog(tmp_path / "2").count_repeats() == (0, 0), "what only waited was never asked"


HOLDER = """\
import asyncio, sys
from pathlib import Path
from perdure.adapters.agents.builtin.model import Model
from perdure.adapters.system.home import Home
from perdure.adapters.worker.pace import Pace

async def hold():
    pace = Pace.for_model(Home(Path(sys.argv[1])), Model("sk-rehearsal-0123456789", sys.argv[2]), 1)
    async with pace.hold_slot(print):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


@pytest.mark.timeout(60)
async def test_the_place_of_a_worker_that_is_killed_is_free(tmp_path: Path) -> None:
    async with Counting() as server:
        server.opened.set()
        deliveries = Deliveries(tmp_path, server.url, 1)
        deliveries.home.key()
        command = [sys.executable, "-c", HOLDER, str(deliveries.home.root), server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            try:
                assert other.stdout is not None
                assert await asyncio.to_thread(other.stdout.readline) == b"held\n"
                task = deliveries.begin(0)
                await until(lambda: deliveries.shown and "waiting for one of 1 place:" in str(deliveries.shown[0].said))
                assert server.came == 0
            finally:
                other.send_signal(signal.SIGKILL)
        await asyncio.wait_for(task, patient(10))
        await deliveries.close()


def test_the_setting_is_a_number_of_requests(tmp_path: Path) -> None:
    assert load_host_config({}).model.at_once is None
    assert load_host_config({"PERDURE_MODEL_AT_ONCE": "3"}).model.at_once == 3
    with pytest.raises(BadInput) as caught:
        load_host_config({"PERDURE_MODEL_AT_ONCE": "0"})
    assert "PERDURE_MODEL_AT_ONCE" in str(caught.value)
