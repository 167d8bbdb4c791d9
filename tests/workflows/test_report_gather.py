"""A report of real workflows in every state a delivery can be in, and of hosts that have less than they should."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.checks.report import Review, Screenshot, Screenshots, TestReport
from perdure.models.delivery.steps import Plan
from perdure.models.delivery.turn import TextPage, TurnInput, TurnResult, VaultReadInput
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.render.report.gather import PNG, REPORT_PICTURES_BYTES, gather_report
from perdure.render.report.page import page_of
from perdure.render.report.text import lines_of
from tests.deliveries import Script, playing
from tests.engine import until
from tests.waiting import patient
from workflows import WORKFLOWS

pytestmark = pytest.mark.story

REQUEST = {"repository": "/r", "request": "Add sub"}


class Vault:
    """What a host has: `read` answers from it, as the real one does."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.kept[sha256] = data
        return sha256

    @activity.defn(name="read")
    async def read(self, work: VaultReadInput) -> TextPage:
        if work.what == "turns_json":
            return TextPage(text='{"checkpoint": "c1", "said": "I did it"}')
        if work.what == "diff":
            return TextPage(text="+the change\n")
        if work.checkpoint not in self.kept:
            raise ApplicationError(f"artifact {work.checkpoint[:4]} is not in the vault", non_retryable=True)
        data, end = self.kept[work.checkpoint], work.offset + 45_000
        text = base64.b64encode(data[work.offset : end]).decode()
        return TextPage(text=text, next=end if end < len(data) else None)


@asynccontextmanager
async def with_vault(client: Client, script: Script, vault: Vault) -> AsyncIterator[None]:
    async with asyncio.timeout(patient(60)):
        doing = [*script.activities(), vault.read]
        async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=doing):
            yield


@pytest.fixture(autouse=True)
def ships(script: Script) -> None:
    script.phases = (Phase.BUILD, Phase.SHIP)
    script.settings = {"hosted": True, "allow_untested": True}
    script.turn = script.builds


async def test_what_the_host_has_is_in_the_report_and_what_is_torn_is_named(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    vault = Vault()
    plan = Plan(title="Add sub", problem="p", solution="s", relevant_files=[], tasks=[], validation=[])
    script.settings["plan"] = vault.put(plan.model_dump_json().encode())
    async with with_vault(client, script, vault):
        submitted = await perdure.submit(REQUEST, id=fresh)
        await submitted.delivery.result()
        report = await gather_report(submitted.delivery)
        assert (report.status, report.unread, report.title) == ("delivered", (), "Add sub")
        assert (report.plan, report.diff) == (plan, "+the change\n")
        assert [(turn.step, turn.transcript) for turn in report.turns] == [("implement", "I did it")]
        assert report.pull_request is not None
        vault.kept[script.settings["plan"]] = b"other bytes"
        assert (await gather_report(submitted.delivery)).unread == (
            f"the plan: artifact {script.settings['plan'][:12]} arrived damaged",
        )
        del vault.kept[script.settings["plan"]]
        (words,) = (await gather_report(submitted.delivery)).unread
        assert words == f"the plan: artifact {script.settings['plan'][:4]} is not in the vault"


async def test_pictures_that_are_none_or_too_many_are_left_out_and_named(perdure: Perdure) -> None:
    from perdure.render.report.gather import HostReader

    vault = Vault()

    class Direct:
        """A delivery whose host is right here."""

        async def has_pollers(self, queue: str) -> bool:
            return True

        async def artifact(self, sha256: str, queue: str, patience: timedelta) -> bytes:
            return vault.kept[sha256]

    half = PNG + bytes(REPORT_PICTURES_BYTES // 2)
    names = [vault.put(half), vault.put(b"GIF89a"), vault.put(half + b"1")]
    shots = Screenshots(
        commit="c", pictures=tuple(Screenshot(page=f"/{n}", artifact=name) for n, name in enumerate([*names, names[0]]))
    )
    reader = HostReader(Direct(), "host")  # type: ignore[arg-type]
    assert set(await reader.read_pictures(shots)) == {names[0]}
    assert reader.unread == [
        "the picture of /1: it is no PNG",
        "the picture of /2: left out, the page would be too large",
    ]
    other = vault.put(b'{"title": 5}')
    assert await reader.read_document(other, "the review", Review) is None
    assert await reader.read_document("", "the test report", TestReport) is None
    assert reader.unread[-1] == "the review: written by a release that this one does not know"


async def test_one_that_waits_says_for_what_and_one_that_is_cancelled_how_far_it_came(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    away = ApplicationError("GitHub answers 502", type="ForgeUnavailable", next_retry_delay=timedelta(seconds=30))
    script.troubles = {"open_pull_request": [away]}
    async with with_vault(client, script, Vault()):
        delivery = (await perdure.submit(REQUEST, id=fresh)).delivery

        async def waits() -> bool:
            return bool((await delivery.progress()).waiting)

        await until(waits, 20)
        report = await gather_report(delivery)
        assert (report.status, report.running) == ("waiting", True)
        assert report.waiting.startswith("GitHub answers 502")
        assert report.steps[-1].status == "running"
        assert report.waits[-1].until is None
        assert "waiting       GitHub answers 502" in "\n".join(lines_of(report))
        assert "<strong>Waiting:</strong> GitHub answers 502" in page_of(report)
        await delivery.cancel()
        await delivery.result()
        report = await gather_report(delivery)
    assert (report.status, report.running, report.steps[-1].status) == ("cancelled", False, "cancelled")
    assert report.waits[-1].until is not None


async def test_one_that_was_terminated_and_one_that_was_never_valid_are_reported_too(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    begun = asyncio.Event()

    async def long(work: TurnInput) -> TurnResult:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    script.turn = long
    async with playing(client, script):
        delivery = (await perdure.submit(REQUEST, id=fresh)).delivery
        await begun.wait()
        await client.get_workflow_handle(fresh).terminate()
        await client.start_workflow("Delivery", {"reqest": 1}, id=f"{fresh}-bad", task_queue=TASK_QUEUE)
        bad = perdure.delivery(f"{fresh}-bad")
        with pytest.raises(Exception, match="reqest"):
            await bad.result()
    terminated = await gather_report(delivery)
    assert (terminated.status, terminated.repository, terminated.branch) == ("terminated", "/r", "")
    assert [record.step for record in terminated.steps] == ["prepare", "implement"]
    assert "perdure retry" in terminated.message
    failed = await gather_report(bad)
    assert (failed.status, failed.steps, failed.unread) == ("failed", (), ())
    assert "reqest: unknown field (did you mean request?)" in failed.message
    for report in (terminated, failed):
        assert page_of(report).count("<h1>") == 1
        assert lines_of(report)
    with pytest.raises(BadInput, match="no delivery never-was"):
        await gather_report(perdure.delivery("never-was"))
