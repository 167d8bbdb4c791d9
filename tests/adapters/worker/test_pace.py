"""A model API that answers 429: everybody with the key waits, and nobody fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply
from perdure.adapters.worker import attempt
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.pace import PACE_GAP_S, Pace
from perdure.adapters.worker.turn.builtin_agent import ask_model
from perdure.adapters.worker.turn.paid_replies import PaidReplies
from perdure.models.delivery.turn import TurnInput
from perdure.models.errors import ModelUnavailable
from perdure.models.phases import Step
from perdure.rehearsal.record import RecordedCall
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from perdure.rehearsal.wire import ApiRefusal
from perdure.rehearsal.wires.base import RehearsalWire
from tests.waiting import patient

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
PAUSE_S = 0.8


class Limited(Rehearsal):
    """Stands in for an API that lets `most` requests through in a second, and asks all others to wait PAUSE_S.

    The first `together` are answered when all of them have come. `early`: requests that came although everybody who
    might have sent them had been asked to wait.
    """

    def __init__(self, *, most: int, together: int) -> None:
        super().__init__(Screenplay.parse('[[line]]\nsay = "fine"\n'))
        self._most, self._together = most, together
        self._came = 0
        self._let: list[float] = []
        self._all_here = asyncio.Event()
        self.closed_until = 0.0
        self.refused = self.early = 0

    async def _answer_request(self, wire: RehearsalWire, http: web.Request, call: RecordedCall) -> web.StreamResponse:
        self._came += 1
        if self._came <= self._together:
            if self._came == self._together:
                self._all_here.set()
            await self._all_here.wait()
            self.closed_until = time.time() + PAUSE_S
        elif time.time() < self.closed_until:
            self.early += 1
        now = time.monotonic()
        self._let = [one for one in self._let if one > now - 1]
        if self._came <= self._together or len(self._let) >= self._most:
            self.refused += 1
            raise ApiRefusal(429, "rate_limit_error", "slow down", retry_after=PAUSE_S)
        self._let.append(now)
        return await super()._answer_request(wire, http, call)


class Asking:
    """Deliveries that ask at once, spread over two workers of one home; `shown`: what each was seen doing."""

    def __init__(self, root: Path, url: str) -> None:
        self._root = root
        self.models = [Model("sk-rehearsal-0123456789", url) for _ in range(2)]
        self.shown: dict[int, list[str]] = {}

    async def ask(self, number: int) -> Reply:
        facts = Facts(self.shown.setdefault(number, []))
        attempt.current_facts.set(facts)
        directory = self._root / str(number)
        books = PaidReplies(ReplyStore(directory), SpendLog(directory), Pace(self._root / "pace" / "key"))
        return await ask_model(books, self.models[number % 2], QUESTION, WORK, "run")


class Facts(dict[str, Any]):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def update(self, facts: Any) -> None:
        self._said.append(str(facts.get("doing")))


@pytest.mark.timeout(60)
async def test_eight_deliveries_at_once_wait_together_when_the_key_is_limited_and_none_fails(tmp_path: Path) -> None:
    async with Limited(most=6, together=8) as api:
        asking = Asking(tmp_path, api.url)
        first = [asyncio.create_task(asking.ask(number)) for number in range(8)]
        while not (tmp_path / "pace" / "key").exists():
            await asyncio.sleep(0.01)
        late = [asyncio.create_task(asking.ask(number)) for number in range(8, 12)]  # they begin in the pause
        replies = await asyncio.gather(*first, *late)
        for model in asking.models:
            await model.aclose()
    assert [reply.message["content"][0]["text"] for reply in replies] == ["fine"] * 12
    assert api.refused >= 8
    assert api.early == 0, "requests in a pause that everybody had been told of"
    silent = [said for said in asking.shown.values() if not any("rate limit: goes on in" in words for words in said)]
    assert not silent
    assert [SpendLog(tmp_path / str(number)).count_repeats() for number in range(12)] == [(0, 0)] * 12


async def test_a_wait_ends_at_once_when_it_is_cancelled(tmp_path: Path) -> None:
    pace, told = Pace(tmp_path / "key"), asyncio.Event()
    pace.record_refusal(ModelUnavailable("429", retry_after=500, limit_reason="rate limit"))
    waiting = asyncio.create_task(pace.wait_for_turn(lambda _: told.set()))
    await told.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, patient(5))


def waits(pace: Pace) -> float:
    return pace._reserve_next()[0]


def test_after_a_pause_requests_go_one_by_one_and_faster_with_each_reply(tmp_path: Path, clock: Clock) -> None:
    pace = Pace(tmp_path / "key")
    for _ in range(8):  # of one moment
        pace.record_refusal(ModelUnavailable("429", retry_after=20, limit_reason="rate limit"))
    assert 20 <= waits(pace) <= 22
    clock.now += 22
    assert waits(pace) <= 0
    assert waits(Pace(tmp_path / "key")) == PACE_GAP_S[1], "the next, in whatever worker, after the first gap"
    while (tmp_path / "key").exists():
        before = waits(pace)
        pace.record_reply()
        assert waits(pace) < before or not (tmp_path / "key").exists()
        clock.now += 1
        waits(pace)
    assert waits(pace) == 0.0


def test_a_pause_that_no_answer_names_doubles_with_each_that_comes_after_it(tmp_path: Path, clock: Clock) -> None:
    pace, seen = Pace(tmp_path / "key"), []
    for _ in range(9):
        pace.record_refusal(ModelUnavailable("529", limit_reason="API is overloaded"))
        seen.append(waits(pace))
        clock.now += 70
        assert waits(pace) <= 0
    doubled = (1, 2, 4, 8, 16, 32, 60, 60, 60)
    assert all(least <= pause <= 1.1 * least for pause, least in zip(seen, doubled, strict=True)), seen


FAR = '{"until": 9e99, "next": 0, "gap": 1, "why": ""}'


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"until": "soon"}', FAR])
def test_a_damaged_file_or_one_of_another_time_holds_nobody_back(tmp_path: Path, damage: str) -> None:
    (tmp_path / "key").write_text(damage)
    assert waits(Pace(tmp_path / "key")) == 0.0
    assert not (tmp_path / "key").exists()


class Clock:
    now = 1_700_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("perdure.adapters.worker.pace.time", made)
    return made
