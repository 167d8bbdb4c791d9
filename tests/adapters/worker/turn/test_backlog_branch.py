"""A backlog's own branch: made once, never over anybody's; and one pull request of it at the end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import in_activity

from activities.backlog import BacklogActivities
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.worker.host import Host
from perdure.models.backlog.landing import CloseBacklogInput, CloseBacklogResult, OpenBacklogInput
from perdure.models.backlog.state import OpenBacklogResult
from perdure.models.delivery.request import request_proof, schedule_proof
from perdure.models.errors import ForgeRefused, InvalidRequest
from tests.homes import fresh_home
from tests.repositories import CALC, git, make_target
from tests.twins.github import GitHubTwin

OWN = "perdure/night"


class Opening:
    def __init__(self, host: Host, origin: Path) -> None:
        self.host, self.origin = host, origin
        self.work = OpenBacklogInput(backlog="night", repository=str(origin))

    async def open(self, **more: Any) -> OpenBacklogResult:
        opened: OpenBacklogResult = await in_activity(
            BacklogActivities(self.host).open_backlog, self.work.model_copy(update=more)
        )
        return opened

    async def make(self, **more: Any) -> OpenBacklogResult:
        opened: OpenBacklogResult = await in_activity(
            BacklogActivities(self.host).make_branch, self.work.model_copy(update=more)
        )
        return opened

    async def close(self, head: str, **more: Any) -> CloseBacklogResult:
        work = CloseBacklogInput(
            backlog="night",
            repository=str(self.origin),
            base="main",
            branch=OWN,
            head=head,
        )
        closed: CloseBacklogResult = await in_activity(
            BacklogActivities(self.host).close_backlog, work.model_copy(update=more)
        )
        return closed

    def at(self, ref: str) -> str:
        return git(self.origin, "rev-parse", ref).strip()

    def commit(self, parent: str, message: str, branch: str) -> str:
        made = git(self.origin, "commit-tree", "-p", parent, "-m", message, f"{parent}^{{tree}}").strip()
        git(self.origin, "update-ref", f"refs/heads/{branch}", made)
        return made


@pytest.fixture
async def opening(tmp_path: Path) -> AsyncIterator[Opening]:
    origin = make_target(tmp_path / "calc.git", CALC)
    host = Host.from_environment(
        fresh_home(tmp_path / "home"), {"PATH": os.environ["PATH"], "PERDURE_LOCAL_REPOSITORIES": str(tmp_path)}
    )
    yield Opening(host, origin)
    await host.close()


async def test_the_branch_begins_at_the_base_and_is_made_once(opening: Opening) -> None:
    opened = await opening.open()
    assert (opened.base, opened.branch, opened.base_sha) == ("main", OWN, opening.at("main"))
    assert OWN not in git(opening.origin, "branch", "--format=%(refname:short)").split(), "a look makes nothing"
    assert await opening.make() == opened
    assert opening.at(OWN) == opened.base_sha
    landed = opening.commit(OWN, "feat: x\n\nPerdure-Backlog: night\n", OWN)
    opening.commit("main", "somebody goes on", "main")
    await opening.make()  # a worker died before it could say so, or the backlog begins again
    assert opening.at(OWN) == landed


async def test_a_branch_with_somebody_elses_commits_is_landed_on_only_if_it_was_named(opening: Opening) -> None:
    hers = opening.commit("main", "hers", OWN)
    for attempt in (opening.open, opening.make):
        with pytest.raises(InvalidRequest, match="commits that are not this backlog's") as refused:
            await attempt()
        assert f"branch: {OWN}" in refused.value.fix
    assert (await opening.make(branch=OWN)).branch == OWN
    assert opening.at(OWN) == hers


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        ("main", "is the base branch: nobody lands there"),
        ("-x", "cannot be a branch's name"),
        ("main/x", "the remote has a branch main, so that main/x cannot exist beside it"),
        ("alone", "has no commit in common with main"),
    ],
)
async def test_a_branch_nobody_can_land_on_is_refused_before_anything_is_made(
    opening: Opening, branch: str, words: str
) -> None:
    git(opening.origin, "update-ref", "refs/heads/alone", git(opening.origin, "commit-tree", "-m", "x", "main^{tree}"))
    with pytest.raises(InvalidRequest, match=words):
        await opening.open(branch=branch)


async def test_settings_under_which_nothing_could_land_are_refused_before_anything_is_paid_for(
    opening: Opening,
) -> None:
    phases = 'version = 1\n[delivery]\nphases = ["build", "ship"]\n'
    with pytest.raises(InvalidRequest, match="nothing lands without test and review") as refused:
        await opening.open(backlog_request={"config": phases})
    assert "allow_untested" in refused.value.fix
    for more in ({"config": f"{phases}[ship]\nallow_untested = true\n"}, {"config": phases, "land": "stack"}):
        assert (await opening.open(backlog_request=more)).branch == OWN


async def test_a_gate_of_a_phase_that_the_settings_leave_out_is_refused_before_anything_is_made(
    opening: Opening,
) -> None:
    settings: dict[str, object] = {"config": 'version = 1\n[delivery]\nphases = ["build", "test", "review", "ship"]\n'}
    with pytest.raises(InvalidRequest, match="gates: nothing would wait at plan: phase plan is not selected"):
        await opening.open(backlog_request={**settings, "gates": ["plan"]})
    assert (await opening.open(backlog_request={**settings, "gates": ["pull_request"]})).branch == OWN


async def test_a_path_of_this_host_counts_with_the_backlogs_proof_only(opening: Opening, tmp_path: Path) -> None:
    host = Host.from_environment(fresh_home(tmp_path / "home"), {"PATH": os.environ["PATH"]})
    closed = Opening(host, opening.origin)
    with pytest.raises(InvalidRequest, match="repository"):
        await closed.open()
    said: dict[str, object] = {"repository": str(opening.origin), "parallel": 2}
    said["proof"] = request_proof(host.home.key(), "night", said)
    assert (await closed.open(backlog_request=said)).base == "main"
    for other in ({**said, "parallel": 3}, {**said, "repository": "/etc"}):
        with pytest.raises(InvalidRequest, match="repository"):
            await closed.open(backlog_request=other)
    with pytest.raises(InvalidRequest, match="repository"):
        await closed.open(backlog_request=said, repository=str(tmp_path / "calc.git-work"))
    run = "night-2026-11-23T23:00:00Z"
    with pytest.raises(InvalidRequest, match="repository"):
        await closed.open(backlog_request=said, backlog=run)
    said["proof"] = schedule_proof(host.home.key(), "night", {**said, "proof": ""})
    with pytest.raises(InvalidRequest, match="repository"):
        await closed.open(backlog_request=said)
    scheduled = await closed.open(backlog_request=said, backlog=run)
    assert git(closed.origin, "check-ref-format", "--branch", scheduled.branch).strip() == scheduled.branch
    assert scheduled.branch.startswith("perdure/night-20261123t2300-")
    await host.close()


async def test_issues_of_a_repository_without_any_are_refused_before_anything_is_made(opening: Opening) -> None:
    with pytest.raises(InvalidRequest, match="has none that Perdure can read"):
        await opening.make(backlog_request={"issues": "label:bug"})
    assert OWN not in git(opening.origin, "branch", "--format=%(refname:short)").split()


async def test_an_empty_repository_gets_its_first_commit_with_the_branch(opening: Opening, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "empty.git")
    where = {"repository": str(tmp_path / "empty.git")}
    opened = await opening.open(**where)
    made = await opening.make(**where)
    assert made.base_sha == opened.base_sha
    for branch in ("main", OWN):
        assert git(tmp_path / "empty.git", "rev-parse", branch).strip() == opened.base_sha


async def test_one_pull_request_is_opened_at_the_end_and_found_again(opening: Opening) -> None:
    await opening.make()
    assert "nothing to propose" in (await opening.close("")).message
    head = opening.commit(OWN, "feat: x for @ada\n\nPerdure-Backlog: night\nPerdure-Item: api\n", OWN)
    closed = await opening.close(head)
    assert closed.pull_request is not None
    assert await opening.close(head) == closed, "killed before it could say so"
    [(pull, state)] = LocalForge(str(opening.origin)).list_pulls()
    assert (pull.number, state) == (closed.pull_request.number, "open")
    body = LocalForge(str(opening.origin)).pull_details(pull.number).body
    assert "| api | feat: x for" in body
    assert "@ada" not in body, "nobody is called by the words of an item"
    assert body.rstrip().endswith("<!-- perdure:delivery=night -->")


async def test_two_backlogs_on_one_branch_share_its_pull_request_each_with_its_own_table(opening: Opening) -> None:
    await opening.make()
    opening.commit(OWN, "feat: x\n\nPerdure-Backlog: night\n", OWN)
    head = opening.commit(OWN, "feat: y\n\nPerdure-Backlog: day\nPerdure-Issue: 5\n", OWN)
    first = await opening.close(head)
    day = {"backlog": "day", "issues": (5,)}
    for _ in range(2):
        again = await opening.close(head, **day)
    assert again.pull_request is not None
    assert again.pull_request == first.pull_request, "the first one's title"
    await opening.close(head, unlanded={"api": "failed"})
    [(pull, _)] = LocalForge(str(opening.origin)).list_pulls()
    check_shared(LocalForge(str(opening.origin)).pull_details(pull.number).body)


def check_shared(body: str) -> None:
    """One part of each, the older one first, each as it was written last."""
    marks = [f"<!-- perdure:{mark}={id} -->" for id in ("night", "day") for mark in ("begins", "delivery")]
    assert [line for line in body.splitlines() if line.startswith("<!--")] == marks
    night, day = body.split(f"{marks[1]}\n")
    assert "| api | | failed | |" in night
    assert "| feat: y | landed |" not in night
    assert "| feat: y | landed |" in day
    assert "Closes #5." in day


async def test_on_github_too_there_is_one_and_a_second_close_finds_it(tmp_path: Path) -> None:
    token = "ghp_" + "t0psecret" * 4
    async with GitHubTwin(tmp_path / "github", token=token) as github:
        github.add_repository("me/calc", source=make_target(tmp_path / "calc.git", CALC))
        env = {"PATH": os.environ["PATH"], "PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": token}
        host, where = Host.from_environment(fresh_home(tmp_path / "home"), env), f"{github.url}/me/calc"
        opening = Opening(host, github.path("me/calc"))
        numbers = [github.add_issue("me/calc", title, labels=("bug",)) for title in ("Add mul", "Add div")]
        said = {"issues": "label:bug"}
        assert (await opening.open(repository=where, backlog_request=said)).issues == (), (
            "only whoever has the token asks for them"
        )
        assert list((await opening.make(repository=where, backlog_request=said)).issues) == numbers
        opening.commit(OWN, "feat: x, closes #1, says @ada\n\nPerdure-Backlog: night\n", OWN)
        head = opening.commit(OWN, "feat: y\n\nPerdure-Backlog: day\nPerdure-Issue: 5\n", OWN)
        closed = await opening.close(head, repository=where)
        assert await opening.close(head, repository=where) == closed, "killed before it could say so"
        (alone,) = github.pulls("me/calc")
        for more in (
            {"backlog": "day", "issues": (5,)},
            {"unlanded": {"api": "failed"}},
        ):
            again = await opening.close(head, repository=where, **more)
            assert again.pull_request is not None
            assert closed.pull_request is not None
            assert again.pull_request.number == closed.pull_request.number
        check_shared(github.pulls("me/calc")[0]["body"])
        await host.close()
        pull = alone
        assert closed.pull_request is not None
        assert (pull["number"], pull["head"]["ref"], pull["base"]["ref"]) == (closed.pull_request.number, OWN, "main")
        assert pull["title"] == "night: 1 of 1 items"
        assert pull["draft"] is False
        assert "| feat: x, closes" in pull["body"]
        assert "@ada" not in pull["body"]
        assert "closes #1" not in pull["body"], "an item's words close nobody's issue"
        assert github.violations == []
        assert "Closes" not in pull["body"]


@pytest.mark.parametrize(
    ("ship", "said"),
    [
        ("", "Closes #14, closes #15."),
        ("[ship]\nclose_issue = false\n", "Merging this leaves #14, #15 open."),
        ("[ship]\nwrong = 1\n", "Merging this leaves #14, #15 open."),
    ],
)
async def test_merging_it_closes_the_issues_that_landed_where_that_is_wanted(
    opening: Opening, ship: str, said: str
) -> None:
    await opening.make()
    for number in (14, 15):
        head = opening.commit(OWN, f"feat: x\n\nPerdure-Backlog: night\nPerdure-Issue: {number}\n", OWN)
    closed = await opening.close(head, issues=(14, 15), backlog_request={"config": f"version = 1\n{ship}"})
    assert closed.pull_request is not None
    body = LocalForge(str(opening.origin)).pull_details(closed.pull_request.number).body
    assert f"\n{said}\n" in body


async def test_it_closes_no_issue_that_no_landed_commit_of_the_backlog_names(opening: Opening) -> None:
    await opening.make()
    opening.commit(OWN, "feat: x\n\nPerdure-Backlog: night\nPerdure-Issue: 14\n", OWN)
    opening.commit(OWN, "feat: y\n\nPerdure-Backlog: day\nPerdure-Issue: 15\n", OWN)
    opening.commit(OWN, f"of a person\n\nPerdure-Backlog: night\nPerdure-Issue: 1{'0' * 5000}\n", OWN)
    head = opening.commit(OWN, "folded\n\nPerdure-Backlog: night\nPerdure-Item: a\n b\nPerdure-Issue: 16\n 17\n", OWN)
    closed = await opening.close(head, issues=(14, 15, 16))
    assert closed.pull_request is not None
    body = LocalForge(str(opening.origin)).pull_details(closed.pull_request.number).body
    assert "\nCloses #14.\n" in body
    assert "#15" not in body


async def test_the_pull_request_tells_of_no_item_in_words_that_a_workflow_made_up(opening: Opening) -> None:
    await opening.make()
    message = "feat: x | 4 green |\n\nPerdure-Backlog: night\nPerdure-Item: api\nPerdure-Issue: 14\n"
    head = opening.commit(OWN, message, OWN)
    made_up = {"title": "4321 green", "body": "| mail | 4321 green |", "unchecked": ("api", "4321 green")}
    work = CloseBacklogInput.model_validate(
        {
            "backlog": "night",
            "repository": str(opening.origin),
            "base": "main",
            "branch": OWN,
            "head": head,
            "unlanded": {"mail": "failed", "page": "blocked by mail", "4321 green": "failed", "docs": "4321 green"},
            **made_up,
        }
    )
    closed = await in_activity(BacklogActivities(opening.host).close_backlog, work)
    assert closed.pull_request is not None
    assert closed.pull_request.title == "night: 1 of 3 items"
    details = LocalForge(str(opening.origin)).pull_details(closed.pull_request.number)
    assert "4321" not in details.body
    rows = [line for line in details.body.splitlines() if line.startswith("| ")]
    assert rows[1:] == [
        f"| api | feat: x \\| 4 green \\| | landed | `{head[:12]}` |",
        "| mail | | failed | |",
        "| page | | blocked by mail | |",
    ]
    assert "\n- the checks of api are not known to hold on the branch as it is\n" in details.body
    assert "\nMerging this leaves #14 open.\n" in details.body


async def test_a_branch_on_which_the_backlog_has_landed_nothing_is_not_proposed(opening: Opening) -> None:
    hers = opening.commit("main", "hers\n\nPerdure-Backlog: day\n", "hers")
    closed = await opening.close(hers, branch="hers")
    assert closed.pull_request is None
    assert closed.message == "nothing of night is on hers: there is nothing to propose"


async def test_what_was_taken_off_the_branch_is_not_proposed_silently(opening: Opening) -> None:
    await opening.make()
    head = opening.commit(OWN, "feat: x\n\nPerdure-Backlog: night\n", OWN)
    await opening.close(head)
    git(opening.origin, "update-ref", f"refs/heads/{OWN}", "main")
    with pytest.raises(ForgeRefused, match=f"was put back: it is at .* without {head[:12]}"):
        await opening.close(head)


async def test_a_pull_request_says_how_far_its_base_is_ahead_and_one_without_a_base_is_refused(
    opening: Opening,
) -> None:
    await opening.make()
    head = opening.commit(OWN, "feat: x\n\nPerdure-Backlog: night\n", OWN)
    git(opening.origin, "update-ref", f"refs/heads/{OWN}", changed := changes(opening, head))
    opening.commit("main", "hers", "main")
    closed = await opening.close(head)
    assert closed.pull_request is not None
    body = LocalForge(str(opening.origin)).pull_details(closed.pull_request.number).body
    assert body.splitlines()[1].startswith("> `main` has 1 commit that this branch does not stand on")
    git(opening.origin, "branch", "-m", "main", "trunk")
    with pytest.raises(ForgeRefused, match="branch main is not on the remote any more") as refused:
        await opening.close(head)
    assert OWN in refused.value.fix
    git(opening.origin, "branch", "-m", "trunk", "main")
    squashed = git(opening.origin, "commit-tree", "-p", "main", "-m", "squashed", f"{changed}^{{tree}}").strip()
    git(opening.origin, "update-ref", "refs/heads/main", squashed)
    assert "nothing to propose" in (await opening.close(head)).message, "squashed by a person"


def changes(opening: Opening, parent: str) -> str:
    """A commit of other files."""
    return git(opening.origin, "commit-tree", "-p", parent, "-m", "less", f"{parent}:tests").strip()
