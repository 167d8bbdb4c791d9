"""One pull request for one branch, whatever GitHub answers, whoever was there before, on an empty repository too."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest
from twin_repository import HEAD, TOKEN, TwinRepository

from perdure.adapters.forges.base import Proposal, PullRequestSnapshot
from perdure.adapters.forges.body import issue_numbers, marker
from perdure.adapters.forges.github.errors import raise_forge_errors
from perdure.adapters.forges.github.transport import open_client
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.forges.select import Forges
from perdure.adapters.git.publish import publish_branch, publish_first_commit
from perdure.adapters.git.remote import FIRST_COMMIT, write_first_commit
from perdure.adapters.git.target import resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.result import PullRequest
from perdure.models.delivery.turn import Contract
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from tests.repositories import git, make_target

MARKER = "<!-- perdure:delivery=d-1 -->"


async def test_a_pull_request_is_opened_as_proposed(twin: TwinRepository) -> None:
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal(draft=True))
    (pull,) = twin.hub.pulls("me/calc")
    assert opened.pull_request == PullRequest(
        number=pull["number"], url=f"{twin.hub.url}/me/calc/pull/{pull['number']}", title="feat: add sub", draft=True
    )
    assert opened.notes == ()
    assert (pull["head"]["ref"], pull["head"]["sha"], pull["base"]["ref"]) == (HEAD, twin.sha, "main")
    assert pull["body"].rstrip().endswith(MARKER)
    assert await to_thread(twin.forge().find_open_pull, HEAD) == opened.pull_request
    assert await to_thread(twin.forge().find_open_pull, "other") is None


async def test_opening_again_finds_ours_and_brings_it_up_to_date(twin: TwinRepository) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    again = await to_thread(
        twin.forge().open_or_update_pull, twin.proposal(title="feat: better", body=f"New.\n\n{MARKER}\n")
    )
    assert again.pull_request.number == first.pull_request.number
    (pull,) = twin.hub.pulls("me/calc")
    assert (pull["title"], pull["body"].startswith("New.")) == ("feat: better", True)
    assert twin.made("pulls/create") == 1


async def test_what_is_up_to_date_is_not_written_to(twin: TwinRepository) -> None:
    await to_thread(twin.forge().open_or_update_pull, twin.proposal(labels=("perdure",)))
    before = len(twin.hub.calls)
    await to_thread(twin.forge().open_or_update_pull, twin.proposal(labels=("perdure",)))
    assert {call[0] for call in twin.hub.calls[before:]} == {"GET"}


async def test_somebody_elses_pull_request_for_the_branch_is_left_as_it_is(twin: TwinRepository) -> None:
    theirs = twin.hub.add_pull("me/calc", HEAD, title="Mine!", body="By hand.")
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal(labels=("perdure",)))
    assert opened.pull_request.number == theirs
    (note,) = opened.notes
    assert "not Perdure's" in note
    (pull,) = twin.hub.pulls("me/calc")
    assert (pull["title"], pull["body"], pull["labels"]) == ("Mine!", "By hand.", [])


async def test_somebody_elses_into_another_base_is_not_ours(twin: TwinRepository) -> None:
    theirs = twin.hub.add_pull("me/calc", HEAD, "release", title="Backport", body="By hand.")
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number != theirs
    assert [pull["state"] for pull in twin.hub.pulls("me/calc")] == ["open", "open"]


async def test_a_forks_branch_of_the_same_name_is_not_ours(twin: TwinRepository) -> None:
    twin.hub.add_repository("eve/calc", fork_of="me/calc")
    theirs = twin.hub.add_pull("me/calc", HEAD, title="Mine!", body=MARKER, author="eve", fork="eve/calc")
    assert await to_thread(twin.forge().find_open_pull, HEAD) is None
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number != theirs
    assert twin.hub.pulls("me/calc")[0]["title"] == "Mine!"


async def test_a_draft_that_should_be_none_any_more_is_said(twin: TwinRepository) -> None:
    await to_thread(twin.forge().open_or_update_pull, twin.proposal(draft=True))
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal(draft=False))
    assert opened.pull_request.draft
    assert "still a draft: mark it ready for review yourself" in opened.notes[0]


async def test_a_plan_without_drafts_is_refused_with_the_way_out(twin: TwinRepository) -> None:
    twin.hub.add_repository("me/plain", source=twin.hub.path("me/calc"), drafts=False)
    proposal = twin.proposal(draft=True, draft_reason="no test was run")
    with pytest.raises(ForgeRefused, match="does not support draft") as refused:
        await to_thread(twin.forge(name="me/plain").open_or_update_pull, proposal)
    assert "[ship]" in refused.value.fix


async def test_a_draft_that_only_a_setting_asks_for_is_an_ordinary_one_on_a_plan_without_drafts(
    twin: TwinRepository,
) -> None:
    twin.hub.add_repository("me/plain", source=twin.hub.path("me/calc"), drafts=False)
    opened = await to_thread(twin.forge(name="me/plain").open_or_update_pull, twin.proposal(draft=True))
    assert opened.notes == ("this repository has no draft pull requests: it is an ordinary one",)
    assert [pull["draft"] for pull in twin.hub.pulls("me/plain")] == [False]


async def test_people_and_teams_are_asked_once(twin: TwinRepository) -> None:
    twin.hub.add_repository(
        "acme/calc", source=twin.hub.path("me/calc"), organization=True, collaborators=("bob",), teams=("core",)
    )
    forge = twin.forge(name="acme/calc")
    proposal = twin.proposal(reviewers=("@bob", "acme/core"))
    assert (await to_thread(forge.open_or_update_pull, proposal)).notes == ()
    (pull,) = twin.hub.pulls("acme/calc")
    assert [user["login"] for user in pull["requested_reviewers"]] == ["bob"]
    assert [team["slug"] for team in pull["requested_teams"]] == ["core"]
    await to_thread(forge.open_or_update_pull, proposal)
    assert twin.made("pulls/request-reviewers") == 2


async def test_ours_into_another_base_is_put_right_with_a_note(twin: TwinRepository) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal(base="release"))
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number == first.pull_request.number
    assert twin.hub.pulls("me/calc")[0]["base"]["ref"] == "main"
    assert "was into release" in opened.notes[0]


@pytest.mark.parametrize("how", ["merged", "closed"])
async def test_ours_of_this_commit_that_somebody_ended_is_not_opened_again(twin: TwinRepository, how: str) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    if how == "merged":
        twin.hub.merge("me/calc", first.pull_request.number)
    else:
        twin.hub.close("me/calc", first.pull_request.number)
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number == first.pull_request.number
    assert f"has been {how} meanwhile" in opened.notes[0]
    assert len(twin.hub.pulls("me/calc")) == 1


async def test_ours_of_an_older_commit_that_was_closed_does_not_count(twin: TwinRepository) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal(head_sha="0" * 40))
    twin.hub.close("me/calc", first.pull_request.number)
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal(head_sha="1" * 40))
    assert opened.pull_request.number != first.pull_request.number


async def test_of_two_of_ours_the_younger_is_closed_with_a_word(twin: TwinRepository) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    twin.hub.add_pull("me/calc", HEAD, "release", body=MARKER, author="perdure-bot")
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number == first.pull_request.number
    older, younger = sorted(twin.hub.pulls("me/calc"), key=lambda pull: pull["number"])
    assert (older["state"], younger["state"]) == ("open", "closed")
    (comment,) = twin.hub.comments("me/calc", younger["number"])
    assert f"#{older['number']} is the one" in comment["body"]


async def test_labels_and_reviewers_that_are_not_taken_are_notes(twin: TwinRepository) -> None:
    reviewers = ("nobody-of-that-name", "acme/no-such-team")
    opened = await to_thread(
        twin.forge().open_or_update_pull, twin.proposal(labels=("perdure", "new"), reviewers=reviewers)
    )
    (pull,) = twin.hub.pulls("me/calc")
    assert {label["name"] for label in pull["labels"]} == {"perdure", "new"}
    assert [note.partition(" could")[0] for note in opened.notes] == ["nobody-of-that-name", "acme/no-such-team"]


@pytest.mark.parametrize("operation", ["issues/add-labels", "pulls/request-reviewers"])
async def test_labels_and_reviewers_wait_for_a_github_that_is_away(twin: TwinRepository, operation: str) -> None:
    twin.hub.faults.add(operation, "bad_gateway")
    proposal = twin.proposal(labels=("perdure",), reviewers=("perdure-bot",))
    with pytest.raises(ForgeUnavailable):
        await to_thread(twin.forge().open_or_update_pull, proposal)
    await to_thread(twin.forge().open_or_update_pull, proposal)
    (pull,) = twin.hub.pulls("me/calc")
    assert [label["name"] for label in pull["labels"]] == ["perdure"]


@pytest.mark.parametrize("kind", ["forbidden", "missing", "invalid"])
async def test_refused_labels_do_not_cost_the_delivery(twin: TwinRepository, kind: str) -> None:
    twin.hub.faults.add("issues/add-labels", kind)
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal(labels=("perdure",)))
    (note,) = opened.notes
    assert note.startswith("the label perdure could not be set: ")


@pytest.mark.parametrize("kind", ["bad_gateway", "bad_gateway_after", "cut", "cut_after", "rate_limit", "secondary"])
@pytest.mark.parametrize("operation", ["repos/get", "pulls/list", "pulls/create"])
async def test_a_passing_fault_anywhere_ends_with_one_pull_request(
    twin: TwinRepository, operation: str, kind: str
) -> None:
    twin.hub.faults.add(operation, kind)
    with pytest.raises(ForgeUnavailable) as failed:
        await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    if kind in ("rate_limit", "secondary"):
        assert failed.value.retry_after is not None
        assert failed.value.retry_after >= 1
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert [pull["number"] for pull in twin.hub.pulls("me/calc")] == [opened.pull_request.number]


@pytest.mark.parametrize(
    ("kind", "error"), [("unauthorized", "accept the token"), ("forbidden", "forbids it"), ("missing", "no such thing")]
)
async def test_a_lasting_refusal_is_final(twin: TwinRepository, kind: str, error: str) -> None:
    twin.hub.faults.add("pulls/create", kind)
    with pytest.raises(ForgeRefused, match=error) as refused:
        await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert TOKEN not in str(refused.value)
    assert twin.hub.pulls("me/calc") == []


async def test_an_answer_of_exists_already_is_looked_for_again(twin: TwinRepository) -> None:
    """The list lags behind: our look does not show what is there, and GitHub refuses a second one."""
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    twin.hub.faults.add("pulls/list", "stale")
    again = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert again.pull_request == first.pull_request
    assert twin.made("pulls/create") == 2
    twin.hub.faults.add("pulls/list", "stale", times=2)
    with pytest.raises(ForgeUnavailable, match="does not show it yet"):
        await to_thread(twin.forge().open_or_update_pull, twin.proposal())


async def test_one_that_the_list_does_not_show_yet_is_the_one_that_was_opened(twin: TwinRepository) -> None:
    twin.hub.faults.add("pulls/list", "stale", times=2)
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert [pull["number"] for pull in twin.hub.pulls("me/calc")] == [opened.pull_request.number]


async def test_nothing_to_propose_and_a_missing_base_are_said_in_words(twin: TwinRepository) -> None:
    with pytest.raises(ForgeRefused, match="nothing to propose: main has everything"):
        await to_thread(twin.forge().open_or_update_pull, twin.proposal(head="release"))
    with pytest.raises(ForgeRefused, match="base branch nowhere is not there"):
        await to_thread(twin.forge().open_or_update_pull, twin.proposal(base="nowhere"))
    with pytest.raises(ForgeUnavailable, match="does not see the branch unpushed yet"):
        await to_thread(twin.forge().open_or_update_pull, twin.proposal(head="unpushed"))


async def test_a_body_that_is_too_long_keeps_its_marker(twin: TwinRepository) -> None:
    await to_thread(twin.forge().open_or_update_pull, twin.proposal(body="ä" * 70_000 + MARKER))
    (pull,) = twin.hub.pulls("me/calc")
    assert len(pull["body"]) <= 65_536
    assert pull["body"].rstrip().endswith(MARKER)
    before = len(twin.hub.calls)
    await to_thread(twin.forge().open_or_update_pull, twin.proposal(body="ä" * 70_000 + MARKER))
    assert {call[0] for call in twin.hub.calls[before:]} == {"GET"}


async def test_a_body_without_its_marker_gets_one(twin: TwinRepository) -> None:
    first = await to_thread(twin.forge().open_or_update_pull, twin.proposal(body="What and why."))
    assert twin.hub.pulls("me/calc")[0]["body"] == f"What and why.\n\n{MARKER}\n"
    again = await to_thread(twin.forge().open_or_update_pull, twin.proposal(body="What and why."))
    assert again == first


async def test_a_renamed_repository_is_followed_once_and_said(twin: TwinRepository) -> None:
    twin.hub.rename("me/calc", "me/calculator")
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.notes == ("the repository me/calc is called me/calculator now",)
    assert len(twin.hub.pulls("me/calculator")) == 1
    assert [call[2] for call in twin.hub.calls if call[3] == 301] == ["repos/get"]
    again = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert again.pull_request == opened.pull_request


async def test_in_a_renamed_repository_other_branches_pull_requests_stay_alone(twin: TwinRepository) -> None:
    """The client forgets the query of a redirected request: a list of one branch's would come as the list of all."""
    theirs = await to_thread(twin.forge().open_or_update_pull, twin.proposal(delivery="d-2", head="perdure/d-2"))
    twin.hub.rename("me/calc", "me/calculator")
    assert await to_thread(twin.forge().find_open_pull, HEAD) is None
    opened = await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    assert opened.pull_request.number != theirs.pull_request.number


async def test_an_archived_repository_is_refused(twin: TwinRepository) -> None:
    twin.hub.archive("me/calc")
    with pytest.raises(ForgeRefused, match="archived"):
        await to_thread(twin.forge().open_or_update_pull, twin.proposal())


async def test_a_slow_github_is_given_up(twin: TwinRepository) -> None:
    twin.hub.faults.add("repos/get", "slow", retry_after=5)

    def ask() -> None:
        with raise_forge_errors("there", "TOKEN"), open_client(f"{twin.hub.url}/api/v3", TOKEN, silence_s=1) as github:
            github.get_repo("me/calc")

    with pytest.raises(ForgeUnavailable, match="does not answer"):
        await to_thread(ask)


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


FINE = "github_pat_11AAAAAAA0fine0grained0token0fine0grained0"
BRANCH = "perdure/d-1"
NOTE = "me/new is empty: trunk begins with an empty commit, pushed before the branch"


@pytest.fixture
def empty(twin: TwinRepository, tmp_path: Path) -> Path:
    """Where the twin keeps me/new."""
    git(tmp_path, "init", "-q", "--bare", "-b", "trunk", "nothing.git")
    twin.hub.add_repository("me/new", source=tmp_path / "nothing.git")
    twin.hub.add_token(FINE, login="ada", permissions={"me/new": "write"}, kind="fine-grained")
    return tmp_path / "hub" / "me" / "new.git"


@pytest.mark.parametrize("token", [TOKEN, FINE], ids=["classic", "fine-grained"])
async def test_an_empty_repository_is_no_obstacle_and_worth_a_word(
    twin: TwinRepository, empty: Path, token: str
) -> None:
    access = await to_thread(twin.forge(token, "me/new").check_access, "trunk", [BRANCH], empty=True)
    assert access.notes == (NOTE,)
    assert git(empty, "for-each-ref") == ""
    with pytest.raises(ForgeRefused, match="me/new has no branch trunk"):
        await to_thread(twin.forge(token, "me/new").check_access, "trunk", [BRANCH])


async def test_a_rule_that_lets_nobody_begin_the_base_is_named_before_any_money_is_spent(
    twin: TwinRepository, empty: Path
) -> None:
    twin.hub.add_ruleset("me/new", "trunk", rules=[{"type": "creation"}])
    with pytest.raises(ForgeRefused, match=r"a rule of me/new \(creation\) would refuse the push of trunk") as caught:
        await to_thread(twin.forge(name="me/new").check_access, "trunk", [BRANCH], empty=True)
    assert "or push a first commit yourself: git commit --allow-empty" in caught.value.fix


async def test_it_becomes_the_base_of_a_pull_request_and_the_default_branch(
    twin: TwinRepository, empty: Path, tmp_path: Path
) -> None:
    keys = Forges.from_environment({"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": TOKEN})
    target = await to_thread(resolve_repository, f"{twin.hub.url}/me/new", tmp_path, keys)
    assert (target.empty, target.base_branch()) == (True, ("trunk", FIRST_COMMIT))
    vault = Vault.open_or_create(Home(tmp_path / "home"), target.url, keys)
    store = vault.objects
    terms = Contract(
        delivery="d-1",
        repository=target.url,
        request="",
        base="trunk",
        base_sha=write_first_commit(store),
        branch=BRANCH,
        config=RepositoryConfig(version=1),
    )
    head = store.write_commit(store.write_tree(()), [FIRST_COMMIT], "feat: x\n\nPerdure-Delivery: d-1")
    await to_thread(publish_first_commit, vault, terms)
    await to_thread(publish_branch, vault, terms, branch=BRANCH, head=head, retry_command="")
    proposal = twin.proposal(head=BRANCH, head_sha=head, base="trunk")
    opened = await to_thread(twin.forge(name="me/new").open_or_update_pull, proposal)
    assert opened.pull_request.number == 1
    (pull,) = twin.hub.pulls("me/new")
    assert (pull["base"]["ref"], pull["base"]["sha"]) == ("trunk", FIRST_COMMIT)
    assert pull["base"]["repo"]["default_branch"] == "trunk"
