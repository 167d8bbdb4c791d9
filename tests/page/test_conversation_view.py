"""A delivery's conversation on the page: which rows it has, and what it costs to be looked at."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, Interceptor, OutboundInterceptor
from visitors import PLAN, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.models.crash import CrashPoint
from perdure.models.events import Event, EventType
from perdure.page.render import LOOK_EVERY_S
from perdure.page.server import serve_page
from perdure.page.views.conversation import ROWS_SHOWN, answer_fields, rows_before, sent_messages
from perdure.plugin import perdure_plugin
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, until
from tests.temporal_server import joined
from tests.waiting import patient

VIEWERS, SECONDS = 5, 4


def happened(*kinds: tuple[EventType, dict[str, Any]]) -> list[Event]:
    return [
        Event(
            offset=place,
            time="2026-01-02T03:04:05.678Z",
            delivery="calc-sub",
            backlog=None,
            item=None,
            type=type,
            step="implement" if type is EventType.ACTIVITY else None,
            attempt=1,
            turn=place if type is EventType.ACTIVITY else None,
            data=data,
        )
        for place, (type, data) in enumerate(kinds)
    ]


def test_of_400_turns_a_page_has_the_newest_and_each_older_portion_goes_on_where_it_ended() -> None:
    events = happened((EventType.STARTED, {}), *[(EventType.ACTIVITY, {"checkpoint": "c"})] * 400)
    shown, end = list[int](), len(events)
    while end:
        rows, older = rows_before(events, end)
        assert len(rows) <= ROWS_SHOWN
        shown, end = [event.offset for event in rows] + shown, older
    assert shown == list(range(401))


def test_a_message_is_read_once_a_turn_says_so() -> None:
    say = {"name": "say", "said": {"id": "a", "text": "mind the sign"}}
    other = {"name": "say", "said": {"id": "b", "text": "and the time"}}
    wrong = {"name": "say", "said": "nobody's"}
    sent = [(EventType.SAID, one) for one in (say, say, wrong, other)]
    turn = (EventType.ACTIVITY, {"checkpoint": "c", "read": ["a"]})
    assert [one.read_by for one in sent_messages(happened(*sent))] == ["", ""]
    assert [(one.text, one.read_by) for one in sent_messages(happened(*sent, turn))] == [
        ("mind the sign", "implement, turn 4"),
        ("and the time", ""),
    ]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"kind": "feature", "files": ["a", "b"]}', [("kind", "feature"), ("files", "a\nb")]),
        ('{"tasks": [{"title": "Write", "role": null}], "n": 3}', [("tasks", "Write"), ("n", "3")]),
        ('{"issues": [{"line": 5, "severity": "tech_debt", "title": "No test"}]}', [("issues", "No test · tech_debt")]),
        ("plain words", []),
        ("{not json", []),
        ('{"a": ' + "[" * 100_000, []),
        ('{"a":' * 660 + "1" + "}" * 660, []),
    ],
)
def test_an_answer_in_json_is_shown_by_its_fields(text: str, fields: list[tuple[str, str]]) -> None:
    assert answer_fields(text) == fields


class Described(Interceptor):
    """Counts which workflows were described."""

    def __init__(self) -> None:
        self.ids = Counter[str]()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        counts = self.ids

        class Counting(OutboundInterceptor):
            async def describe_workflow(self, input: Any) -> Any:
                counts[input.id] += 1
                return await super().describe_workflow(input)

        return Counting(next)


@pytest.mark.timeout(120)
async def test_many_who_look_cost_what_one_does_and_one_that_vanishes_is_said_to_be_gone(tmp_path: Path) -> None:
    home, described = Home(tmp_path / "home"), Described()
    async with joined(home), contextlib.AsyncExitStack() as stack:
        info = await find_server(home)
        assert info is not None
        client = await Client.connect(
            info.address, namespace=info.namespace, plugins=[perdure_plugin()], interceptors=[described]
        )
        await stands_waiting(client, "shown", PLAN)
        page = await stack.enter_async_context(
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=19350))
        )
        ada = await stack.enter_async_context(visiting(page))
        status, text = await ada.get("/deliveries/shown")
        assert (status, "started: Add sub" in text, "It is not there" in text) == (200, True, False)
        assert ("rows=no" in text, "rows=no" in (await ada.get("/deliveries/shown?before=1"))[1]) == (False, False)
        assert "rows=no" in (await ada.get("/deliveries/shown?before=0"))[1], "new rows do not follow older ones"
        for wrong in ("?before=x", "/conversation?before=-1", "/conversation?of=¹"):
            assert (await ada.get(f"/deliveries/shown{wrong}"))[0] == 400, wrong
        streams = [
            await stack.enter_async_context(ada.session.get(f"{page.url}/live/deliveries/shown?from=1"))
            for _ in range(VIEWERS)
        ]
        for stream in streams:
            await told(stream.content, "Review and decide")
        before, began = described.ids["shown"], asyncio.get_running_loop().time()
        await asyncio.sleep(SECONDS)
        looks = (asyncio.get_running_loop().time() - began) / LOOK_EVERY_S
        assert described.ids["shown"] - before <= looks + 2, "as often as for one"
        await client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=info.namespace, workflow_execution=WorkflowExecution(workflow_id="shown")
            )
        )
        for stream in streams:
            last = await told(stream.content, "It is not there any more")
            assert 'hx-target="#head"' not in last, "what was seen of it stays"

        async def gone() -> bool:
            return (await ada.get("/deliveries/shown"))[0] == 400

        await until(gone)


async def told(stream: Any, words: str) -> str:
    """All that a page is sent up to these words."""
    text = ""
    async with asyncio.timeout(patient(60)):
        while words not in text:
            line = (await stream.readline()).decode()
            assert line, "the stream has ended"
            text += line
    return text


@pytest.mark.timeout(150)
async def test_a_workers_death_is_a_row_that_names_who_took_over(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19700)) as page,
        visiting(page) as ada,
    ):
        first = engine.worker(PERDURE_CRASH_AT=CrashPoint.AFTER_REPLY)
        submitted = await engine.submit(origin, **BUILT)
        assert await until(lambda: first.poll() == -signal.SIGKILL)
        second = engine.worker()
        await finished(submitted, engine)
        _, text = await ada.get("/deliveries/calc-sub")
        (row,) = re.findall(r'<li class="event event-worker_death">.*?class="happened">(.*?)</span>', text)
        assert f"its worker died; try 2 goes on at {second.pid}@" in row
        assert str(first.pid) not in row


LINGERS = """
[[line]]
step = "implement"
turn = 1
say = "I will wait for <b>it</b> first."
use = [{ tool = "bash", input = { command = "while [ ! -e go ]; do sleep 0.1; done; rm go" } }]
[[line]]
step = "implement"
say = "Add sub"
"""


@pytest.mark.timeout(200)
async def test_the_turn_in_flight_is_the_last_row_with_its_words_and_its_workers_death_until_its_own_row_comes(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    running = re.compile(r'<div id="running">(.*?)</div>\s*</div>\s*</div>\s*<div id="now">', re.DOTALL)
    async with (
        Engine.open(tmp_path, LINGERS, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19750)) as page,
        visiting(page) as ada,
    ):
        first = engine.worker()
        submitted = await engine.submit(origin, **BUILT)

        async def shown(words: str) -> str | None:
            _, text = await ada.get("/deliveries/calc-sub")
            (part,) = running.findall(text)
            return part if words in part else None

        part = await until(lambda: shown("I will wait for &lt;b&gt;it&lt;/b&gt; first."), timeout=120)
        assert "Implement, turn 1" in part
        assert "died" not in part
        first.kill()
        second = engine.worker()
        part = await until(lambda: shown(f"its worker died; try 2 goes on at {second.pid}@"), timeout=120)
        async with ada.session.get(f"{page.url}/live/deliveries/calc-sub?from=99") as stream:
            await told(stream.content, f"its worker died; try 2 goes on at {second.pid}@")
        part = await until(lambda: shown("I will wait for"), timeout=120)
        (engine.home.tree("calc-sub") / "go").touch()
        await finished(submitted, engine)
        _, text = await ada.get("/deliveries/calc-sub")
        assert text.count("I will wait for &lt;b&gt;it") == 1
        assert text.count("its worker died; try 2") == 1
        (part,) = running.findall(text)
        assert not part.strip()
