"""The review in a real browser, of real changes: huge ones open, and nothing in one of a stranger's making acts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from browsing import PATIENCE_MS, chromium, looking, open_review, question
from playwright.async_api import Browser, expect
from visitors import visiting

from perdure.local.page import ListenAddress, ServedPage, ensure_page_token
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.highlight import color_sources
from perdure.page.server import serve_page
from perdure.render.change import FILE_LINES_SHOWN
from tests.engine import BUILT, HAPPY, Engine, make_target, until
from tests.repositories import CALC

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

WRITTEN = """import os
os.makedirs("tests", exist_ok=True)
evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
open("many.py", "w").write("".join(f"x{n} = {n}\\n" for n in range(20000)))
open("calc.py", "a").write("\\n\\ndef sub(a, b):\\n    return a - b  # " + evil + "\\n")
open("calc.py", "a").write("# \\u202eright to left \\x1b[31m\\n</table></main><form action=/leave>\\n")
open("tests/test_new.py", "w").write("# no test, and no newline at its end")
open(evil.replace("/", "") + ".py", "w").write("pass\\n")
open("zlong.js", "w").write("let x = '" + "y" * 5000000 + "'\\n")
open("binary.bin", "wb").write(bytes(range(256)) * 40)
"""
PLAYED = HAPPY.replace(
    "printf '\\\\n\\\\ndef sub(a, b):\\\\n    return a - b\\\\n' >> calc.py && sleep 0.5 && echo written",
    "python3 write.py",
)


DRAFTED = {"config": BUILT["config"].replace("[ship]", '[delivery]\non_failure = "draft"\n[ship]')}
"""A line of 5 MB and hidden characters are blockers: it is shown all the same, as a draft."""


@dataclass
class Reviewed:
    browser: Browser
    page: ServedPage
    engine: Engine
    asked: PendingDecision


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reviewed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Reviewed]:
    root = tmp_path_factory.mktemp("review")
    assert PLAYED != HAPPY
    origin = make_target(root / "calc.git", files={**CALC, "write.py": WRITTEN})
    async with Engine.open(root, PLAYED, ports=26100) as engine, chromium() as browser:
        engine.worker()
        submitted = await engine.submit(origin, request="Add sub", gates=["pull_request"], **BUILT | DRAFTED)

        async def asked() -> PendingDecision | None:
            return (await submitted.delivery.describe()).pending_decision

        waits: Any = await until(asked, timeout=120)
        place = ListenAddress(port=19400)
        async with serve_page(engine.perdure, ensure_page_token(engine.home), place) as page:
            yield Reviewed(browser, page, engine, waits)
        await submitted.delivery.cancel()


async def test_a_change_of_20_000_lines_and_a_line_of_5_mb_is_open_in_seconds_and_cut_with_a_way_to_all_of_it(
    reviewed: Reviewed,
) -> None:
    async with looking(reviewed.browser, reviewed.page) as page:
        await expect(question(page, "calc-sub").get_by_text("Add sub")).to_be_visible()
        began = time.monotonic()
        await open_review(page, "calc-sub")
        await expect(page.get_by_text("The change is too long for this page")).to_be_visible()
        many = page.locator(".file").filter(has=page.get_by_text("many.py", exact=True))
        await expect(many.get_by_text(f"{20001 - FILE_LINES_SHOWN} more lines of this file not shown")).to_be_visible()
        assert await page.locator(".lines tr").count() > FILE_LINES_SHOWN
        frame = await page.evaluate(
            "() => new Promise(done => { const t = performance.now(); "
            "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - t))) })"
        )
        assert frame < PATIENCE_MS / 20, "the page answers"
        assert time.monotonic() - began < PATIENCE_MS / 1000
    async with (
        visiting(reviewed.page) as ada,
        ada.session.get(f"{reviewed.page.url}/deliveries/calc-sub/change.txt") as whole,
    ):
        assert whole.headers["content-type"].startswith("text/plain")
        text = await whole.text()
        assert len(text) > 5_000_000
        assert "\u202e" not in text
        assert "⟨U+202E⟩right to left ⟨U+001B⟩[31m" in text
        assert "+x19999 = 19999" in text, "beyond what the page shows"


async def test_code_names_and_words_of_strangers_are_shown_and_do_nothing(reviewed: Reviewed) -> None:
    async with looking(reviewed.browser, reviewed.page) as page:
        bar = await open_review(page, "calc-sub")
        calc = page.locator(".file").filter(has=page.get_by_text("calc.py", exact=True))
        await expect(calc.locator(".added .code-k", has_text="def")).to_be_visible()
        await expect(calc.get_by_text("⟨U+202E⟩right to left ⟨U+001B⟩[31m")).to_be_visible()
        await expect(calc.get_by_text("alert(1)</script><img src=x")).to_be_visible()
        assert await page.locator("main script, main img, main [onerror], .lines form, .lines a").count() == 0
        assert await page.locator("form[action='/leave']").count() == 1, "the page's own"
        outside = await page.eval_on_selector_all("main a", "all => all.map(one => one.getAttribute('href'))")
        assert all(link.startswith(("/", "#")) for link in outside), outside
        names = await page.locator(".file .path").all_inner_texts()
        assert any("alert(1)<script>" in name for name in names), names
        assert await page.locator(".file").filter(has_text="binary: its bytes are not shown").count() == 1
        test_file = page.locator(".file").filter(has=page.get_by_text("tests/test_new.py", exact=True))
        await expect(test_file.get_by_text("test", exact=True)).to_be_visible()
        await expect(test_file.get_by_text("No newline at end of file")).to_be_visible()
        await expect(bar.get_by_role("button", name=f"Approve commit {reviewed.asked.target[:7]}")).to_be_in_viewport()
        await page.keyboard.press("End")
        await expect(bar).to_be_in_viewport()


async def test_colours_never_change_a_character_and_end_in_time() -> None:
    source = "def f(x):\n\treturn '''a\nb''' # ⟨U+202E⟩"
    slow = "(" * 200_000
    colored = await color_sources([("a.py", source), ("a.unknown", "x"), ("b.py", slow * 2)])
    assert colored is not None
    lines, unknown, beyond = colored
    assert "\n".join("".join(text for _, text in line) for line in lines) == source
    assert [unknown, beyond] == [[], []]
    assert ["k", "def"] in lines[0]
