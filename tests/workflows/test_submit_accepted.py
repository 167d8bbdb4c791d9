"""Submitted and accepted, or attached: one delivery for the same words or the same issue, with no worker too."""

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
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.client.submit import caption_and_details
from perdure.models.delivery.request import parse_request
from perdure.models.delivery.result import Status
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import delivery_id
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.models.rules.inbox import DeliveryAttached, request_key
from tests.deliveries import PLANNED, Script, playing, waiting
from tests.waiting import patient, until
from workflows import WORKFLOWS
from workflows.inbox import ATTACHES
from workflows.unknown_workflow import WORKFLOW_TYPES, UnknownWorkflow, nearest_workflow_type


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


Request = dict[str, Any]


@pytest.fixture
def name(fresh: str) -> str:
    """Of a repository that no other test has."""
    return f"calc{fresh.removeprefix('d-')}"


async def test_an_issue_submitted_again_attaches_however_it_is_named(perdure: Perdure, name: str) -> None:
    ways: list[Request] = [
        {"repository": f"https://github.com/me/{name}", "issue": 12},
        {"repository": f"git@github.com:Me/{name}.git", "issue": "#12", "request": "only the parser"},
        {"repository": f"https://GitHub.com/me/{name}.git", "issue": f"https://github.com/me/{name}/issues/12"},
    ]
    submitted = [await perdure.submit(way) for way in ways]
    assert [one.delivery.id for one in submitted] == [f"{name}-issue-12"] * 3
    assert [one.attached for one in submitted] == [False, True, True]
    assert await submitted[2].delivery.request() == {**ways[0], "issue": "12"}
    other = await perdure.submit({**ways[0], "issue": 13})
    assert (other.delivery.id, other.attached) == (f"{name}-issue-13", False)


async def test_ten_submissions_of_one_issue_at_once_start_one_delivery(perdure: Perdure, name: str) -> None:
    request = {"repository": f"https://github.com/me/{name}", "issue": 12}
    submitted = await asyncio.gather(*(perdure.submit(request) for _ in range(10)))
    assert sorted(one.attached for one in submitted) == [False, *[True] * 9]


async def test_a_second_submission_of_a_delivered_issue_returns_its_stored_result(
    client: Client, perdure: Perdure, script: Script, name: str
) -> None:
    script.phases = ()
    request = {"repository": f"https://github.com/me/{name}", "issue": 12}
    async with playing(client, script):
        first = await (await perdure.submit(request)).delivery.result()
    again = await perdure.submit(request)
    assert again.attached
    assert await again.delivery.result() == first


async def test_an_issue_of_another_owners_repository_is_refused_not_attached(perdure: Perdure, name: str) -> None:
    await perdure.submit({"repository": f"https://github.com/me/{name}", "issue": 12})
    yours = {"repository": f"https://github.com/you/{name}", "issue": 12}
    with pytest.raises(
        BadInput, match=f"the id {name}-issue-12 is taken by another repository, https://github.com/me/"
    ):
        await perdure.submit(yours)
    named = await perdure.submit(yours, id=f"{name}-issue-12-2")
    assert not named.attached


async def test_an_id_of_another_request_is_refused_for_an_issue(perdure: Perdure, name: str) -> None:
    repository = f"https://github.com/me/{name}"
    await perdure.submit({"repository": repository, "request": "issue\n1234"}, id=f"{name}-issue-1234")
    with pytest.raises(BadInput, match="is taken by another request there: issue 1234"):
        await perdure.submit({"repository": repository, "issue": 1234})
    await perdure.submit({"repository": repository, "issue": 3}, id=f"{name}-3")
    with pytest.raises(BadInput, match="is taken by another request there: #3"):
        await perdure.submit({"repository": repository, "issue": 4}, id=f"{name}-3")


async def test_an_id_that_another_repository_has_is_refused(perdure: Perdure, name: str) -> None:
    mine = {"repository": f"https://github.com/me/{name}", "request": "Add sub"}
    await perdure.submit(mine, id=name)
    with pytest.raises(BadInput, match=f"the id {name} is taken by another repository, https://github.com/me/"):
        await perdure.submit({**mine, "repository": f"https://github.com/you/{name}"}, id=name)


async def test_the_web_ui_names_the_issue(client: Client, perdure: Perdure, name: str) -> None:
    repository = f"https://github.com/me/{name}"
    for request, summary, details in (
        ({"issue": 12}, r"\#12", r"**Issue** \#12"),
        (
            {"issue": "13", "request": "only\nthe parser"},
            r"\#13 only the parser",
            "**Issue** \\#13\n\n**Request**\n\nonly",
        ),
    ):
        submitted = await perdure.submit({"repository": repository, **request})
        described = await client.get_workflow_handle(submitted.delivery.id).describe()
        assert await described.static_summary() == summary
        assert (await described.static_details() or "").startswith(details)


async def test_another_clients_issue_is_accepted_and_a_bad_one_refused_by_name(
    client: Client, perdure: Perdure, script: Script, fresh: str, name: str
) -> None:
    script.phases = ()
    repository = f"https://github.com/me/{name}"
    async with playing(client, script):
        done = await client.execute_workflow(
            "Delivery", {"repository": repository, "issue": "#12"}, id=fresh, task_queue=TASK_QUEUE
        )
        assert done["status"] == "completed"
        bad = {"repository": repository, "issue": "twelve"}
        await client.start_workflow("Delivery", bad, id=f"{fresh}-bad", task_queue=TASK_QUEUE)
        with pytest.raises(InvalidRequest, match=r"^issue: 'twelve' names no issue: write 12, #12"):
            await perdure.delivery(f"{fresh}-bad").result()
    with pytest.raises(InvalidRequest, match="issue: 'twelve' names no issue"):
        parse_request(bad)


@pytest.fixture
def request_(fresh: str) -> Request:
    """Of a repository that no other test has."""
    return {"repository": f"https://github.com/me/calc{fresh.removeprefix('d-')}", "request": "Add sub,\n please"}


async def test_ten_who_say_the_same_at_once_start_one_delivery(perdure: Perdure, request_: Request) -> None:
    submitted = await asyncio.gather(*(perdure.submit(request_) for _ in range(10)))
    assert len({one.delivery.id for one in submitted}) == 1
    assert sorted(one.attached for one in submitted) == [False, *[True] * 9]


async def test_the_same_is_the_same_however_it_is_written_and_another_wish_is_another(
    perdure: Perdure, request_: Request
) -> None:
    first = await perdure.submit(request_)
    ssh = request_["repository"].replace("https://github.com/", "git@github.com:") + ".git"
    again = [{**request_, "repository": ssh}, {**request_, "request": "Add sub, please"}, {**request_, "budget_usd": 9}]
    for same in again:
        there = await perdure.submit(same)
        assert (there.delivery.id, there.attached) == (first.delivery.id, True)
    others = [{"base": "release"}, {"branch": "topic"}, {"phases": ["plan"]}, {"request": "Add sub, please!"}]
    ids = {first.delivery.id}
    for other in others:
        there = await perdure.submit({**request_, **other})
        assert not there.attached
        ids.add(there.delivery.id)
    new = await perdure.submit(request_, new=True)
    assert not new.attached
    assert len(ids | {new.delivery.id}) == len(others) + 2


async def test_one_that_has_ended_is_not_attached_to_and_the_next_one_is(
    client: Client, perdure: Perdure, request_: Request
) -> None:
    ids = []
    for _ in range(3):
        first, again = await perdure.submit(request_), await perdure.submit(request_)
        assert (first.attached, again.attached, again.delivery.id) == (False, True, first.delivery.id)
        await client.get_workflow_handle(first.delivery.id).terminate()
        ids.append(first.delivery.id)
    assert len(set(ids)) == 3


async def test_one_that_began_weeks_ago_is_found(client: Client, perdure: Perdure, request_: Request) -> None:
    long_ago = delivery_id(request_["repository"], request_["request"], "of another day")
    await client.start_workflow("Delivery", request_, id=long_ago, task_queue=TASK_QUEUE)

    async def listed() -> bool:
        return bool(await perdure.list(query=f"WorkflowId = '{long_ago}'"))

    await until(listed)
    there = await perdure.submit(request_)
    assert (there.delivery.id, there.attached) == (long_ago, True)


async def test_another_commit_of_a_branch_is_another_wish(perdure: Perdure, request_: Request) -> None:
    topic = {**request_, "branch": "topic", "phases": ["test"]}
    told = [await perdure.submit(topic, name="test topic", branch_commit=commit) for commit in ("c1", "c1", "c2")]
    assert [one.attached for one in told] == [False, True, False]
    assert all("-test-topic-" in one.delivery.id for one in told)


async def test_an_id_that_is_taken_by_other_words_is_refused(perdure: Perdure, request_: Request, fresh: str) -> None:
    await perdure.submit(request_, id=fresh)
    assert (await perdure.submit({**request_, "request": "Add sub, please"}, id=fresh)).attached
    with pytest.raises(BadInput, match=f"the id {fresh} is taken by another request there: Add sub, please"):
        await perdure.submit({**request_, "request": "Remove sub"}, id=fresh)


def test_what_is_wanted_cannot_run_into_one_another() -> None:
    from perdure.models.delivery.request import parse_request

    one = parse_request({"repository": "/r", "request": "x", "base": "b"})
    other = parse_request({"repository": "/r", "request": "x", "branch": "b"})
    assert request_key(one) != request_key(other)


@pytest.mark.parametrize(
    ("name", "near"), [("Delivry", "Delivery"), ("delivery", "Delivery"), ("Backlgo", "Backlog"), ("Specialist", None)]
)
def test_what_was_probably_meant_is_named_and_what_may_come_later_is_not(name: str, near: str | None) -> None:
    assert nearest_workflow_type(name) == near


def test_every_workflow_of_ours_is_among_the_names() -> None:
    assert {each.__name__ for each in WORKFLOWS} - {UnknownWorkflow.__name__} == set(WORKFLOW_TYPES)


async def test_a_misspelt_type_fails_at_once_in_the_call_and_in_the_workflow(client: Client, fresh: str) -> None:
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        "Delivry", {}, id=fresh, task_queue=fresh, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    async with Worker(client, task_queue=fresh, workflows=[UnknownWorkflow]), asyncio.timeout(patient(30)):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await client.execute_update_with_start_workflow("attach", {}, start_workflow_operation=start)
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(fresh).result()
    for cause in (refused.value.cause, failed.value.cause):
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.message.endswith("no workflow type Delivry (did you mean Delivery?)")) == (
            "InvalidRequest",
            True,
        )
