"""The same words twice are one delivery while it runs: however fast they come, and however long ago it began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client

from perdure.client import Perdure
from perdure.models.errors import BadInput
from perdure.models.ids import delivery_id
from perdure.models.limits import TASK_QUEUE
from perdure.models.rules.inbox import request_key
from tests.waiting import until

Request = dict[str, Any]


@pytest.fixture
async def request_(client: Client, fresh: str) -> AsyncIterator[Request]:
    """Of a repository that no other test has; what was started of it is ended, or the next test's worker would work."""
    name = f"calc{fresh.removeprefix('d-')}"
    yield {"repository": f"https://github.com/me/{name}", "request": "Add sub,\n please"}
    for beginning in (name, fresh):
        async for one in client.list_workflows(f"WorkflowId STARTS_WITH '{beginning}' AND ExecutionStatus = 'Running'"):
            await client.get_workflow_handle(one.id).terminate()


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
