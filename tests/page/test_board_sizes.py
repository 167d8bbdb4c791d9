"""The board says how large a change is and how its tests ended; money is added up by label: all of it for real."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from browsing import chromium, looking
from playwright.async_api import expect
from temporalio.client import Client
from visitors import PLAN, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.client.server import overview
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.server import serve_page
from perdure.page.views.hosts import sum_costs
from perdure.plugin import perdure_plugin
from tests.engine import HAPPY, Engine, finished, git, make_target, until
from tests.temporal_server import joined

EVIL = "<b>night</b>"
TELEPHONE = {"width": 360, "height": 740}


@pytest.mark.timeout(90)
async def test_where_more_runs_than_is_listed_the_inbox_says_so_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    async with joined(home), contextlib.AsyncExitStack() as stack:
        info = await find_server(home)
        assert info is not None
        client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
        place = ListenAddress(port=18930)
        page = await stack.enter_async_context(serve_page(Perdure(client), ensure_page_token(home), place))
        ada = await stack.enter_async_context(visiting(page))
        monkeypatch.setattr(overview, "RUNNING_MOST", 3)
        for number in range(4):
            await stands_waiting(client, f"waits-{number}", PLAN)

        async def cut() -> str | None:
            _, text = await ada.get("/")
            return text if 'id="cut"' in text else None

        text = await until(cut)
        assert "the 3 deliveries and backlogs that began last" in text
        assert "perdure list --waiting --limit 1000" in text
        monkeypatch.setattr(overview, "RUNNING_MOST", 5)

        async def whole() -> bool:
            return 'id="cut"' not in (await ada.get("/"))[1]

        await until(whole)


@pytest.mark.timeout(240)
async def test_a_card_has_the_size_of_the_change_and_its_tests_and_the_money_stands_under_its_labels(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18900)) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        submitted = await engine.submit(
            origin, phases=["build", "test", "ship"], gates=["pull_request"], labels=[EVIL, "api"]
        )

        async def asked() -> PendingDecision | None:
            return (await submitted.delivery.describe()).pending_decision

        await until(asked)

        async def shown() -> str | None:
            _, text = await ada.get("/")
            return text if "· tests" in text else None

        text = await until(shown)

        async def slots() -> bool:
            return "/32 <" in (await ada.get("/hosts"))[1]

        await until(slots)
        async with chromium() as browser, looking(browser, page, viewport=TELEPHONE) as telephone:
            for path, seen in (("/", ".change"), ("/hosts", "#workers + table")):
                await telephone.goto(page.url + path)
                await expect(telephone.locator(seen).first).to_be_visible()
                width = await telephone.evaluate("() => document.documentElement.scrollWidth")
                assert width <= TELEPHONE["width"], path
        await submitted.delivery.approve()
        result = await finished(submitted, engine)
        assert result.status == "draft", "nobody has reviewed it"
        rows = [line.split("\t") for line in git(origin, "diff", "--numstat", f"main...{result.branch}").splitlines()]
        added, deleted = (sum(int(row[side]) for row in rows) for side in (0, 1))
        assert result.tests.passed
        passed, all_of_them = result.tests.passed, result.tests.passed + (result.tests.failed or 0)
        files = f"{len(rows)} file" + ("s" if len(rows) != 1 else "")
        words = f"+{added} −{deleted} in {files} · tests {passed}/{all_of_them}"
        assert text.count(words) == 2, "where it waits, and on the board"

        async def counted() -> str | None:
            _, text = await ada.get("/hosts")
            return text if "Spent by label" in text else None

        text = await until(counted)
        assert "&lt;b&gt;night&lt;/b&gt;" in text
        assert EVIL not in text
        (listed,) = await engine.perdure.list()
        assert sorted(listed.labels) == sorted([EVIL, "api"])
        *_, labels = sum_costs([listed])
        assert labels == {EVIL: listed.cost_usd, "api": listed.cost_usd}
