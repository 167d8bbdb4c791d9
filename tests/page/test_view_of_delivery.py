"""A delivery on the page, for real: it is shown while it waits without being woken, and steered from there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from visitors import visiting

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests.engine import HAPPY, Engine, finished, make_target, until
from tests.waiting import patient

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">'
PARTS = {
    "timeline": 'class="timeline"',
    "plan": "There is no sub.",
    "change": '<span class="code-f">sub</span>(a, b):',
    "tests": "1 passed",
    "review": "Fine.",
    "cost": "all steps",
}
PICTURE = "/deliveries/calc-sub/pictures/"


@pytest.mark.timeout(240)
async def test_a_delivery_is_shown_while_it_waits_without_being_woken_and_goes_on_from_its_page(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(
            engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18400), "http://ui.example/workflows"
        ) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        submitted = await engine.submit(origin, request=f"Add sub {EVIL}", gates=["plan"])
        delivery = submitted.delivery
        asked = await until(lambda: _asked(engine))
        before = await delivery.describe()

        async with ada.session.get(page.url + "/live/deliveries/calc-sub") as stream:
            first = await _event(stream.content)
            status, text = await ada.get("/deliveries/calc-sub")
            assert status == 200
            for shown in (first, text):
                assert asked.summary in shown
                assert EVIL not in shown
                assert "style=" not in shown, "the page's policy would leave it out"
            assert "&lt;script&gt;alert(1)" in text
            await asyncio.sleep(3)
            after = await delivery.describe()
            assert (after.run_id, after.events) == (before.run_id, before.events), "looking costs no event"

            assert (await ada.post("/deliveries/calc-sub/say", {"text": " ", "once": "1"}))[0] == 400
            for _ in range(2):  # a double click
                status, _ = await ada.post("/deliveries/calc-sub/say", {"text": "mind the sign", "once": "abc"})
                assert status == 303
            assert (await ada.post("/deliveries/calc-sub/hold", {"text": "let me look"}))[0] == 303
            await delivery.approve(asked.target)
            assert "let me look" in await _later(stream.content, "held")
            assert (await ada.post("/deliveries/calc-sub/resume", {}))[0] == 303
            result = await finished(submitted, engine)
            assert result.status == "delivered"
            last = await _later(stream.content, "delivered</span>")
            assert "tests" in last
        heard = [
            c for c in engine.rehearsal.calls if c.step == "implement" and "mind the sign" in str(c.body["messages"])
        ]
        assert str(heard[0].body["messages"]).count("mind the sign") == 1

        status, text = await ada.get("/deliveries/calc-sub")
        assert status == 200
        assert 'href="http://ui.example/workflows/calc-sub"' in text
        for part, expected in PARTS.items():
            status, text = await ada.get(f"/deliveries/calc-sub/{part}")
            assert (status, expected in text, EVIL in text) == (200, True, False), part
        for bad in ("x", "..%2f..%2fpage.token", "0" * 63, "0" * 64, "A" * 64):
            status, text = await ada.get(PICTURE + bad)
            assert status in (404, 502), bad
            assert page.token not in text
        status, text = await ada.post("/deliveries/calc-sub/rewind", {"to": "implement:99"})
        assert status == 400
        assert (await ada.get("/deliveries/no-such"))[0] == 400


async def _asked(engine: Engine):  # type: ignore[no-untyped-def]
    return (await engine.perdure.delivery("calc-sub").describe()).pending_decision


async def _event(stream: asyncio.StreamReader | object) -> str:
    """The next part that the page sends."""
    lines: list[str] = []
    async with asyncio.timeout(patient(60)):
        while True:
            line = (await stream.readline()).decode()  # type: ignore[union-attr]
            assert line, "the stream has ended"
            if line.startswith("data: "):
                lines.append(line.removeprefix("data: "))
            elif not line.strip() and lines:
                return "".join(lines)


async def _later(stream: asyncio.StreamReader | object, words: str) -> str:
    while words not in (text := await _event(stream)):
        pass
    return text
