"""All pull requests of a branch are told with their states, and which of them are the delivery's."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest
from twin_repository import HEAD, TwinRepository

from perdure.adapters.forges.base import Proposal, PullRequestSnapshot
from perdure.adapters.forges.body import issue_numbers, marker
from perdure.adapters.forges.local import LocalForge
from perdure.models.errors import ForgeRefused
from tests.engine import git, make_target


def test_a_local_forge_tells_open_and_merged_ones_of_the_branch_alone(tmp_path: Path) -> None:
    bare = make_target(tmp_path / "calc.git")
    forge, shas = LocalForge(str(bare)), []

    def propose(head: str, delivery: str) -> None:
        shas.append(git(bare, "commit-tree", "-p", "main", "-m", head, "main^{tree}"))
        git(bare, "update-ref", f"refs/heads/{head}", shas[-1])
        forge.open_or_update_pull(
            Proposal(delivery=delivery, title="x", body="", head=head, head_sha=shas[-1], base="main")
        )

    propose("topic", "d-1")
    git(bare, "update-ref", "refs/heads/main", shas[0])
    propose("topic", "d-2")
    propose("other", "d-1")
    assert forge.pulls_of_branch("topic", "d-1") == [
        PullRequestSnapshot(number=1, state="merged", head_sha=shas[0], ours=True, base="main"),
        PullRequestSnapshot(number=2, state="open", head_sha=shas[1], ours=False, base="main"),
    ]
    assert forge.pulls_of_branch("nowhere", "d-1") == []
    assert (forge.count_open_pulls("", 9), forge.count_open_pulls("d-1", 9), forge.count_open_pulls("", 1)) == (2, 1, 1)


async def test_github_tells_open_and_closed_ones_and_knows_ours_by_the_marker(twin: TwinRepository) -> None:
    opened = (await to_thread(twin.forge().open_or_update_pull, twin.proposal())).pull_request
    assert await to_thread(twin.forge().pulls_of_branch, HEAD, "d-1") == [
        PullRequestSnapshot(number=opened.number, state="open", head_sha=twin.sha, ours=True, base="main")
    ]
    assert [pull.ours for pull in await to_thread(twin.forge().pulls_of_branch, HEAD, "d-2")] == [False]
    twin.hub.close("me/calc", opened.number)
    theirs = twin.hub.add_pull("me/calc", HEAD, title="By hand", body="Mine.")
    assert await to_thread(twin.forge().pulls_of_branch, HEAD, "d-1") == [
        PullRequestSnapshot(number=opened.number, state="closed", head_sha=twin.sha, ours=True, base="main"),
        PullRequestSnapshot(number=theirs, state="open", head_sha=twin.sha, ours=False, base="main"),
    ]


async def test_github_counts_open_ones_with_a_mark_but_none_of_a_fork_that_has_copied_it(twin: TwinRepository) -> None:
    await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    twin.hub.add_pull("me/calc", HEAD, "release", title="By hand", body="Mine.")
    twin.hub.add_repository("eve/calc", fork_of="me/calc")
    mark = "<!-- perdure:delivery=d-9 -->"
    twin.hub.add_pull("me/calc", HEAD, title="Mine!", body=mark, author="eve", fork="eve/calc")
    assert await to_thread(twin.forge().count_open_pulls, "", 9) == 1
    assert await to_thread(twin.forge().count_open_pulls, "d-1", 9) == 0


async def test_one_that_was_closed_is_opened_again_once(twin: TwinRepository) -> None:
    opened = (await to_thread(twin.forge().open_or_update_pull, twin.proposal())).pull_request
    twin.hub.close("me/calc", opened.number)
    for _ in range(2):
        await to_thread(twin.forge().reopen_pull, opened.number)
    assert [one.state for one in await to_thread(twin.forge().pulls_of_branch, HEAD, "d-1")] == ["open"]


async def test_an_issue_with_an_open_pull_request_of_ours_is_known_as_built(twin: TwinRepository) -> None:
    mark = "<!-- perdure:delivery=night -->"
    ours = twin.hub.add_pull("me/calc", HEAD, title="2 items", body=f"Closes #7, closes #8.\n\n{mark}")
    assert await to_thread(twin.forge().issue_pull_requests) == {7: ours, 8: ours}
    twin.hub.close("me/calc", ours)
    twin.hub.add_pull("me/calc", HEAD, title="Mine", body="Closes #9")
    assert await to_thread(twin.forge().issue_pull_requests) == {}, (
        "a closed one is built again, and somebody else's is not ours"
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Closes #12\n\n{mark}", (12,)),
        ("Closes #12, closes #14.\n\n{mark}", (12, 14)),
        ("Merging this leaves #3, #4 open.\n\n{mark}", (3, 4)),
        ("Merging this leaves #3 open.\n\n{mark}", (3,)),
        ("Closes #12", ()),
        ("Closes o/r#12, see #5\n\n{mark}", ()),
    ],
)
def test_the_issues_of_a_pull_request_of_ours_are_those_that_it_names_itself(text: str, numbers: tuple[int]) -> None:
    assert issue_numbers(text.replace("{mark}", marker("night"))) == numbers


def test_a_local_pull_request_goes_into_another_branch_as_it_is(tmp_path: Path) -> None:
    bare = make_target(tmp_path / "calc.git")
    forge, sha = LocalForge(str(bare)), git(bare, "commit-tree", "-p", "main", "-m", "x", "main^{tree}")
    git(bare, "update-ref", "refs/heads/topic", sha)
    git(bare, "branch", "below", "main")
    proposal = Proposal("d-1", "x", "the body", "topic", sha, "below", attachments={"shot.png": b"png"})
    number = forge.open_or_update_pull(proposal).pull_request.number
    forge.change_base(number, "main")
    forge.change_base(number, "main")
    shown = forge.pull_details(number)
    assert (shown.pull.base, shown.state, shown.body, shown.head_sha) == ("main", "open", "the body", sha)
    assert "shot.png" in git(bare, "ls-tree", "--name-only", f"refs/pull/{number}/record")
    with pytest.raises(ForgeRefused, match="the base branch nowhere is not there"):
        forge.change_base(number, "nowhere")


async def test_a_pull_request_on_github_goes_into_another_branch_and_a_closed_one_stays(twin: TwinRepository) -> None:
    git(twin.hub.path("me/calc"), "branch", "below", "main")
    forge = twin.forge()
    opened = (await to_thread(forge.open_or_update_pull, twin.proposal(base="below"))).pull_request
    await to_thread(forge.change_base, opened.number, "main")
    assert [pull.base for pull in await to_thread(forge.pulls_of_branch, HEAD, "d-1")] == ["main"]
    twin.hub.close("me/calc", opened.number)
    await to_thread(forge.change_base, opened.number, "below")
    assert [pull.base for pull in await to_thread(forge.pulls_of_branch, HEAD, "d-1")] == ["main"]
