"""Messages of people to a backlog, by command and by program, count once, at any moment, or are refused in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError

from perdure.client import Perdure
from perdure.client.backlog import Backlog
from perdure.client.history.records import SendersAccepted, decode_event
from perdure.models.backlog.landing import PriorityInput, PriorityResult
from perdure.models.backlog.state import BacklogProgress
from perdure.models.delivery.decisions import Question
from perdure.models.errors import BadInput, PerdureError
from perdure.models.phases import Phase
from perdure.models.rules.inbox import NotCounted
from tests.cli.conftest import Cli, Ran
from tests.deliveries import at, playing
from tests.waiting import patient
from tests.waiting import until as once


@pytest.fixture
def typed(server: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": server})


async def shown(perdure: Perdure, id: str, **wanted: str) -> BacklogProgress:
    """Its standing, as soon as these items are in these phases."""
    async with asyncio.timeout(patient(40)):
        while True:
            progress = await perdure.backlog(id).progress()
            phases = {view.id: view.phase for view in progress.items}
            if wanted.items() <= phases.items():
                return progress
            await asyncio.sleep(0.05)


@pytest.mark.timeout(150)
async def test_a_running_backlog_is_looked_at_and_changed_from_the_command_line(
    client: Client, fresh: str, typed: Cli
) -> None:
    branch, perdure = Branch(api="a", page="p", docs="d", more="m"), Perdure(client)
    branch.fails = {"docs"}
    branch.holding = {"api": asyncio.Event()}

    async def run(*args: str, code: int = 0) -> Ran:
        ran: Ran = await asyncio.to_thread(typed, "backlog", *args)
        assert ran.code == code, ran
        return ran

    async with playing(client, branch):
        items = ({"id": "api"}, {"id": "page", "depends_on": ["api"]}, {"id": "docs"})
        await perdure.submit_backlog(night(*items, parallel=2), fresh)
        await shown(perdure, fresh, api="building", docs="failed", page="after")
        status = (await run("status", fresh)).out
        assert f"{fresh}  3 items · 1 building · 1 failed · 1 after others" in status
        assert "failed    docs (tests are red" in status
        assert json.loads((await run("status", "--json")).out)["backlog_id"] == fresh, "the newest"
        assert "docs" in (await run("graph", fresh, "--format", "mermaid")).out
        assert "added: more" in (await run("add", fresh, "more", "--request", "Do more", "--depends-on", "page")).out
        assert "edited: more" in (await run("edit", fresh, "more", "--request", "Do more of it")).out
        given = (await perdure.backlog(fresh).past()).items
        assert given["more"] == {"id": "more", "request": "Do more of it", "depends_on": ["page"]}
        assert "edited: more" in (await run("edit", fresh, "more", "--attempts", "3", "--after-red")).out
        given = (await perdure.backlog(fresh).past()).items
        assert given["more"] == {
            "id": "more", "request": "Do more of it", "depends_on": ["page"], "attempts": 3, "after_red": True,
        }  # fmt: skip
        assert "priority -5: more" in (await run("prioritise", fresh, "more", "-5")).out
        refused = (await run("add", fresh, "no", "--issue", "3", code=2)).err
        assert "this repository has no issues that Perdure can read" in refused, "as `start` says it"
        assert "edited: more" in (await run("edit", fresh, "more", "--depends-on", "")).out
        assert "depends_on" not in (await perdure.backlog(fresh).past()).items["more"]
        assert "goes on: docs" in (await run("retry", fresh, "docs")).out
        await shown(perdure, fresh, docs="failed")
        assert (await perdure.backlog(fresh).past()).start_counts[f"{fresh}/docs"] == 2, "red once more"
        assert (await run("skip", fresh, "docs", "--note", "never mind", "--json")).out
        refused = (await run("add", fresh, "api", "--request", "again", code=2)).err
        assert len(refused.splitlines()) <= 3, refused
        assert "apu" in (await run("skip", fresh, "apu", code=2)).err
        await run("hold", fresh, "--note", "release day")
        assert "held: release day" in (await run("status", fresh)).out
        await run("resume", fresh)
        branch.holding["api"].set()
        end = await run("status", fresh, "--watch", "--json")
        assert {view["id"]: view["phase"] for view in json.loads(end.out)["items"]} == {
            **dict.fromkeys(("api", "page", "more"), "landed"),
            "docs": "skipped",
        }
        assert "nothing of it can be changed" in (await run("hold", fresh, code=2)).err
        report = json.loads((await run("report", fresh, "--json")).out)
        assert report["receipt"]["unread"], "there is no such repository: that is said, and is no zero"
        assert not report["receipt"]["clean"]
        assert report["wanted"]["more"] == "Do more of it"
        page = typed.cwd / "night.html"
        await run("report", fresh, "--html", str(page))
        assert "Receipt, counted from history and git" in page.read_text()
        assert fresh in (await asyncio.to_thread(typed, "list")).out
        listed = json.loads((await asyncio.to_thread(typed, "list", "--json")).out)
        assert fresh in [one.get("backlog_id") for one in listed]
        assert f"{fresh}/api" in [one.get("delivery_id") for one in listed]
        for command in ("show", "watch"):
            seen = await asyncio.to_thread(typed, command, fresh, "--json")
            assert json.loads(seen.out)["items"] == json.loads(end.out)["items"], command
        assert (await asyncio.to_thread(typed, "report", fresh, "--json")).out
        assert "nothing of it can be changed" in (await asyncio.to_thread(typed, "cancel", fresh)).err
        assert f"{fresh} is a backlog" in (await asyncio.to_thread(typed, "diff", fresh)).err


@pytest.mark.timeout(90)
async def test_the_same_backlog_again_attaches_and_another_of_that_id_is_refused(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, perdure = Branch(api="a"), Perdure(client)
    branch.holding = {"api": asyncio.Event()}
    mine, other = night({"id": "api"}), night({"id": "api", "request": "Something else"})

    async def again(request: dict[str, Any]) -> bool:
        return (await perdure.submit_backlog(request, fresh)).attached

    assert not await again(mine)
    backlog = perdure.backlog(fresh)
    with monkeypatch.context() as shorter:
        for patience in ("calls.DECISION_ACCEPTED", "calls.QUERY_TIMEOUT"):
            shorter.setattr(f"perdure.client.server.{patience}", timedelta(seconds=0.5))
        assert await again(mine), "no worker runs: history says what it is"
        with pytest.raises(BadInput, match="is taken by a backlog of other items: api"):
            await again(other)
        with pytest.raises(PerdureError, match="no worker"):
            await backlog.progress()
    async with playing(client, branch):
        await shown(perdure, fresh, api="building")
        assert await again(mine | {"parallel": 2})
        with pytest.raises(BadInput, match="is taken by a backlog of other items"):
            await again(other)
        with pytest.raises(NotCounted):
            await backlog.skip("apu")
        branch.holding["api"].set()
        assert (await backlog.result()).status == "ended"
        assert await again(mine), "it has ended: what it was still stands"
        with pytest.raises(BadInput, match="is taken"):
            await again(other)
        assert (await backlog.past()).landed_commits["api"]
        accepted = set[str]()
        async for event in client.get_workflow_handle(fresh).fetch_history_events():
            if isinstance(record := await decode_event(event, client.data_converter), SendersAccepted):
                accepted |= set(record.runs)
        assert accepted == {(await client.get_workflow_handle(f"{fresh}/api").describe()).run_id}
        with pytest.raises(BadInput, match="no backlog"):
            await perdure.backlog(f"{fresh}-nowhere").describe()
        with pytest.raises(BadInput, match="is no backlog, but a delivery"):
            await perdure.backlog(f"{fresh}/api").describe()


@pytest.mark.timeout(90)
async def test_cancelling_a_backlog_ends_it_and_leaves_its_standing_to_be_read(client: Client, fresh: str) -> None:
    branch, perdure = Branch(api="a", page="p"), Perdure(client)
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        backlog = (
            await perdure.submit_backlog(night({"id": "api"}, {"id": "page", "depends_on": ["api"]}), fresh)
        ).backlog
        await shown(perdure, fresh, api="building")
        await backlog.cancel()
        branch.holding["api"].set()
        async with asyncio.timeout(patient(40)):
            result = await backlog.result()
        assert result.status == "cancelled"
        assert "landed" not in [view.phase for view in result.items]


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


class Slow(Branch):
    """A delivery's priority takes its time."""

    def __init__(self, **changes: str) -> None:
        super().__init__(**changes)
        self.asked, self.answers = 0, asyncio.Event()

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def prioritise_delivery(work: PriorityInput) -> PriorityResult:
            self.asked += 1
            await self.answers.wait()
            return PriorityResult()

        others = [one for one in super().activities() if one.__name__ != "prioritise_delivery"]
        return [*others, prioritise_delivery]


def signed_backlog(**changes: str) -> Branch:
    """Its items begin once somebody says so."""
    branch = Branch(**changes)
    branch.signing = asyncio.Event()
    return branch


@pytest.mark.parametrize("change", ["skip", "cancel_item"])
async def test_an_item_that_is_left_out_while_another_is_begun_does_not_begin(
    client: Client, fresh: str, change: str
) -> None:
    branch = signed_backlog(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["sign_item_request"])
        await handle.execute_update(change, {"item": "two"})
        assert branch.signing is not None
        branch.signing.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "skipped" if change == "skip" else "cancelled"}
    assert branch.landed == ["one"]


async def test_an_item_that_is_to_wait_for_another_one_since_just_now_waits(client: Client, fresh: str) -> None:
    branch = signed_backlog(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["sign_item_request"])
        await handle.execute_update("edit", {"item": {"id": "two", "request": "x", "depends_on": ["one"]}})
        assert branch.signing is not None
        branch.signing.set()
        await once(lambda: branch.seen)
        await asyncio.sleep(1)  # it would have begun by then
        assert (await until(handle, lambda _: True))["two"]["phase"] == "after"
        branch.holding["one"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert branch.landed == ["one", "two"]


async def test_an_item_that_is_cancelled_as_it_begins_is_not_built(client: Client, fresh: str) -> None:
    branch = signed_backlog(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}, proof="x"))
        await once(lambda: branch.called["sign_item_request"])
        await handle.execute_update("cancel_item", {"item": "one"})
        assert branch.signing is not None
        branch.signing.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "cancelled", "two": "blocked"}
    assert branch.landed == []


async def test_what_is_held_as_it_begins_is_held(client: Client, fresh: str) -> None:
    branch = signed_backlog(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["sign_item_request"])
        await handle.signal("hold", {"note": "lunch"})
        await until(handle, lambda _: True)
        assert branch.signing is not None
        branch.signing.set()
        await asyncio.sleep(2)  # were it not held, both would have landed by then
        assert (await handle.query("progress"))["held"] == "held: lunch"
        assert branch.landed == []
        assert [work.step for work in branch.seen] == []
        await handle.signal("resume", {})
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("add", {"item": {"id": "three", "request": "x"}}),
        ("retry", {"item": "two"}),
        ("skip", {"item": "two"}),
    ],
)
async def test_what_is_asked_of_a_backlog_as_it_ends_is_done(
    client: Client, fresh: str, change: str, said: dict[str, Any]
) -> None:
    branch = Branch(one="a", two="b", three="c", after="d")
    branch.fails, branch.closing = {"two"}, asyncio.Event()
    async with playing(client, branch):
        handle = await backlog(
            client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "after", "depends_on": ["two"]})
        )
        await once(lambda: branch.called["close_backlog"])
        branch.fails = set()
        await handle.execute_update(change, said)
        branch.closing.set()
        progress = await ended(handle)
    found = phases(progress)
    assert {"add": found.get("three"), "retry": found["two"], "skip": found["after"]}[change] == "landed", found
    assert progress["status"] == "ended"


async def test_a_backlog_that_has_said_that_it_ended_takes_nothing_more(client: Client, fresh: str) -> None:
    """It waits for an answer that somebody still gets, and nobody is told that more will be done."""
    slow = Slow(one="a")
    slow.holding = {"one": asyncio.Event()}
    async with playing(client, slow):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await once(lambda: slow.seen)
        asked = asyncio.create_task(handle.execute_update("prioritise", {"item": "one", "priority": 5}))
        await once(lambda: slow.asked)
        slow.holding["one"].set()
        async with asyncio.timeout(patient(40)):
            while (await handle.query("progress"))["status"] != "ended":
                await asyncio.sleep(0.05)
        for change, said in (("add", {"item": {"id": "two", "request": "x"}}), ("follow", {})):
            with pytest.raises(WorkflowUpdateFailedError) as refusal:
                await handle.execute_update(change, said)
            assert "it has ended just now: nothing was changed" in str(refusal.value.cause)
        slow.answers.set()
        assert (await asked).startswith("priority 5: one")
        assert list(phases(await ended(handle))) == ["one"]


async def test_an_item_that_is_tried_again_before_its_delivery_has_closed_goes_on(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding, branch.real_looks = {"one": asyncio.Event()}, client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        branch.changes["two"] = {"b"}
        branch.holding["two"] = asyncio.Event()
        await once(lambda: branch.seen)
        await handle.execute_update("cancel_item", {"item": "one"})
        branch.holding["one"].set()

        async def again() -> None:
            while True:
                try:
                    await handle.execute_update("retry", {"item": "one"})
                except WorkflowUpdateFailedError:
                    continue
                return

        async with asyncio.timeout(patient(40)):
            await again()
        branch.holding["two"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}, [i["because"] for i in progress["items"]]
