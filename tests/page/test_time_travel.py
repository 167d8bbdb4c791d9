"""Fork, rewind and comparison on the page, for real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from visitors import visiting

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests.engine import BUILT, HAPPY, Engine, make_target, pulls, until

EVIL = "<script>alert(1)</script>"


@pytest.mark.timeout(300)
async def test_a_sibling_is_forked_on_the_page_shown_beside_its_origin_and_the_origin_rewound_after_its_end(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18420)) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        delivery = (await engine.submit(origin, request=f"Add sub {EVIL}", **BUILT)).delivery
        first = await delivery.result()
        assert first.status == "delivered"

        form = {"to": "implement:2", "text": EVIL, "model": "claude-opus-5-5"}
        async with ada.session.post(
            f"{page.url}/deliveries/calc-sub/fork", data={**form, "csrf": ada.csrf}, allow_redirects=False
        ) as answer:
            assert answer.status == 303
            sibling = answer.headers["Location"].rpartition("/")[2]
        assert (await engine.perdure.delivery(sibling).result()).status == "delivered"
        status, text = await ada.get(f"/deliveries/{sibling}")
        assert status == 200
        assert 'name="other" required value="calc-sub"' in text

        status, text = await ada.get(f"/compare?one=calc-sub&other={sibling}")
        assert status == 200
        assert f"{sibling} is forked from calc-sub at implement:2" in text
        title = '<a href="/deliveries/calc-sub">Add sub &lt;script&gt;alert(1)&lt;/script&gt;</a>'
        assert f'{title} <span class="dim">calc-sub</span>' in text
        assert "#1</span>" in text
        assert re.search(r'<th scope="row">calc.py</th><td>\+\d+ −\d+</td><td>the same</td>', text), text
        assert EVIL not in text
        for wrong in ("/compare", "/compare?one=calc-sub&other=calc-sub", f"/compare?one=calc-sub&other={EVIL}"):
            status, text = await ada.get(wrong)
            assert status == 400, wrong
            assert EVIL not in text

        for said in ("rewound: it takes implement:2 anew", "just so before"):
            assert (await ada.post("/deliveries/calc-sub/rewind", {"to": "implement:2"}))[0] == 303
            assert said in (await ada.get("/deliveries/calc-sub"))[1]

        async def again() -> bool:
            seen = await delivery.describe()
            return seen.run_id != first.run_id and not seen.running

        await until(again, 60)
        assert (await delivery.result()).status == "delivered"
        assert len(pulls(origin)) == 2, "one of each"
