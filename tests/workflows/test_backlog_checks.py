"""The checks of what has landed: which ones run with the next landing, and what is told of those that did not."""

from __future__ import annotations

from backlog_fixtures import Branch, backlog, ended, night, phases
from temporalio.client import Client
from workflow_fixtures import playing

from perdure.models.backlog import CHECKS_MOST


async def test_checks_that_were_left_out_come_first_the_next_time_and_at_the_end_it_is_said(
    client: Client, fresh: str
) -> None:
    branch = Branch(a="a", b="b", c="c", d="d")
    branch.left_out = {"c": "b", "d": "a"}
    chain = [
        {"id": id, "check": [f"check {id}"], "depends_on": [on] if on else []}
        for id, on in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c"))
    ]
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*chain)))
    assert set(phases(progress).values()) == {"landed"}
    assert branch.checked["c"] == [["a", "b"]], "least recently run first"
    assert branch.checked["d"] == [["b", "a", "c"]], "b had no time with c"
    assert "the checks of a did not run with what landed last" in branch.bodies[0]
    assert any("the checks of a did not run" in note for note in progress["notes"])


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
    assert any("the checks of b did not run" in note for note in progress["notes"])
