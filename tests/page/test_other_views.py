"""Activity, history, hosts and money, and starting something, on the page, for real."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from visitors import visiting

from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.models.limits import TASK_QUEUE
from perdure.page.server import serve_page
from perdure.page.views.hosts import repository_labels
from perdure.page.views.inbox import escape_filter_value
from perdure.page.views.start import form_fields
from tests.engine import BUILT, HAPPY, Engine, make_target, until

EVIL = "<script>alert(1)</script>"
BACKLOG = """
repository: {repository}
items:
  - id: sub
    request: Add sub
  - id: mul
    reqest: Add mul
"""


@pytest.mark.timeout(240)
async def test_a_delivery_is_started_from_the_form_and_stands_in_activity_history_and_money(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(
            Perdure(engine.client, engine.home.key()), ensure_page_token(engine.home), ListenAddress(port=18600)
        ) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        status, text = await ada.get("/")
        assert "Nothing has been delivered here yet" in text
        assert all(f"<code>perdure {command}" in text for command in ("deliver", "demo", "init", "doctor"))
        _, text = await ada.get("/start")
        at_once = text.partition("<details")[0]
        assert all(f'name="{name}"' in at_once for name in ("repository", "request", "gates", "budget_usd"))
        assert 'name="attempts"' not in at_once
        assert 'name="attempts"' in text
        assert 'type="number"' in text
        for hidden in ("proof", "host", "landing", "resume", "forked", "source"):
            assert f'name="{hidden}"' not in text
        sent = {"repository": str(origin), "request": f"Add sub {EVIL}", "config": BUILT["config"], "phases": "build"}
        status, text = await ada.post("/start/delivery", {**sent, "budget_usd": "much"})
        assert status == 400
        assert "budget_usd: &#39;much&#39; is no number" in text
        assert EVIL not in text, "it comes back as it was typed, and is text"
        assert (await ada.post("/start/delivery", sent, csrf=""))[0] == 403
        for path, reason in (
            (f"{tmp_path}/no-such.git", "there is no directory"),
            (str(tmp_path), "is no git repository"),
            ("calc", "is neither an address nor an absolute path"),
        ):
            status, text = await ada.post("/start/delivery", {**sent, "repository": path, "gates": "plan"})
            assert (status, reason in text) == (400, True), path
            assert 'value="plan" checked' in text
        assert await engine.perdure.list() == [], "nothing has begun"
        async with ada.session.post(
            page.url + "/start/delivery", data={**sent, "csrf": ada.csrf}, allow_redirects=False
        ) as answer:
            assert answer.status == 303
            address = answer.headers["Location"]
        id = address.rpartition("/")[2]
        again = engine.perdure.delivery(id)
        result = await again.result()
        assert result.status == "completed", result.message

        _, text = await ada.get("/activity?back=1h")
        assert f'href="{address}"' in text
        assert text.count(f'title="{id}">Add sub &lt;script&gt;') == text.count('class="activity"'), (
            "once a step, not a row"
        )

        async def offered() -> bool:
            return f'value="{origin}"' in (await ada.get("/start"))[1]

        assert await until(offered)
        told = re.findall(r'class="happened">(.*?)</span>', text)
        assert any(sentence.startswith("completed") for sentence in told), told
        assert any("implement: turn 1" in sentence for sentence in told), told
        assert not any(mark in sentence for sentence in told for mark in ("{&#39;", "None", "run_id")), told
        assert EVIL not in text
        _, text = await ada.get("/activity?type=commit")
        told = re.findall(r'class="happened">(.*?)</span>', text)
        assert told
        assert all("commit" in sentence for sentence in told), told
        assert (await ada.get("/activity?back=soon"))[0] == 400
        assert (await ada.get("/activity?before=yesterday"))[0] == 400
        _, text = await ada.get("/activity?before=2026-01-02T03:04:05.678Z")
        assert "Nothing happened" in text
        assert "To the newest" in text

        _, text = await ada.get("/history?status=completed")
        assert f'href="{address}"' in text
        _, text = await ada.get("/history?status=delivered")
        assert f'href="{address}"' not in text
        status, text = await ada.get("/history?id=" + "x' OR '1'='1")
        assert (status, f'href="{address}"' in text) == (200, False)
        assert (await ada.get("/history?query=NoSuchField%20%3D%201"))[0] == 400

        _, text = await ada.get("/hosts")
        assert "no budgets are shared here" in text
        assert re.search(r'<code title="\d+@[^"]+/\w{32}">\d+@[^/]+</code>', text), "the worker"

        async def free() -> bool:
            """A worker says how it is every few seconds: the last report may be of a moment when the delivery ran."""
            _, text = await ada.get("/hosts")
            found = re.findall(r"<div>(\d+/\d+) <span class=\"dim\">([\w.-]+)</span>", text)
            shown = {queue: used for used, queue in found}
            commands = shown.pop(engine.home.command_queue(), "")
            return commands.startswith("0/") and shown == {TASK_QUEUE: "0/32", engine.home.queue(): "0/32"}

        assert await until(free, 60)
        assert f'<span title="{origin}">calc</span>' in text, "a folder's name"


@pytest.mark.timeout(120)
async def test_a_backlog_with_a_mistake_is_refused_with_its_line_and_comes_back_as_it_was_typed(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18700)) as page,
        visiting(page) as ada,
    ):
        text = BACKLOG.format(repository=origin)
        status, answer = await ada.post("/start/backlog", {"id": "night", "backlog": text})
        assert status == 400
        assert "backlog:7" in answer
        assert text in html.unescape(answer)
        assert "reqest" in answer
        status, answer = await ada.post("/start/backlog", {"id": "", "backlog": text})
        assert (status, "the backlog has no name" in answer) == (400, True)
        status, answer = await ada.post("/start/backlog", {"id": "night", "backlog": "- just a list"})
        assert (status, "a backlog has fields" in answer) == (400, True)
        assert await engine.perdure.list(workflow="Backlog") == []


def test_the_form_has_every_field_that_people_fill_in_with_its_words() -> None:
    found = {one.name: one for one in form_fields()}
    assert list(found)[:2] == ["repository", "request"]
    assert found["gates"].choices == ("plan", "pull_request")
    assert found["phases"].kind == "choices"
    assert (found["attempts"].kind, found["attempts"].most) == ("number", 5)
    assert found["budget_usd"].kind == "number"
    assert found["fix"].kind == "switch"
    assert all(one.description for one in found.values()), [name for name, one in found.items() if not one.description]


def test_two_repositories_whose_folders_are_called_alike_keep_their_paths() -> None:
    labels = repository_labels(["/a/calc.git", "/b/calc.git", "https://github.com/ada/sums"])
    assert labels == {
        "/a/calc.git": "/a/calc.git",
        "/b/calc.git": "/b/calc.git",
        "https://github.com/ada/sums": "ada/sums",
    }


def test_what_is_searched_for_stays_a_value() -> None:
    assert escape_filter_value("it's") == "it\\'s"
    assert escape_filter_value("a\\") == "a\\\\"
