"""Several backlogs on one branch have one pull request, on each forge, and a stranger's is nobody's of them."""

from __future__ import annotations

from asyncio import gather, to_thread
from pathlib import Path
from typing import Any

from twin_repository import HEAD, TwinRepository

from perdure.adapters.forges.base import Proposal, ProposedPullRequest
from perdure.adapters.forges.body import marker, part_start
from perdure.adapters.forges.local import LocalForge
from tests.engine import git, make_target


def part(delivery: str, words: str, issue: int) -> dict[str, Any]:
    """The fields of its proposal that are its own."""
    end = f"\nCloses #{issue}.\n\n{marker(delivery)}\n"
    body = f"{part_start(delivery)}\n{words}\n{end}"
    return {"delivery": delivery, "title": f"Items of {delivery}", "body": body, "body_end": end, "shares_body": True}


NIGHT, DAY = part("night", "| api | landed |", 1), part("day", "| mail | landed |", 2)
NIGHT_AGAIN = part("night", "| api | landed again |", 1)


async def test_on_github_a_part_is_added_to_what_others_and_people_wrote_and_its_retry_changes_that_part_alone(
    twin: TwinRepository,
) -> None:
    hers = "Hers, above.\n\n" + NIGHT["body"] + "\nHers, below."
    number = twin.hub.add_pull("me/calc", HEAD, title="Items of night", body=hers.replace("\n", "\r\n"))
    both = "Hers, above.\n\n" + NIGHT["body"] + "\n" + DAY["body"] + "\nHers, below."
    for _ in range(2):
        assert await made(twin, DAY) == (number, ()), "no note says that it is somebody else's"
        (pull,) = twin.hub.pulls("me/calc")
        assert (pull["title"], pull["body"].strip()) == ("Items of night", both)
    assert twin.made("pulls/update") == 1, "a retry finds it as it is to be"
    await made(twin, NIGHT_AGAIN)
    (pull,) = twin.hub.pulls("me/calc")
    assert pull["body"].strip() == both.replace("| landed |", "| landed again |", 1)
    for name, ours in (("night", True), ("day", True), ("eve", False)):
        assert [one.ours for one in await to_thread(twin.forge().pulls_of_branch, HEAD, name)] == [ours]


async def test_on_github_backlogs_that_close_in_the_same_moment_all_have_their_part(twin: TwinRepository) -> None:
    """There is no compare-and-swap of a text: each looks whether its part stayed."""
    twin.hub.add_pull("me/calc", HEAD, title="Items of night", body=NIGHT["body"])
    others = [part(f"day-{n}", f"| mail {n} | landed |", n) for n in range(3)]
    await gather(*(made(twin, fields) for fields in others))
    (pull,) = twin.hub.pulls("me/calc")
    for fields in (NIGHT, *others):
        assert pull["body"].count(fields["body"].strip()) == 1, pull["body"]


async def test_on_github_a_strangers_pull_request_for_the_branch_gets_no_part(twin: TwinRepository) -> None:
    number = twin.hub.add_pull("me/calc", HEAD, title="Mine!", body="By hand.")
    at, (note,) = await made(twin, DAY)
    assert (at, "is not Perdure's" in note) == (number, True)
    (pull,) = twin.hub.pulls("me/calc")
    assert (pull["title"], pull["body"]) == ("Mine!", "By hand.")


async def made(twin: TwinRepository, fields: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    opened: ProposedPullRequest = await to_thread(twin.forge().open_or_update_pull, twin.proposal(**fields))
    return opened.pull_request.number, opened.notes


def test_a_local_one_is_each_ones_own_of_those_that_have_a_part_in_it(tmp_path: Path) -> None:
    bare = make_target(tmp_path / "calc.git")
    sha = git(bare, "commit-tree", "-p", "main", "-m", "x", "main^{tree}").strip()
    git(bare, "update-ref", "refs/heads/shared", sha)
    forge = LocalForge(str(bare))
    for fields in (NIGHT, DAY, DAY, NIGHT_AGAIN):
        opened = forge.open_or_update_pull(Proposal(head="shared", head_sha=sha, base="main", **fields)).pull_request
        assert (opened.number, opened.title) == (1, "Items of night")
    assert forge.pull_details(1).body == NIGHT_AGAIN["body"] + "\n" + DAY["body"]
    for name, ours in (("night", True), ("day", True), ("eve", False)):
        assert [one.ours for one in forge.pulls_of_branch("shared", name)] == [ours]
    assert [forge.count_open_pulls(but, 9) for but in ("night", "day", "eve", "")] == [0, 0, 1, 1]
