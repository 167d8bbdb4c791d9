"""All pull requests of a branch are told with their states, and which of them are the delivery's."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

from github_lab import HEAD, Lab

from perdure.adapters.forges.base import Proposal, Pulled
from perdure.adapters.forges.local import LocalForge
from tests.lab import git, make_target


def test_a_local_forge_tells_open_and_merged_ones_of_the_branch_alone(tmp_path: Path) -> None:
    bare = make_target(tmp_path / "calc.git")
    forge, shas = LocalForge(str(bare)), []

    def propose(head: str, delivery: str) -> None:
        shas.append(git(bare, "commit-tree", "-p", "main", "-m", head, "main^{tree}"))
        git(bare, "update-ref", f"refs/heads/{head}", shas[-1])
        forge.create(Proposal(delivery=delivery, title="x", body="", head=head, head_sha=shas[-1], base="main"))

    propose("topic", "d-1")
    git(bare, "update-ref", "refs/heads/main", shas[0])
    propose("topic", "d-2")
    propose("other", "d-1")
    assert forge.of_branch("topic", "d-1") == [
        Pulled(number=1, state="merged", head_sha=shas[0], ours=True),
        Pulled(number=2, state="open", head_sha=shas[1], ours=False),
    ]
    assert forge.of_branch("nowhere", "d-1") == []


async def test_github_tells_open_and_closed_ones_and_knows_ours_by_the_marker(lab: Lab) -> None:
    opened = (await to_thread(lab.forge().create, lab.proposal())).pull_request
    assert await to_thread(lab.forge().of_branch, HEAD, "d-1") == [
        Pulled(number=opened.number, state="open", head_sha=lab.sha, ours=True)
    ]
    assert [pull.ours for pull in await to_thread(lab.forge().of_branch, HEAD, "d-2")] == [False]
    lab.hub.close("me/calc", opened.number)
    theirs = lab.hub.add_pull("me/calc", HEAD, title="By hand", body="Mine.")
    assert await to_thread(lab.forge().of_branch, HEAD, "d-1") == [
        Pulled(number=opened.number, state="closed", head_sha=lab.sha, ours=True),
        Pulled(number=theirs, state="open", head_sha=lab.sha, ours=False),
    ]
