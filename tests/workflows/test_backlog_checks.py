"""The checks of what has landed: which ones run with the next landing, and the others once more at the end."""

from __future__ import annotations

import asyncio

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases
from temporalio.client import Client

from perdure.models.backlog.request import CHECKS_MOST
from tests.deliveries import at, playing
from tests.waiting import patient


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
    assert "not known to hold" not in branch.bodies[0]
    assert progress["pull_request"]


async def test_at_the_end_all_of_them_run_however_many_runs_that_takes(client: Client, fresh: str) -> None:
    branch = leaves_out_a()
    branch.last_time = 1
    items = [{"id": id, "check": [f"check {number}" for number in range(CHECKS_MOST - 1)]} for id in "abcd"]
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night(*items, parallel=1)))
    assert [list(work.check) for work in branch.lasts] == [["a"], ["c"]], "b ran as d landed"
    assert "not known to hold" not in branch.bodies[0]


async def test_what_has_no_time_at_the_end_either_is_named(client: Client, fresh: str) -> None:
    branch = leaves_out_a()
    branch.last_time = 0
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*chain("a", "b", "c", "d"))))
    assert len(branch.lasts) == 1, "one that gets nowhere is not begun again"
    assert "the checks of a are not known to hold on the branch as it is" in branch.bodies[0]
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
        assert branch.bodies == []
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
        await ended(handle)
    assert "stays where it is: known (check of a: exit code 1)" in branch.bodies[0]
    assert "the checks of a are not known to hold" in branch.bodies[0]


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
