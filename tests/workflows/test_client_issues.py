"""One issue is one delivery, however often and however it is named; two issues never share one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from perdure.client import Perdure
from perdure.models.delivery.request import parse_request
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import TASK_QUEUE
from tests.deliveries import Script, playing

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
    assert await submitted[2].delivery.request() == ways[0]
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
