"""Decisions given to a backlog: handed to the delivery that waits, once, and refused in words where they do not fit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio.client import Client, WorkflowUpdateFailedError

from perdure.client.backlog import Backlog
from perdure.models.delivery.decisions import Question
from perdure.models.phases import Phase
from perdure.models.rules.inbox import NotCounted
from tests.deliveries import at, playing

GATED = (Phase.BUILD, Phase.TEST, Phase.REVIEW, Phase.SHIP)


def asking(**changes: str) -> Branch:
    branch = Branch(**changes)
    branch.asks(*GATED, test_fixes=0, gates=("pull_request",))
    return branch


def waits(id: str, behind: str = "") -> Any:
    return lambda items: items[id]["phase"] == "waits" and items[id]["of"] != behind


async def until_items(handle: Any, what: Any) -> dict[str, dict[str, Any]]:
    def by_id(progress: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {item["id"]: item for item in progress["items"]}

    return by_id(await at(handle, lambda progress: what(by_id(progress))))


async def test_a_decision_given_to_the_backlog_is_its_deliverys_once_and_bound_to_what_was_seen(
    client: Client, fresh: str
) -> None:
    branch = asking(api="a", docs="d")
    async with playing(client, branch):
        request = night({"id": "api"}, {"id": "docs", "depends_on": ["api"]})
        handle, night_ = await backlog(client, fresh, request), Backlog(client, fresh)
        seen = (await until_items(handle, waits("api")))["api"]["of"]
        with pytest.raises(NotCounted, match=f"it waits for pull_request {seen}, not for 1234"):
            await night_.decide("api", "approve", {"of": "1234"})
        with pytest.raises(NotCounted, match="answer does not decide this"):
            await night_.decide("api", "answer", {"of": seen, "answer": "yes"})
        with pytest.raises(NotCounted, match="docs has not begun yet"):
            await night_.decide("docs", "approve", {})
        with pytest.raises(NotCounted, match=r"there is no item apo \(did you mean api\?\)"):
            await night_.decide("apo", "approve", {})
        with pytest.raises(NotCounted, match="nte: unknown field"):
            await night_.decide("api", "approve", {"nte": "x"})
        with pytest.raises(WorkflowUpdateFailedError) as unnamed:
            await handle.execute_update("approve", {"of": seen})
        assert "item: name the one that waits" in str(unnamed.value.cause)
        words = await night_.decide("api", "reject", {"of": seen, "note": "shorter"})
        assert words == f"reject {seen} was handed to {fresh}/api: it goes on"
        again = (await until_items(handle, waits("api", seen)))["api"]["of"]
        with pytest.raises(NotCounted, match=f"it waits for pull_request {again}, not for {seen}"):
            await night_.decide("api", "approve", {"of": seen})  # what she had before her is not there any more
        assert "it goes on" in await night_.decide("api", "approve", {"of": again, "by": "ada"})
        await until(handle, lambda phases: phases["api"] == "landed")
        with pytest.raises(NotCounted, match="api has landed"):
            await night_.decide("api", "approve", {"of": again})
        await until_items(handle, waits("docs"))
        assert "it goes on" in await night_.decide("docs", "approve", {})
        assert phases(await ended(handle)) == {"api": "landed", "docs": "landed"}
        made = await client.get_workflow_handle(f"{fresh}/api").result()
    assert [(one["verdict"], one["by"]) for one in made["decisions"]] == [("rejected", ""), ("approved", "ada")]
    assert [work.materials.get("words") for work in branch.seen if work.step == "fix_review"] == ["shorter"]


async def test_a_question_is_answered_at_the_backlog_with_one_of_its_choices(client: Client, fresh: str) -> None:
    branch = Branch(api="a")
    question = Question(text="Which?", kind="choice", choices=("red", "blue"))
    played, asked = branch.turn, list[str]()

    async def asks(work: Any) -> Any:
        result = await played(work)
        if asked:
            return result
        asked.append(work.step)
        return result.model_copy(update={"question": question, "outcome": None})

    branch.turn = asks
    async with playing(client, branch):
        handle, night_ = await backlog(client, fresh, night({"id": "api"})), Backlog(client, fresh)
        items = await until_items(handle, waits("api"))
        assert items["api"]["gate"] == "question"
        with pytest.raises(NotCounted, match="'green' is none of red / blue"):
            await night_.decide("api", "answer", {"answer": "green"})
        assert "it goes on" in await night_.decide("api", "answer", {"answer": "Blue"})
        assert phases(await ended(handle)) == {"api": "landed"}
    assert [said.text for work in branch.seen for said in work.messages] == ["Blue"]


async def test_more_budget_may_be_given_while_nothing_waits_and_a_dead_delivery_is_said(
    client: Client, fresh: str
) -> None:
    branch = asking(api="a")
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        handle, night_ = await backlog(client, fresh, night({"id": "api"})), Backlog(client, fresh)
        await until(handle, lambda phases: phases["api"] == "building")
        with pytest.raises(NotCounted, match="api is being built: it waits for nothing that you could decide"):
            await night_.decide("api", "approve", {})
        with pytest.raises(NotCounted, match="say how much more"):
            await night_.decide("api", "add_budget", {})
        assert await night_.decide("api", "add_budget", {"usd": 3}) == f"add_budget was handed to {fresh}/api"
        branch.holding["api"].set()
        await until_items(handle, waits("api"))
        progress = await client.get_workflow_handle(f"{fresh}/api").query("progress")
        assert [(one["gate"], one["verdict"]) for one in progress["decisions"]] == [("budget", "raised")]
        await client.get_workflow_handle(f"{fresh}/api").terminate()
        with pytest.raises(NotCounted, match="api has ended just now: nothing was decided"):
            await night_.decide("api", "approve", {})
        assert phases(await ended(handle)) == {"api": "failed"}
