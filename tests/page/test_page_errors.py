"""Errors on the page, over real HTTP: each is a page or a line of ours that says what to do, whatever it was."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from temporalio.client import Client
from visitors import Visitor, shut_page, visiting

from perdure.client import Perdure
from perdure.local.page import ServedPage
from perdure.models.errors import PerdureError
from perdure.page.guard import Guard
from perdure.page.render import StreamedParts, stream_parts
from perdure.page.server import FORM_BYTES, build_application
from perdure.plugin import perdure_plugin

pytestmark = pytest.mark.timeout(60)

TOKEN = "0" * 64
DEFECT = "a defect <b>of a view</b>"
OURS = "this should not have happened"


async def fail(request: web.Request) -> web.StreamResponse:
    raise RuntimeError(DEFECT)


async def fail_midway(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"the beginning\n")
    raise PerdureError("its host is gone") if "host" in request.query else RuntimeError(DEFECT)


async def fail_in_stream(request: web.Request) -> web.StreamResponse:
    async def look() -> tuple[object, int]:
        return 1, 1

    async def compose_parts(_: int) -> StreamedParts:
        raise RuntimeError(DEFECT)

    return await stream_parts(request, look, compose_parts)


@asynccontextmanager
async def with_views(
    views: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]],
) -> AsyncIterator[Visitor]:
    """The page's application with views that break, behind its own guard."""
    client = await Client.connect("127.0.0.1:1", lazy=True, plugins=[perdure_plugin()])
    guard = Guard(token=TOKEN, names=frozenset({"127.0.0.1"}), port=None)
    app = build_application(Perdure(client), guard)
    app.add_routes([web.get(path, view) for path, view in views.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with visiting(ServedPage(f"http://127.0.0.1:{port}", TOKEN)) as visitor:
            yield visitor
    finally:
        await runner.cleanup()


async def test_an_exception_of_a_view_is_a_page_of_ours_with_one_line_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_views({"/broken": fail}) as ada:
        status, text = await ada.get("/broken")
        assert (status, OURS in text, "Back to what waits for you" in text) == (500, True, True), text
        assert "Traceback" not in text
        assert DEFECT not in text, "a message of an exception may hold anything"
        assert "log" in text, "it says where the whole story is"
        status, text = await ada.get("/broken", {"HX-Request": "true"})
        assert (status, OURS in text, "<html" in text) == (500, True, False), (
            "a fragment goes into a page that is there"
        )
    assert any(record.exc_info and record.levelno == logging.ERROR for record in caplog.records), "it is in the log"


async def test_an_exception_after_an_answer_began_cuts_it_off_and_adds_no_second_answer() -> None:
    async with with_views({"/midway": fail_midway}) as ada:
        for path in ("/midway", "/midway?host"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(ada.page.url.rpartition(":")[2]))
            (cookie,) = ada.session.cookie_jar
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie.key}={cookie.value}\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.read()
            writer.close()
            assert answer.count(b"HTTP/1.1") == 1, answer
            assert b"the beginning" in answer
            assert not answer.endswith(b"0\r\n\r\n"), "it does not look whole"


async def test_an_exception_in_an_event_stream_is_said_on_the_page_and_the_stream_goes_on() -> None:
    async with with_views({"/stream": fail_in_stream}) as ada, ada.session.get(ada.page.url + "/stream") as answer:
        told = await answer.content.readuntil(b"\n\n")
        assert answer.status == 200
        assert OURS.encode() in told
        assert b'hx-target="#gone"' in told
        assert not answer.content.at_eof()


async def test_what_the_server_itself_refuses_is_a_line_of_ours_too(tmp_path: Path) -> None:
    async with shut_page(tmp_path) as page, visiting(page) as ada:
        status, text = await ada.get("/no-such-page")
        assert (status, "there is no such page" in text, "Back to what waits" in text) == (404, True, True), text
        status, text = await ada.get("/deliveries/x/decide/approve")
        assert (status, "only takes a form" in text) == (405, True), text
        status, text = await ada.post("/no-such-page", {"note": "x" * (FORM_BYTES + 1)})
        assert (status, "at most 256 KiB" in text) == (413, True), text
        (cookie,) = ada.session.cookie_jar
        host = page.url.partition("//")[2]
        cookies = f"Cookie: {cookie.key}={cookie.value}".encode()
        cases = {
            (b"/", cookies + b"\xff"): (400, b"is no UTF-8 text"),
            (b"/deliveries/\xff", cookies): (400, b""),
            (b"/?back=\xff", cookies): (400, b""),
            (b"/activity?back=%ff", cookies): (400, b"back"),
            (b"/?token=%ff", cookies): (401, b"not this page's token"),
            (b"/?" + b"a" * 9000, cookies): (400, b""),
            (b"/", b"Cookie: " + b"a" * 9000): (400, b""),
        }
        for (path, header), (status, reason) in cases.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", int(host.rpartition(":")[2]))
            head = f" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode()
            writer.write(b"GET " + path + head + header + b"\r\n\r\n")
            answer = await reader.read()
            writer.close()
            first = re.match(rb"HTTP/1.[01] (\d+)", answer)
            assert first, (path, answer)
            assert (int(first[1]), reason in answer) == (status, True), (path[:40], answer[:600])
            assert b"Traceback" not in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /<script>alert(1)</script> HTTP/9\r\nAccept: text/html\r\n\r\n",
    ],
    ids=["no HTTP", "a long header", "a long address", "another version"],
)
async def test_what_is_no_http_request_is_refused_in_plain_text_and_leaves_no_traceback_anywhere(
    sent: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shut_page(tmp_path) as page:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(page.url.rpartition(":")[2]))
        writer.write(sent)
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0].endswith(b"400 Bad Request")
    assert b"Content-Type: text/plain" in head
    assert b"Traceback" not in body
    assert [record for record in caplog.records if record.exc_info and record.levelno > logging.DEBUG] == []
