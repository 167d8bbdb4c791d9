"""Activity of everything, followed once however many look, and gone on with exactly where it broke."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client, Interceptor, OutboundInterceptor
from visitors import PLAN, Visitor, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.client.history.event_feed import all_events
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.models.events import Event, EventType
from perdure.page.server import serve_page
from perdure.page.views.activity import SHOWN, StreamPosition, group_events, newest_events
from perdure.page.views.conversation import has_row
from perdure.plugin import perdure_plugin
from tests.cli.decision_fixtures import Desk, desk
from tests.engine import until
from tests.temporal_server import joined
from tests.waiting import patient

__all__ = ["desk"]

VIEWERS = 5


class Followed(Interceptor):
    """The histories that are being followed, by the id of their delivery, each as often as it is."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        followed = self.ids

        class Noting(OutboundInterceptor):
            def fetch_workflow_history_events(self, input: Any) -> Any:
                if input.wait_new_event:
                    followed.append(input.id)
                return super().fetch_workflow_history_events(input)

        return Noting(next)


@contextlib.asynccontextmanager
async def looks(visitor: Visitor) -> AsyncIterator[list[str]]:
    """All that somebody's browser is sent while it shows the activity: the events' rows."""
    rows: list[str] = []

    async def read(answer: aiohttp.ClientResponse) -> None:
        async for chunk in answer.content:
            rows.append(chunk.decode())

    async with visitor.session.get(visitor.page.url + "/live/activity", timeout=aiohttp.ClientTimeout(None)) as answer:
        assert answer.status == 200
        reading = asyncio.create_task(read(answer))
        try:
            yield rows
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.timeout(240)
async def test_many_who_look_cost_what_one_does_and_each_reads_every_event_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with joined(home), contextlib.AsyncExitStack() as stack:
        info = await find_server(home)
        assert info is not None
        seen = Followed()
        client = await Client.connect(
            info.address, namespace=info.namespace, plugins=[perdure_plugin()], interceptors=[seen]
        )
        await stands_waiting(client, "before", PLAN)
        page = await stack.enter_async_context(
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=19300))
        )
        visitors = [await stack.enter_async_context(visiting(page)) for _ in range(VIEWERS)]
        shown = [await stack.enter_async_context(looks(one)) for one in visitors]
        await until(lambda: "before" in seen.ids, patient(60))
        await stands_waiting(client, "after", PLAN)
        for rows in shown:
            await until(lambda rows=rows: "after" in "".join(rows), patient(60))  # type: ignore[misc]
            assert "".join(rows).count("id: ") == 1, "once, and nothing of what was before"
        assert sorted(seen.ids) == ["after", "before"], "each history is followed once, for all of them"
        await stack.aclose()
        await until(lambda: not any("_follow" in repr(task.get_coro()) for task in asyncio.all_tasks()), patient(60))


_BLOCK = re.compile(r"id: (\S+)\n((?:data: .*\n)+)\n")


def event(stream: int, offset: int, ms: int) -> Event:
    time = (datetime.now(UTC) + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Event(offset=offset, time=time, delivery=f"d{stream}", type=EventType.SAID)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=40))
def test_whatever_was_told_in_whatever_order_the_rest_is_told_once(steps: list[tuple[int, int]]) -> None:
    offsets, ms, told = Counter[int](), 0, list[Event]()
    start = datetime.now(UTC).replace(microsecond=0)
    for stream, later in steps:
        ms += later
        at = (start + timedelta(milliseconds=ms + 1)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told.append(Event(offset=offsets[stream], time=at, delivery=f"d{stream}", type=EventType.SAID))
        offsets[stream] += 1
    streams = [[one for one in told if one.delivery == f"d{stream}"] for stream in range(5)]
    live = [one for stream in reversed(streams) for one in stream]  # as late as can be
    for broken in range(len(live) + 1):
        position = StreamPosition(start)
        assert [position.advance_past(one) for one in live[:broken]] == [True] * broken
        after = StreamPosition.parse(str(position))
        assert {id(one) for one in told if after.advance_past(one)} == {id(one) for one in live[broken:]}
        assert not any(after.advance_past(one) for one in told)


def test_a_position_fits_into_a_header_however_many_streams_there_are() -> None:
    position = StreamPosition(datetime.now(UTC))
    assert all(position.advance_past(event(stream, 99_999, stream + 1)) for stream in range(2000))
    assert len(str(position)) < 6000
    assert not StreamPosition.parse(str(position)).advance_past(event(0, 99_999, 1))


@pytest.mark.parametrize("text", ["", "x", "1~", "2026-01-01T00:00:00Z", "9" * 16, "1~zz.1", "-1"])
def test_what_is_no_position_is_now(text: str) -> None:
    assert abs(StreamPosition.parse(text).since - datetime.now(UTC)) < timedelta(minutes=1)
    assert datetime.now(UTC) - StreamPosition.parse("0").since < timedelta(days=1, minutes=1)


def test_pages_of_the_activity_have_each_event_once_in_the_order_of_time() -> None:
    told = [
        Event(offset=n, time=f"2026-01-02T03:{n // 600:02}:{n // 10 % 60:02}.000Z", delivery="d", type=EventType.SAID)
        for n in range(2 * SHOWN + 15)
    ]
    shown, before, pages = list[Event](), "9", 0
    while before:
        page, before_next = newest_events([event for event in told if event.time < before])
        assert len(page) <= SHOWN
        shown, before, pages = [*shown, *page], before_next, pages + 1
    assert pages == 3
    assert sorted(event.offset for event in shown) == list(range(len(told)))
    assert [event.time for event in shown] == sorted((event.time for event in told), reverse=True)
    same = [event.model_copy(update={"time": told[0].time}) for event in told]
    assert newest_events(same) == (same, ""), "none can be left for the next page"


def test_the_activity_groups_by_delivery_and_step_the_newest_first() -> None:
    at = "2026-01-02T03:04:05.000Z"
    told = [
        Event(offset=n, time=at, delivery=id, type=EventType.ACTIVITY, step=step)
        for n, (id, step) in enumerate((("b", "plan"), ("a", "implement"), ("b", "plan"), ("a", None)))
    ]
    groups = [(group.subject, group.step, [event.offset for event in group.events]) for group in group_events(told)]
    assert groups == [("b", "plan", [0, 2]), ("a", "implement", [1]), ("a", "", [3])]


async def first(visitor: Visitor, position: str, count: int = 1) -> list[tuple[str, str]]:
    """Id and row of the next events; then the stream is broken, and what came behind them is lost."""
    timeout, seen = aiohttp.ClientTimeout(total=patient(60)), ""
    url = f"{visitor.page.url}/live/activity"
    async with visitor.session.get(url, headers={"Last-Event-ID": position}, timeout=timeout) as answer:
        async for chunk in answer.content.iter_any():
            seen += chunk.decode()
            if len(found := _BLOCK.findall(seen)) >= count:
                return found[:count]
    raise AssertionError(seen)


@pytest.mark.timeout(240)
async def test_a_stream_that_breaks_after_every_event_tells_each_event_once(desk: Desk, tmp_path: Path) -> None:
    began, ids = datetime.now(UTC) - timedelta(seconds=5), ["one", "two"]
    async with (
        serve_page(desk.perdure, ensure_page_token(Home(tmp_path / "home")), ListenAddress(port=19400)) as page,
        visiting(page) as ada,
        desk.worker(),
    ):
        position, broken = str(round(began.timestamp() * 1000)), list[str]()
        begin = position
        await asyncio.gather(*map(desk.submit, ids))
        decided = False
        while sum("event event-ended" in row for row in broken) < len(ids):
            ((position, row),) = await first(ada, position)
            broken.append(row)
            if not decided and sum("event event-gate" in row for row in broken) == len(ids):
                decided = True
                for id in ids:
                    await desk.perdure.delivery(id).approve(by="ada")
        every = [event async for event in all_events(desk.client, began)]
        assert max(Counter((event.delivery, event.time) for event in every).values()) > 1, "this shows nothing"
        happened = [event for event in every if has_row(event)]
        whole = [row for _, row in await first(ada, begin, len(happened))]
        assert Counter(broken) == Counter(whole)
        for id in ids:
            of = [[row for row in rows if f"/deliveries/{id}" in row] for rows in (broken, whole)]
            assert of[0] == of[1], "in its order"
