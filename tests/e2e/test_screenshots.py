"""A delivery with `[app]`: its pages are seen by the reviewer and stand in the pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.models.delivery.result import Status
from tests.engine import HAPPY, finished, git
from tests.engine_with_github import ID, engine_with_github

CONFIG = """\
version = 1
[setup]
commands = []
[[test]]
name = "unit"
command = "python3 -m unittest -q"
[app]
start = "exec python3 -m http.server $FRONTEND_PORT --bind 127.0.0.1"
pages = ["/", "/none"]
"""

FOUND = """\
step = "review"
contains = ["screenshot /", "page: /none", "note: answers 404"]
answer = { summary = "Seen.", issues = [{ title = "Crooked", description = "It leans.", severity = "tech_debt", file = \
"calc.py", line = 9, suggestion = "", screenshots = ["/", "/made-up"] }] }
"""

LOOKING = HAPPY.replace('step = "review"\nanswer = { summary = "Fine.", issues = [] }\n', FOUND)


def pictures_in(body: dict[str, Any]) -> list[str]:
    content = body["messages"][0]["content"]
    return [block["source"]["media_type"] for block in content if block["type"] == "image"]


@pytest.mark.timeout(180)
@pytest.mark.needs("chromium")
async def test_the_reviewer_gets_the_pictures_and_the_pull_request_shows_them(tmp_path: Path, ports: int) -> None:
    assert LOOKING != HAPPY
    async with engine_with_github(tmp_path, LOOKING, ports=ports) as world:
        world.engine.worker()
        result = await finished(await world.submit(config=CONFIG), world.engine, timeout=120)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        assert [record.summary for record in result.steps if record.step == "capture_pages"] in ([], ["2 pages"])
        assert world.engine.rehearsal is not None
        shown = {call.step: pictures_in(call.body) for call in world.engine.rehearsal.calls}
        assert shown["review"] == ["image/png", "image/png"]
        assert shown["implement"] == []

        body = world.check_one(result)["body"]
        tip = git(world.bare, "rev-parse", "perdure-artifacts")
        address = f"{world.url}/blob/{tip}/{ID}/page-1.png?raw=true"
        assert f"![Screenshot 1]({address})" in body.splitlines()
        assert f"Crooked (`calc.py`) (screenshots: [`/`]({address}))" in body
        assert "made-up" not in body
        published = git(world.bare, "ls-tree", "-r", "--name-only", "perdure-artifacts").splitlines()
        assert {f"{ID}/page-1.png", f"{ID}/page-2.png"} <= set(published)
        assert "![Screenshot](page-1.png)" in git(world.bare, "show", f"{tip}:{ID}/review.md").splitlines()
        assert not list(world.engine.home.workspace(ID).glob("logs/app/pages-*"))
