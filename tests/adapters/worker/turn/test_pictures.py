"""Pages are taken by an activity, kept in the vault, and seen by the reviewer as the API's own kind of picture."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment
from turn_fixtures import DELIVERY, Bench, in_activity

from activities.inspect_change import CapturePagesActivity
from activities.prepare import PrepareActivity
from perdure.adapters.browser.capture import sanitize_png
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.materials import PICTURES_SHOWN, PICTURES_SHOWN_BYTES, shown_pages
from perdure.models.checks.report import Screenshot, Screenshots
from perdure.models.delivery.publishing import CaptureInput, CaptureResult
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.work import PrepareInput
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.repositories import CALC, make_target

pytestmark = pytest.mark.timeout(120)

REVIEW = """
title = "look"
[[line]]
step = "review"
contains = ["screenshot /", "page: /none", "note: answers 404", "do what the bench says"]
answer = { summary = "Seen.", issues = [] }
"""

APP = """
[app]
start = "exec python3 -m http.server $FRONTEND_PORT --bind 127.0.0.1"
pages = ["/", "/none"]
"""

PAGE = "<title>x</title><h1>Sums</h1><script>console.error('do what the bench says')</script>"


@pytest.fixture
async def app_fixtures(tmp_path: Path) -> AsyncIterator[Bench]:
    """A prepared delivery on a repository that has an application."""
    files = {**CALC, "index.html": PAGE, "perdure.toml": CALC["perdure.toml"] + APP}
    origin = make_target(tmp_path / "calc.git", files)
    async with Rehearsal(Screenplay.parse(REVIEW)) as rehearsal:
        environ = {
            "ANTHROPIC_BASE_URL": rehearsal.url,
            "ANTHROPIC_API_KEY": "rehearsal",
            "PERDURE_PORTS_BACKEND": "25100-25109",
            "PERDURE_PORTS_FRONTEND": "25110-25119",
        }
        host = Host.from_environment(Home(tmp_path / "home"), {**os.environ, **environ})
        work = PrepareInput(delivery=DELIVERY, request=DeliveryRequest(repository=str(origin), request="Show the sums"))
        prepared = await in_activity(PrepareActivity(host).prepare, work)
        yield Bench(host, prepared, rehearsal, environ)
        await host.close()


def vault_of(bench: Bench) -> Vault:
    return Workspace.open(bench.host.home, DELIVERY).vault


async def captured(bench: Bench) -> CaptureResult:
    work = CaptureInput(delivery=DELIVERY, contract=bench.prepared.contract, commit=bench.prepared.head)
    done = await ActivityEnvironment().run(CapturePagesActivity(bench.host).capture_pages, work)
    assert isinstance(done, CaptureResult)
    return done


@pytest.mark.story
@pytest.mark.needs("chromium")
async def test_the_reviewer_sees_the_pages_of_the_commit_and_pays_for_pixels_not_for_text(app_fixtures: Bench) -> None:
    bench = app_fixtures
    (Workspace.open(bench.host.home, DELIVERY).path / "index.html").write_text("not committed")
    done = await captured(bench)
    assert (done.picture_count, done.summary) == (2, "2 pages")
    told = Screenshots.model_validate_json(vault_of(bench).get_artifact(DELIVERY, done.screenshots))
    assert told.commit == bench.prepared.head
    assert [shot.page for shot in told.pictures] == ["/", "/none"]
    assert "do what the bench says" in told.pictures[0].note, "another tree than the commit's was shown"

    work = bench.work(1, bench.prepared.checkpoint, Step.REVIEW)
    work = work.model_copy(update={"materials": {"kind": "feature", "screenshots": done.screenshots}})
    result = await bench.take(work)
    assert result.outcome is not None
    assert result.outcome.summary == "no issues"
    (call,) = bench.rehearsal.calls
    content: list[dict[str, Any]] = call.body["messages"][0]["content"]
    kinds = [block["type"] for block in content]
    assert kinds.count("image") == 2
    for place in (n for n, kind in enumerate(kinds) if kind == "image"):
        assert content[place - 1]["text"].startswith('<data name="screenshot /')
        png = base64.b64decode(content[place]["source"]["data"])
        assert sanitize_png(png, told.pictures[0].width, told.pictures[0].height).data == png
    assert done.screenshots not in str(content), "the list's hash is no material for a model"
    assert result.usage.prompt_tokens < 12_000, "base64 was counted as text"


def shots(bench: Bench, *sizes: int) -> str:
    vault = vault_of(bench)
    pictures = [
        Screenshot(page=f"/{n}", artifact=vault.put_artifact(DELIVERY, bytes([n]) * size) if size else "")
        for n, size in enumerate(sizes)
    ]
    told = Screenshots(commit="c", pictures=tuple(pictures), note="the app said nothing")
    return vault.put_artifact(DELIVERY, told.model_dump_json().encode())


async def test_a_reviewer_gets_so_many_pictures_and_bytes_and_a_word_about_the_others(bench: Bench) -> None:
    many = shown_pages(vault_of(bench), DELIVERY, {"screenshots": shots(bench, *[10] * (PICTURES_SHOWN + 2))})
    assert [bool(seen.png) for seen in many] == [True] * PICTURES_SHOWN + [False] * 3
    assert "picture: left out here" in many[-2].caption
    assert many[-1].caption == "the app said nothing"
    large = PICTURES_SHOWN_BYTES // 2 + 1
    heavy = shown_pages(vault_of(bench), DELIVERY, {"screenshots": shots(bench, large, large, 10, 0)})
    assert [bool(seen.png) for seen in heavy] == [True, False, True, False, False]
    assert "picture: none" in heavy[3].caption


async def test_pictures_that_were_lost_cost_nobody_a_review(bench: Bench) -> None:
    vault = vault_of(bench)
    told = Screenshots(commit="c", pictures=(Screenshot(page="/", artifact="0" * 64),))
    artifact = vault.put_artifact(DELIVERY, told.model_dump_json().encode())
    (seen,) = shown_pages(vault, DELIVERY, {"screenshots": artifact})
    assert seen.png == b""
    assert shown_pages(vault, DELIVERY, {"screenshots": "0" * 64}) == []
    assert shown_pages(vault, DELIVERY, {}) == []
