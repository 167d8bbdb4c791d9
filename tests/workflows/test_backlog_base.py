"""A backlog's branch: its base moves under it, others write to it, checks run on what has landed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError

from perdure.models.backlog.request import CHECKS_MOST
from perdure.models.backlog.state import BacklogProgress
from perdure.render.backlog.text import status_lines
from tests.deliveries import at, playing
from tests.waiting import patient


async def asked(handle: Any) -> str:
    return str((await at(handle, lambda progress: progress.get("asks")))["asks"])


def commits(progress: dict[str, Any]) -> dict[str, str]:
    return {item["id"]: item["commit"] for item in progress["items"]}


async def test_the_branch_follows_before_its_pull_request_and_items_have_the_commits_they_became(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.pushes = ["", ""], 1
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]})))
    assert commits(progress) == {"one": "one'", "two": "two'"}
    assert progress["head"] == "two'"
    assert [work.base_sha for work in branch.follows] == ["b", "b"], "again, on what somebody pushed in between"
    assert [work.landed for work in branch.follows] == ["two", "two"]
    assert branch.proposals[0].head == "two'"
    assert any("stands on b2" in note for note in progress["notes"])
    assert progress["pull_request"] == "http://forge/1"


async def test_what_stands_there_costs_one_look_and_nothing_landed_none(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.fails = [], {"two"}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"})))
        assert commits(progress) == {"one": "one"}
        assert len(branch.follows) == 1
        await ended(await backlog(client, f"{fresh}-2", night({"id": "two"})))
    assert len(branch.follows) == 1


async def test_in_the_way_a_person_is_asked_and_what_they_did_by_hand_is_looked_at(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base = ["api conflicts in a.txt", ""]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        assert await asked(handle) == "api conflicts in a.txt"
        assert branch.proposals == []
        await handle.execute_update("add", {"item": {"id": "two", "request": "Do two"}})
        await until(handle, lambda at: at["two"] == "landed")  # whoever is asked keeps nobody from landing
        assert await handle.execute_update("follow", {}) == "main is looked at again"
        progress = await ended(handle)
    assert commits(progress) == {"one": "one'", "two": "two'"}
    assert progress.get("asks", "") == ""


async def test_left_where_it_is_the_pull_request_is_opened_and_says_so(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.base = ["its tests are red: 1 failed"]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await asked(handle)
        for bad in ({"leave": "perhaps"}, {"item": "one"}):
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update("follow", bad)
        words = await handle.execute_update("follow", {"leave": True, "note": "the release waits"})
        assert words == "perdure/night stays where it is; its pull request says so"
        progress = await ended(handle)
    assert commits(progress) == {"one": "one"}
    assert any(note.startswith("perdure/night stays where it is: the release waits") for note in progress["notes"])
    assert len(branch.follows) == 1


async def test_a_branch_that_was_named_is_never_rewritten(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, branch="shared"))
        await until(handle, lambda at: at["one"] == "building")
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("follow", {})
        assert "shared was named, so others may use it, too: it is never rewritten" in str(refusal.value.cause)
        branch.holding["one"].set()
        await ended(handle)
    assert branch.follows == []


async def test_nobody_lands_while_the_branch_follows_in_the_middle_of_the_night(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.base, branch.looking = [""], asyncio.Event()
    branch.holding = {"two": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        await until(handle, lambda at: at == {"one": "landed", "two": "building"})
        await handle.execute_update("follow", {})
        await until(handle, lambda _: branch.follows)
        branch.holding["two"].set()
        items = await until(handle, lambda at: at["two"] == "landing")
        assert items["two"]["because"] == "is the next"
        assert branch.landed == ["one"]
        branch.looking.set()
        progress = await ended(handle)
    assert commits(progress) == {"one": "one'", "two": "two"}
    assert [work.base_sha for work in branch.follows] == ["b", "b1"]


async def test_a_backlog_that_waits_for_a_person_can_be_cancelled(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.base = ["main is not on the remote any more"]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await asked(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)


PUSH = f"git -C /{'vault' * 60} push /origin.git 17e4a050907c:refs/heads/perdure/night"
GONE = f"branch perdure/night is not on the remote any more\n  fix: bring 17e4a050907c back, then retry:\n{PUSH}"


async def test_a_branch_nobody_can_land_on_holds_the_backlog_before_more_is_built_in_vain(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b", three="c")
    branch.refuses = GONE
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "three"}, parallel=1))
        await until(handle, lambda at: at == {"one": "failed", "two": "ready", "three": "ready"})
        held = await handle.query("progress")
        assert held["held"] == f"held: one could not land: {GONE}"
        assert [line.strip() for line in status_lines(BacklogProgress.model_validate(held))[1:6]] == [
            "! held: one could not land: branch perdure/night is not on the remote any more",
            "fix: bring 17e4a050907c back, then retry:",
            PUSH,
            f"perdure backlog retry {fresh} one",
            f"perdure backlog resume {fresh}",
        ]
        branch.refuses = ""  # somebody has brought it back
        await handle.execute_update("retry", {"item": "one"})
        await handle.signal("resume", {})
        async with asyncio.timeout(patient(40)):
            progress: dict[str, Any] = await handle.result()
    assert {item["phase"] for item in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == ["one", "three", "two"]


async def test_what_a_person_has_pushed_already_blocks_nothing(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.there = {"one"}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}))
        async with asyncio.timeout(patient(40)):
            progress: dict[str, Any] = await handle.result()
    one, two = progress["items"]
    assert (one["phase"], one["because"]) == ("skipped", "all of it is on perdure/night already")
    assert two["phase"] == "landed"
    assert branch.landed == ["two"]


def chain(*ids: str) -> list[dict[str, object]]:
    """Each lands on the one before it, and has a check."""
    return [
        {"id": id, "check": [f"check {id}"], "depends_on": [on] if on else []}
        for id, on in zip(ids, ("", *ids), strict=False)
    ]


def leaves_out_a() -> Branch:
    branch = Branch(a="a", b="b", c="c", d="d")
    branch.left_out = {"c": "b", "d": "a"}
    return branch


async def test_checks_that_were_left_out_come_first_the_next_time_and_run_once_more_at_the_end(
    client: Client, fresh: str
) -> None:
    branch = leaves_out_a()
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*chain("a", "b", "c", "d"))))
    assert set(phases(progress).values()) == {"landed"}
    assert branch.checked["c"] == [["a", "b"]], "least recently run first"
    assert branch.checked["d"] == [["b", "a", "c"]], "b had no time with c"
    assert [(work.landed, work.check) for work in branch.lasts] == [("d", {"a": ("check a",)})]
    assert branch.proposals[0].unchecked == ()
    assert progress["pull_request"]


async def test_at_the_end_all_of_them_run_however_many_runs_that_takes(client: Client, fresh: str) -> None:
    branch = leaves_out_a()
    branch.last_time = 1
    items = [{"id": id, "check": [f"check {number}" for number in range(CHECKS_MOST - 1)]} for id in "abcd"]
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night(*items, parallel=1)))
    assert [list(work.check) for work in branch.lasts] == [["a"], ["c"]], "b ran as d landed"
    assert branch.proposals[0].unchecked == ()


async def test_what_has_no_time_at_the_end_either_is_named(client: Client, fresh: str) -> None:
    branch = leaves_out_a()
    branch.last_time = 0
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*chain("a", "b", "c", "d"))))
    assert len(branch.lasts) == 1, "one that gets nowhere is not begun again"
    assert branch.proposals[0].unchecked == ("a",)
    assert any("the checks of a are not known" in note for note in progress["notes"])


@pytest.mark.parametrize("named", [False, True])
async def test_what_somebody_broke_meanwhile_is_a_persons_to_decide_before_the_pull_request(
    client: Client, fresh: str, named: bool
) -> None:
    branch = leaves_out_a()
    branch.last = ["check of a: exit code 1; it held until d landed"]
    if not named:
        branch.base = []
    async with playing(client, branch):
        handle = await backlog(
            client, fresh, night(*chain("a", "b", "c", "d"), **({"branch": "shared"} if named else {}))
        )
        asking = await at(handle, lambda progress: progress.get("asks"))
        assert asking["asks"] == "check of a: exit code 1; it held until d landed"
        assert branch.proposals == []
        branch.changes["e"] = {"e"}
        await handle.execute_update("add", {"item": {"id": "e", "request": "Mend a"}})
        progress = await ended(handle)  # nobody has to say that it is mended
    assert branch.checked["e"][0][0] == "a", "first of all"
    assert progress.get("asks", "") == ""
    assert len(branch.lasts) == 1, "they held as e landed"


async def test_a_question_that_nothing_is_left_of_does_not_outlive_its_backlog(client: Client, fresh: str) -> None:
    """Its last look failed for another reason than a check, and then what lands runs the same checks."""
    branch = leaves_out_a()
    branch.changes["e"], branch.last_refused = {"e"}, "branch shared is not on the remote any more"
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*chain("a", "b", "c", "d"), branch="shared"))
        async with asyncio.timeout(patient(40)):
            while "not on the remote" not in (await handle.query("progress")).get("asks", ""):
                await asyncio.sleep(0.05)
        await handle.execute_update("add", {"item": {"id": "e", "request": "Bring it back"}})
        progress = await ended(handle)
    assert progress.get("asks", "") == ""
    assert progress["pull_request"]


async def test_left_as_it_is_the_pull_request_says_what_does_not_hold(client: Client, fresh: str) -> None:
    branch = leaves_out_a()
    branch.last = ["check of a: exit code 1"]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*chain("a", "b", "c", "d")))
        await at(handle, lambda progress: progress.get("asks"))
        await handle.execute_update("follow", {"leave": True, "note": "known"})
        progress = await ended(handle)
    assert any("stays where it is: known (check of a: exit code 1)" in note for note in progress["notes"])
    assert branch.proposals[0].unchecked == ("a",)


async def test_a_landing_that_came_to_nothing_counts_for_no_check(client: Client, fresh: str) -> None:
    """The same ones run again with what was mended: the one that it broke among them."""
    branch = Branch(a="a", b="b", c="c")
    branch.red = {"c": 1}
    many = [f"check {number}" for number in range(CHECKS_MOST - 1)]
    items = [{"id": id, "check": many, "depends_on": ["a", "b"] if id == "c" else []} for id in "abc"]
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*items, parallel=1)))
    assert phases(progress)["c"] == "landed"
    assert [step for item, step in branch.rebases if item == "c"] == ["rebased", "rebased"]
    assert branch.checked["c"] == [["a"], ["a"]], "there is room for those of one"
    assert [list(work.check) for work in branch.lasts] == [["b"]]
