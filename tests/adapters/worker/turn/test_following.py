"""The base moves under an integration branch: the branch follows, tested as it stands there, or says why it cannot."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from landing_fixtures import BRANCH, CONFIG, Night, night
from turn_fixtures import in_activity

from activities.close import CloseActivity
from activities.follow_base import FollowActivities
from perdure.adapters.git.workspace import Workspace
from perdure.models.backlog.following import (
    FollowInput,
    FollowResult,
    LandedChecksResult,
    MoveBranchInput,
    MoveBranchResult,
)
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.work import CloseInput
from perdure.models.errors import ForgeRefused
from perdure.models.ids import delivery_key
from tests.repositories import git

__all__ = ["night"]

KEY = delivery_key("night/~base")


def at(night: Night, ref: str) -> str:
    return git(night.origin, "rev-parse", ref).strip()


def fed(night: Night, text: str, *command: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(night.origin), *command], input=text, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def goes_on(night: Night, path: str, text: str, branch: str = "main") -> str:
    """Somebody's commit with one file changed."""
    blob = fed(night, text, "hash-object", "-w", "--stdin")
    tree = git(night.origin, "ls-tree", branch).splitlines()
    kept = [line for line in tree if line.partition("\t")[2] != path]
    made = fed(night, "\n".join([*kept, f"100644 blob {blob}\t{path}"]) + "\n", "mktree")
    commit = git(night.origin, "commit-tree", "-p", branch, "-m", "somebody's", made).strip()
    git(night.origin, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def asked(night: Night, base_sha: str, landed: str, check: dict[str, str]) -> FollowInput:
    request = DeliveryRequest(repository=str(night.origin), base="main", branch=BRANCH, phases=("test",), config=CONFIG)
    return FollowInput(
        delivery=KEY,
        backlog="night",
        request=request,
        base_sha=base_sha,
        landed=landed,
        check={item: (command,) for item, command in check.items()},
    )


async def follow(night: Night, base_sha: str, landed: str, **check: str) -> FollowResult:
    done: FollowResult = await in_activity(FollowActivities(night.host).follow, asked(night, base_sha, landed, check))
    return done


async def move(night: Night, followed: FollowResult, **more: Any) -> MoveBranchResult:
    work = MoveBranchInput(
        backlog="night",
        repository=str(night.origin),
        branch=BRANCH,
        base_sha=followed.base_sha,
        onto=followed.onto,
        head=followed.head,
    )
    done: MoveBranchResult = await in_activity(FollowActivities(night.host).move_branch, work.model_copy(update=more))
    return done


async def test_a_branch_is_moved_to_nothing_but_what_was_brought_onto_its_base_here(night: Night) -> None:
    first = await landed(night, "api", {"b.txt": "api\n"})
    night.push("base", "main")
    followed = await follow(night, git(night.origin, "rev-parse", "main~1"), first)
    with pytest.raises(ForgeRefused, match="was not brought onto its base here"):
        await move(night, followed, head=first, onto=followed.head)
    assert (await move(night, followed)).head == followed.head


async def landed(night: Night, name: str, files: dict[str, str | None]) -> str:
    item = await night.item(name, files)
    commit = (await item.land(await item.rebase())).commit
    assert commit == at(night, BRANCH)
    return commit


async def test_a_branch_follows_its_base_is_tested_there_and_its_items_are_known_again(night: Night) -> None:
    began = at(night, "main")
    first = await landed(night, "api", {"b.txt": "api\n"})
    last = await landed(night, "web", {"c.txt": "web\n"})
    base = goes_on(night, "d.txt", "hers\n")
    found = await follow(night, began, last, api="grep -q api b.txt")
    assert (found.base_sha, found.onto, found.problem) == (base, last, "")
    assert found.summary.startswith(f"stands on main at {base[:7]}: 2 commits, ")
    assert at(night, BRANCH) == last, "nothing was pushed yet"
    again = await follow(night, began, last)
    assert again.head == found.head, "begun again by another worker"
    moved = await move(night, found)
    assert moved.head == found.head == at(night, BRANCH)
    assert await move(night, found) == moved, "killed before it could say so"
    assert set(moved.commits) == {"api", "web"}
    assert moved.commits["web"] == found.head
    assert first not in moved.commits.values()
    assert git(night.origin, "log", "--format=%s", f"main..{BRANCH}").splitlines() == ["feat: do web", "feat: do api"]
    assert (await follow(night, base, found.head)).head == found.head, "it stands there"
    await in_activity(CloseActivity(night.host).close, CloseInput(delivery=KEY))
    assert not Workspace.open(night.host.home, KEY).path.exists()


async def test_an_item_that_began_before_lands_after_it(night: Night) -> None:
    began = at(night, "main")
    late = await night.item("late", {"e.txt": "late\n"})
    last = await landed(night, "api", {"b.txt": "api\n"})
    goes_on(night, "d.txt", "hers\n")
    moved = await move(night, await follow(night, began, last))
    made = await late.rebase(landed=last)  # told so before the branch followed
    assert made.onto == moved.head
    done = await late.land(made, await late.test(made))
    assert git(night.origin, "ls-tree", "--name-only", done.commit).split() == [
        *("a.txt", "b.txt", "d.txt", "e.txt", "perdure.toml"),
    ]


async def test_tests_that_are_red_together_with_the_base_stop_it(night: Night) -> None:
    began = at(night, "main")
    last = await landed(night, "api", {"bad2": "api\n"})
    goes_on(night, "marker", "x\n")
    config = CONFIG.replace("test ! -e bad", "test ! -e marker || test ! -e bad2")
    request = DeliveryRequest(repository=str(night.origin), base="main", branch=BRANCH, phases=("test",), config=config)
    work = FollowInput(delivery=KEY, backlog="night", request=request, base_sha=began, landed=last)
    found: FollowResult = await in_activity(FollowActivities(night.host).follow, work)
    assert (found.head, found.host != "") == ("", True)
    assert "its tests are red: unit: exit code 1" in found.problem
    assert at(night, BRANCH) == last


async def test_a_check_of_a_landed_item_that_fails_there_stops_it_and_one_that_failed_before_does_not(
    night: Night,
) -> None:
    began = at(night, "main")
    last = await landed(night, "api", {"b.txt": "api\n"})
    goes_on(night, "d.txt", "hers\n")
    assert "check of api" in (await follow(night, began, last, api="test ! -e d.txt")).problem
    assert (await follow(night, began, last, api="false")).problem == ""


async def last_checks(night: Night, base_sha: str, **check: str) -> LandedChecksResult:
    work = asked(night, base_sha, at(night, BRANCH), check)
    done: LandedChecksResult = await in_activity(FollowActivities(night.host).check_landed, work)
    return done


async def test_a_check_that_no_landing_had_time_for_names_the_item_that_broke_it(night: Night) -> None:
    began = at(night, "main")
    for name in ("api", "web", "docs", "bad", "end"):
        await landed(night, name, {f"{name}.txt": f"{name}\n"})
    head = at(night, BRANCH)
    good = await last_checks(night, began, api="grep -q api api.txt", web="test -e web.txt")
    assert (good.head, good.passed_items, good.problem) == (head, ("api", "web"), "")
    assert good.host
    broke = git(night.origin, "rev-parse", f"{BRANCH}~1").strip()
    found = await last_checks(night, began, web="test -e web.txt", api="test ! -e bad.txt")
    assert (found.passed_items, found.failed_items) == (("web",), ("api",))
    assert found.problem.startswith(f"{BRANCH} at {head[:7]}: check of api: test ! -e bad.txt: exit code 1")
    assert found.problem.endswith(f"; it held until bad landed ({broke[:7]})")
    assert found.head == head == at(night, BRANCH), "nothing was pushed"
    never = await last_checks(night, began, api="false")
    assert "; it fails where api landed, too" in never.problem


async def test_what_somebody_pushed_behind_all_items_is_nobodys_landing(night: Night) -> None:
    began = at(night, "main")
    await landed(night, "api", {"b.txt": "api\n"})
    goes_on(night, "bad.txt", "theirs\n", BRANCH)
    found = await last_checks(night, began, api="test ! -e bad.txt")
    assert found.problem.endswith("exit code 1"), found.problem


async def test_a_conflict_names_item_and_file_and_by_hand_it_is_tested_as_well(night: Night) -> None:
    began = at(night, "main")
    last = await landed(night, "api", {"b.txt": "api\n"})
    base = goes_on(night, "b.txt", "hers\n")
    found = await follow(night, began, last)
    assert found.problem == (
        f'{BRANCH} cannot be brought onto main at {base[:7]}: api ("feat: do api", {last[:7]}) conflicts in b.txt'
    )
    words = git(night.origin, "log", "-1", "--format=%B", BRANCH)
    hand = git(night.origin, "commit-tree", "-p", "main", "-m", words, "main^{tree}").strip()
    git(night.origin, "update-ref", f"refs/heads/{BRANCH}", hand)
    by_hand = await follow(night, began, last)
    assert (by_hand.head, by_hand.onto, by_hand.problem) == (hand, hand, "")
    assert by_hand.host != "", "it was tested"
    assert (await move(night, by_hand)).commits == {"api": hand}


async def test_whoever_pushes_in_between_loses_nothing(night: Night) -> None:
    began = at(night, "main")
    last = await landed(night, "api", {"b.txt": "api\n"})
    goes_on(night, "d.txt", "hers\n")
    found = await follow(night, began, last)
    theirs = goes_on(night, "f.txt", "theirs\n", BRANCH)
    assert await move(night, found) == MoveBranchResult()
    assert at(night, BRANCH) == theirs
    again = await move(night, await follow(night, began, last))
    assert "f.txt" in git(night.origin, "ls-tree", "--name-only", again.head).split()


async def test_a_base_that_was_rewritten_takes_nothing_away_and_brings_nothing_back(night: Night) -> None:
    old = at(night, "main")
    began = goes_on(night, "secret.txt", "secret\n")
    git(night.origin, "update-ref", f"refs/heads/{BRANCH}", "main")
    last = await landed(night, "api", {"b.txt": "api\n"})
    git(night.origin, "update-ref", "refs/heads/main", old)
    found = await follow(night, began, last)
    assert "which somebody has rewritten: 1 commit" in found.summary
    await move(night, found)
    assert git(night.origin, "log", "--format=%H", f"{BRANCH}^", "-1").strip() == old
    names = git(night.origin, "ls-tree", "--name-only", BRANCH).split()
    assert "secret.txt" not in names
    assert git(night.origin, "show", f"{BRANCH}:b.txt") == "api"


async def test_a_base_that_is_gone_or_has_all_of_it_is_told_apart(night: Night) -> None:
    began = at(night, "main")
    last = await landed(night, "api", {"b.txt": "api\n"})
    git(night.origin, "update-ref", "refs/heads/main", last)
    merged = await follow(night, began, last)
    assert (merged.head, merged.base_sha, merged.host) == (last, last, "")
    git(night.origin, "branch", "-m", "main", "trunk")
    assert (await follow(night, began, last)).problem == "main is not on the remote any more"
    git(night.origin, "branch", "-m", "trunk", "main")
    git(night.origin, "branch", "-D", BRANCH)
    with pytest.raises(ForgeRefused, match=f"branch {BRANCH} is not on the remote any more"):
        await move(night, merged)
