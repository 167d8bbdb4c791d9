"""Update-with-start: submitted and accepted, or attached, in one call; the same with no worker, and with many calls."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.client.submit import caption_and_details
from perdure.models.delivery.result import Status
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.phases import Phase
from perdure.models.rules.inbox import DeliveryAttached
from tests.deliveries import PLANNED, Script, playing, waiting
from workflows.inbox import ATTACHES


def payload(text: str, encoding: str = "json/plain") -> Payload:
    return Payload(metadata={"encoding": encoding.encode()}, data=text.encode())


BUILD = {"repository": "/r", "request": "Add  sub", "phases": ["build"]}
LONG, SHORT = timedelta(seconds=30), timedelta(seconds=1)


async def attach(
    client: Client, id: str, request: Any, sent: Any = None, *, update_id: str | None = None
) -> dict[str, Any]:
    """As a program with nothing of ours would."""
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        "Delivery",
        request,
        id=id,
        task_queue="perdure",
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
    )
    answer: dict[str, Any] = await client.execute_update_with_start_workflow(
        "attach", sent, id=update_id, start_workflow_operation=start, result_type=dict
    )
    return answer


@pytest.fixture
def waits() -> Script:
    """A delivery that waits with its plan for somebody to approve it."""
    return Script(Phase.PLAN, gates=("plan",))


async def test_a_request_is_accepted_in_the_call_that_submits_it_and_again_it_is_attached(
    client: Client, script: Script, perdure: Perdure, fresh: str
) -> None:
    script.turn = script.builds
    script.phases = (Phase.BUILD,)
    async with playing(client, script):
        first = await perdure.submit(BUILD, fresh, patience=LONG)
        assert (first.attached, first.accepted) == (False, True)
        again = await perdure.submit(BUILD, fresh, patience=LONG)
        assert (again.attached, again.accepted) == (True, None)
        result = await first.delivery.result()
        assert result.status is Status.COMPLETED, result.message
        stored = await perdure.submit(BUILD, fresh, patience=LONG)
        assert stored.attached
        assert (await stored.delivery.result()).run_id == result.run_id


async def test_without_a_worker_it_is_submitted_all_the_same_once_and_said_so(
    client: Client, script: Script, perdure: Perdure, fresh: str
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    submitted = await perdure.submit(BUILD, fresh, patience=SHORT)
    assert (submitted.attached, submitted.accepted) == (False, False)
    assert (await perdure.submit(BUILD, fresh, patience=SHORT)).attached
    script.turn, script.phases = script.builds, (Phase.BUILD,)
    async with playing(client, script):
        result = await submitted.delivery.result()
    assert result.status is Status.COMPLETED, result.message
    assert sum(work.delivery == fresh for work in script.seen) == 1, "it was worked on twice"
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == [], "the SDK kept a failure, and nobody asked for it"


async def test_a_cancelled_submission_is_cancelled(client: Client, perdure: Perdure, fresh: str) -> None:
    waiting = asyncio.create_task(perdure.submit(BUILD, fresh, patience=LONG))
    await asyncio.sleep(0.5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_delivery_that_ended_undelivered_is_not_begun_anew(
    client: Client, script: Script, perdure: Perdure, fresh: str
) -> None:
    script.settings, script.phases = {"fails": "SetupFailed"}, (Phase.BUILD,)
    async with playing(client, script):
        submitted = await perdure.submit(BUILD, fresh, patience=LONG)
        assert (await submitted.delivery.result()).status is Status.NOT_DELIVERED
        with pytest.raises(BadInput, match="has ended without delivering") as refusal:
            await perdure.submit(BUILD, fresh, patience=LONG)
        assert "perdure retry" in str(refusal.value.fix)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"repository": "/r", "reqest": "x"}, "reqest: unknown field (did you mean request?)"),
        ({"repository": "/r", "request": "x", "phases": ["ship"]}, "phases: ship needs something to work on"),
        ("just words", "expected one JSON object, got a string"),
        (
            RawValue(payload('{"repository": "/r", "request": "\\ud83c"}')),
            "cannot be read: Invalid JSON: unexpected end",
        ),
        (RawValue(payload("\x78\x9c", encoding="binary/zlib")), "cannot be read: Unknown payload encoding binary/zlib"),
    ],
)
async def test_a_bad_request_fails_in_the_call_and_names_the_field(
    client: Client, script: Script, fresh: str, request_: Any, words: str
) -> None:
    async with playing(client, script):
        with pytest.raises(WorkflowUpdateFailedError) as failure:
            await attach(client, fresh, request_)
        cause = failure.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == "InvalidRequest"
        assert words in cause.message


async def test_what_only_the_worker_refuses_is_an_invalid_request_here_too(
    client: Client, script: Script, perdure: Perdure, fresh: str
) -> None:
    async with playing(client, script):
        with pytest.raises(InvalidRequest, match="ship needs something to work on"):
            await perdure.submit({**BUILD, "phases": ["ship"]}, fresh, patience=LONG)


async def test_whoever_attaches_learns_what_it_is_about_and_cannot_mean_another_repository(
    client: Client, waits: Script, fresh: str
) -> None:
    async with playing(client, waits):
        there = DeliveryAttached.model_validate(await attach(client, fresh, PLANNED))
        assert (there.delivery_id, there.repository, there.request) == (fresh, "/r", "Add sub")
        assert (await attach(client, fresh, PLANNED, {**PLANNED, "request": "Add\n sub"}))["run_id"] == there.run_id
        for other, words in (
            ({**PLANNED, "repository": "/other"}, "the id is taken by another repository, /r"),
            ({**PLANNED, "request": "Add sub!"}, "the id is taken by another request there: Add sub"),
            ({"repository": "/r", "issue": 12}, "the id is taken by another request there: Add sub"),
            ({"repository": "/r", "request": "x", "bugdet_usd": 5}, "bugdet_usd: unknown field"),
        ):
            with pytest.raises(WorkflowUpdateFailedError) as failure:
                await attach(client, fresh, PLANNED, other)
            assert words in str(failure.value.cause)
        await client.get_workflow_handle(fresh).cancel()


async def test_attaching_without_end_leaves_room_for_decisions(client: Client, waits: Script, fresh: str) -> None:
    """A run takes 2,000 updates: what is refused, or sent again under its id, is none of them."""
    handle = client.get_workflow_handle(fresh)
    refused = 0
    async with playing(client, waits):
        first = await attach(client, fresh, PLANNED, update_id="attach")
        await waiting(handle)
        before = len((await handle.fetch_history()).events)
        for _ in range(30):
            batch = [attach(client, fresh, PLANNED, update_id="attach") for _ in range(8)]
            assert await asyncio.gather(*batch) == [first] * 8
        assert len((await handle.fetch_history()).events) == before, "what was answered before was written down again"
        for _ in range(ATTACHES // 8 + 2):
            batch = [attach(client, fresh, PLANNED) for _ in range(8)]
            outcomes = await asyncio.gather(*batch, return_exceptions=True)
            failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            assert all(isinstance(failure, WorkflowUpdateFailedError) for failure in failed), failed
            refused += len(failed)
        assert refused == 8 * (ATTACHES // 8 + 2) - (ATTACHES - 1)
        assert "approved: plan" in await handle.execute_update("approve", {})
        assert (await handle.result())["status"] == "completed"
        assert await attach(client, fresh, PLANNED, update_id="attach") == first, "attached to what has ended"


def test_what_the_web_ui_says_of_a_request_is_its_words_and_nothing_of_them_is_rendered() -> None:
    caption, details = caption_and_details({"issue": 12, "request": "Add <b>sub</b>,\n- see ![i](http://x.y/z)"})
    assert caption == r"\#12 Add \<b\>sub\</b\>, \- see \!\[i\]\(http\://x.y/z\)".replace(r"\-", "-")
    assert (
        details
        == "**Issue** \\#12\n\n**Request**\n\nAdd \\<b\\>sub\\</b\\>,  \n\\- see \\!\\[i\\]\\(http\\://x.y/z\\)  "
    )
    assert caption_and_details({"reqest": "x", "issue": []}) == ("", "")


@pytest.mark.parametrize("words", ["🎉" * 200, "*" * 70_000, "x" * 200, "é\n" * 5000, "1/" * 5000])
def test_however_long_a_request_is_the_server_takes_what_is_said_of_it(words: str) -> None:
    caption, details = caption_and_details({"request": words})
    summary, section = pydantic_data_converter.payload_converter.to_payloads([caption, details])
    assert 100 < summary.ByteSize() <= 400
    assert 0 < section.ByteSize() <= 20_000


async def test_a_second_argument_is_refused_and_the_details_say_why(client: Client, script: Script, fresh: str) -> None:
    async with playing(client, script):
        handle = await client.start_workflow("Delivery", args=[BUILD, 1], id=fresh, task_queue="perdure")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert "expected one JSON object, got 2 arguments" in str(failed.value.cause)
        metadata = await handle.query("__temporal_workflow_metadata")
        assert "### Refused" in metadata.current_details
