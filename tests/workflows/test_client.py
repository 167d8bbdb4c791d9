"""Submit, attach, come back and read, against a real server: with a worker, without one, and after any end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.delivery.turn import TextPage, TurnInput, TurnResult, VaultReadInput
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import Script, playing
from tests.waiting import patient

ROOT = Path(__file__).parents[2]
PLAN = {"repository": "/r", "request": "Add   sub\nplease", "phases": ["build"]}


@pytest.fixture(autouse=True)
def only_build(script: Script) -> None:
    script.phases = (Phase.BUILD,)
    script.settings = {"turns_per_step": 1}


async def test_who_submits_twice_attaches_and_who_comes_back_reads_what_happened(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    first = await perdure.submit(PLAN, id=fresh)
    second = await perdure.submit(PLAN, id=fresh)
    assert (first.attached, second.attached) == (False, True)
    waiting = await first.delivery.describe()
    assert waiting.running
    assert await first.delivery.request() == PLAN
    async with playing(client, script):
        result = await second.delivery.result()
        progress = await second.delivery.progress()
        assert (result.status, progress.status, progress.queue) == ("not_delivered", "not_delivered", TASK_QUEUE)
    with pytest.raises(BadInput, match=rf"has ended without delivering \({result.reason}: {result.message[:20]}"):
        await perdure.submit(PLAN, id=fresh)
    ended = await second.delivery.describe()
    assert ended.resume is not None
    assert not ended.running


async def test_without_a_worker_an_ended_delivery_is_read_from_its_memo_and_a_running_one_says_so(
    client: Client, perdure: Perdure, script: Script, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.client.server import calls as module

    async with playing(client, script):
        await (await perdure.submit(PLAN, id=fresh)).delivery.result()
    monkeypatch.setattr(module, "QUERY_TIMEOUT", module.timedelta(seconds=0.5))
    progress = await perdure.delivery(fresh).progress()
    assert (progress.delivery_id, progress.checkpoint) == (fresh, "c1")
    running = await perdure.submit(PLAN)
    assert running.delivery.id.startswith("r-add-sub-please-")
    with pytest.raises(PerdureError, match="no worker answers"):
        await running.delivery.progress()
    with pytest.raises(BadInput, match="is running"):
        await running.delivery.retry()
    await client.get_workflow_handle(running.delivery.id).terminate()


async def test_a_bad_request_is_refused_before_and_after_it_was_sent(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    with pytest.raises(InvalidRequest, match="did you mean request"):
        await perdure.submit({"repository": "/r", "reqest": "x"})
    with pytest.raises(BadInput, match="no delivery nowhere"):
        await perdure.delivery("nowhere").describe()
    async with playing(client, script):
        await client.start_workflow("Delivery", {"reqest": 1}, id=fresh, task_queue=TASK_QUEUE)
        with pytest.raises(InvalidRequest, match=r"^reqest: unknown field \(did you mean request\?\)"):
            await perdure.delivery(fresh).result()


async def test_a_cancelled_delivery_is_a_result_and_a_terminated_one_an_error(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    begun = asyncio.Event()

    async def long(work: TurnInput) -> TurnResult:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    script.turn = long
    async with playing(client, script):
        submitted = await perdure.submit(PLAN, id=fresh)
        await begun.wait()
        (pending,) = (await submitted.delivery.describe()).pending
        assert (pending.activity, pending.attempt, pending.died, pending.failure) == ("implement", 1, False, "")
        await client.get_workflow_handle(fresh).terminate()
        with pytest.raises(PerdureError, match="was terminated"):
            await submitted.delivery.result()
        again = await submitted.delivery.retry()
        await asyncio.sleep(0)
        await again.cancel()
        result = await again.result()
    assert result.status == "cancelled"
    assert result.next[-1] == f"perdure retry {fresh}"


async def test_who_waits_for_a_delivery_that_is_reset_gets_the_result_of_the_run_that_goes_on(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def held(work: TurnInput) -> TurnResult:
        begun.set()
        await go.wait()
        return await script.endless(work)

    script.turn = held
    async with playing(client, script):
        submitted = await perdure.submit(PLAN, id=fresh)
        waiting = asyncio.create_task(submitted.delivery.result())
        await begun.wait()
        before = (await submitted.delivery.describe()).run_id
        await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace="default",
                workflow_execution=WorkflowExecution(workflow_id=fresh, run_id=before),
                reason="test",
                workflow_task_finish_event_id=4,
                request_id=fresh,
            )
        )
        go.set()
        result = await waiting
    assert result.status == "not_delivered"
    assert result.run_id != before


async def test_a_delivered_one_is_attached_to_listed_and_never_retried(
    client: Client, perdure: Perdure, script: Script, fresh: str
) -> None:
    script.phases = ()
    async with playing(client, script):
        submitted = await perdure.submit(PLAN, id=fresh)
        result = await submitted.delivery.result()
        assert result.status == "completed"
        assert (await perdure.submit(PLAN, id=fresh)).attached
        with pytest.raises(BadInput, match="nothing to retry"):
            await submitted.delivery.retry()
    async with asyncio.timeout(patient(15)):
        while not (listed := await perdure.list(query=f"WorkflowId = '{fresh}'")):
            await asyncio.sleep(0.1)
    assert [(one.delivery_id, one.status) for one in listed] == [(fresh, "completed")]


async def test_pages_are_read_on_the_deliverys_host(client: Client, perdure: Perdure, fresh: str) -> None:
    @activity.defn(name="read")
    async def read(work: VaultReadInput) -> TextPage:
        return TextPage(text=f"{work.what} of {work.delivery} from {work.offset}", next=7)

    async with Worker(client, task_queue=f"host-{fresh}", activities=[read]):
        page = await perdure.delivery(fresh).read_page("logs", 3, queue=f"host-{fresh}")
    assert (page.text, page.next) == (f"logs of {fresh} from 3", 7)


def test_a_converter_that_somebody_configured_keeps_its_codec_and_its_failures() -> None:
    encoded = dataclasses.replace(
        DataConverter.default, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )
    config = perdure_plugin().configure_client({"data_converter": encoded})  # type: ignore[typeddict-item]
    converter = config["data_converter"]
    assert issubclass(converter.payload_converter_class, PydanticPayloadConverter)
    assert converter.failure_converter_class is DefaultFailureConverterWithEncodedAttributes


@pytest.mark.timeout(60)
async def test_the_starter_submits_waits_and_says_by_its_exit_code_what_came_of_it(
    client: Client, server: str, script: Script
) -> None:
    def start(*arguments: str, address: str = server) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "TEMPORAL_ADDRESS": address, "TEMPORAL_CONFIG_FILE": os.devnull}
        command = [sys.executable, "starter.py", *arguments]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=patient(50))

    usage = await asyncio.to_thread(start)
    assert usage.returncode == 1
    assert "Submit one request" in usage.stderr
    script.phases = ()
    async with playing(client, script):
        done = await asyncio.to_thread(start, "/srv/calc", "Add sub")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("calc-add-sub-")
    assert '"status": "completed"' in done.stdout
    nowhere = await asyncio.to_thread(start, "/srv/calc", "Add sub", address="127.0.0.1:9")
    assert nowhere.returncode == 3
    assert nowhere.stderr.startswith("error: Temporal cannot be reached at 127.0.0.1:9: ")
    wrong = await asyncio.to_thread(start, "/srv/calc", "")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False), wrong.stderr


async def test_the_result_of_an_id_that_nobody_has_is_refused_in_words(perdure: Perdure, fresh: str) -> None:
    with pytest.raises(BadInput, match=f"no delivery {fresh}"):
        await perdure.delivery(fresh).result()
    with pytest.raises(BadInput, match=f"no backlog {fresh}"):
        await perdure.backlog(fresh).result()
