"""One pull request for one branch, whatever GitHub answers and whoever was there before."""

from __future__ import annotations

from asyncio import to_thread

import pytest
from github_lab import HEAD, TOKEN, Lab

from perdure.adapters.forges.github.errors import speaking
from perdure.adapters.forges.github.wire import connect
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.result import PullRequest

MARKER = "<!-- perdure:delivery=d-1 -->"


async def test_a_pull_request_is_opened_as_proposed(lab: Lab) -> None:
    opened = await to_thread(lab.forge().create, lab.proposal(draft=True))
    (pull,) = lab.hub.pulls("me/calc")
    assert opened.pull_request == PullRequest(
        number=pull["number"], url=f"{lab.hub.url}/me/calc/pull/{pull['number']}", title="feat: add sub", draft=True
    )
    assert opened.notes == ()
    assert (pull["head"]["ref"], pull["head"]["sha"], pull["base"]["ref"]) == (HEAD, lab.sha, "main")
    assert pull["body"].rstrip().endswith(MARKER)
    assert await to_thread(lab.forge().find, HEAD) == opened.pull_request
    assert await to_thread(lab.forge().find, "other") is None


async def test_opening_again_finds_ours_and_brings_it_up_to_date(lab: Lab) -> None:
    first = await to_thread(lab.forge().create, lab.proposal())
    again = await to_thread(lab.forge().create, lab.proposal(title="feat: better", body=f"New.\n\n{MARKER}\n"))
    assert again.pull_request.number == first.pull_request.number
    (pull,) = lab.hub.pulls("me/calc")
    assert (pull["title"], pull["body"].startswith("New.")) == ("feat: better", True)
    assert lab.made("pulls/create") == 1


async def test_what_is_up_to_date_is_not_written_to(lab: Lab) -> None:
    await to_thread(lab.forge().create, lab.proposal(labels=("perdure",)))
    before = len(lab.hub.calls)
    await to_thread(lab.forge().create, lab.proposal(labels=("perdure",)))
    assert {call[0] for call in lab.hub.calls[before:]} == {"GET"}


async def test_somebody_elses_pull_request_for_the_branch_is_left_as_it_is(lab: Lab) -> None:
    theirs = lab.hub.add_pull("me/calc", HEAD, title="Mine!", body="By hand.")
    opened = await to_thread(lab.forge().create, lab.proposal(labels=("perdure",)))
    assert opened.pull_request.number == theirs
    (note,) = opened.notes
    assert "not Perdure's" in note
    (pull,) = lab.hub.pulls("me/calc")
    assert (pull["title"], pull["body"], pull["labels"]) == ("Mine!", "By hand.", [])


async def test_somebody_elses_into_another_base_is_not_ours(lab: Lab) -> None:
    theirs = lab.hub.add_pull("me/calc", HEAD, "release", title="Backport", body="By hand.")
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number != theirs
    assert [pull["state"] for pull in lab.hub.pulls("me/calc")] == ["open", "open"]


async def test_a_forks_branch_of_the_same_name_is_not_ours(lab: Lab) -> None:
    lab.hub.add_repository("eve/calc", fork_of="me/calc")
    theirs = lab.hub.add_pull("me/calc", HEAD, title="Mine!", body=MARKER, author="eve", fork="eve/calc")
    assert await to_thread(lab.forge().find, HEAD) is None
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number != theirs
    assert lab.hub.pulls("me/calc")[0]["title"] == "Mine!"


async def test_a_draft_that_should_be_none_any_more_is_said(lab: Lab) -> None:
    await to_thread(lab.forge().create, lab.proposal(draft=True))
    opened = await to_thread(lab.forge().create, lab.proposal(draft=False))
    assert opened.pull_request.draft
    assert "still a draft: mark it ready for review yourself" in opened.notes[0]


async def test_a_plan_without_drafts_is_refused_with_the_way_out(lab: Lab) -> None:
    lab.hub.add_repository("me/plain", source=lab.hub.path("me/calc"), drafts=False)
    with pytest.raises(ForgeRefused, match="does not support draft") as refused:
        await to_thread(lab.forge(name="me/plain").create, lab.proposal(draft=True))
    assert "[ship]" in refused.value.fix


async def test_people_and_teams_are_asked_once(lab: Lab) -> None:
    lab.hub.add_repository(
        "acme/calc", source=lab.hub.path("me/calc"), organization=True, collaborators=("bob",), teams=("core",)
    )
    forge = lab.forge(name="acme/calc")
    proposal = lab.proposal(reviewers=("@bob", "acme/core"))
    assert (await to_thread(forge.create, proposal)).notes == ()
    (pull,) = lab.hub.pulls("acme/calc")
    assert [user["login"] for user in pull["requested_reviewers"]] == ["bob"]
    assert [team["slug"] for team in pull["requested_teams"]] == ["core"]
    await to_thread(forge.create, proposal)
    assert lab.made("pulls/request-reviewers") == 2


async def test_ours_into_another_base_is_put_right_with_a_note(lab: Lab) -> None:
    first = await to_thread(lab.forge().create, lab.proposal(base="release"))
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number == first.pull_request.number
    assert lab.hub.pulls("me/calc")[0]["base"]["ref"] == "main"
    assert "was into release" in opened.notes[0]


@pytest.mark.parametrize("how", ["merged", "closed"])
async def test_ours_of_this_commit_that_somebody_ended_is_not_opened_again(lab: Lab, how: str) -> None:
    first = await to_thread(lab.forge().create, lab.proposal())
    if how == "merged":
        lab.hub.merge("me/calc", first.pull_request.number)
    else:
        lab.hub.close("me/calc", first.pull_request.number)
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number == first.pull_request.number
    assert f"has been {how} meanwhile" in opened.notes[0]
    assert len(lab.hub.pulls("me/calc")) == 1


async def test_ours_of_an_older_commit_that_was_closed_does_not_count(lab: Lab) -> None:
    first = await to_thread(lab.forge().create, lab.proposal(head_sha="0" * 40))
    lab.hub.close("me/calc", first.pull_request.number)
    opened = await to_thread(lab.forge().create, lab.proposal(head_sha="1" * 40))
    assert opened.pull_request.number != first.pull_request.number


async def test_of_two_of_ours_the_younger_is_closed_with_a_word(lab: Lab) -> None:
    first = await to_thread(lab.forge().create, lab.proposal())
    lab.hub.add_pull("me/calc", HEAD, "release", body=MARKER, author="perdure-bot")
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number == first.pull_request.number
    older, younger = sorted(lab.hub.pulls("me/calc"), key=lambda pull: pull["number"])
    assert (older["state"], younger["state"]) == ("open", "closed")
    (comment,) = lab.hub.comments("me/calc", younger["number"])
    assert f"#{older['number']} is the one" in comment["body"]


async def test_labels_and_reviewers_that_are_not_taken_are_notes(lab: Lab) -> None:
    reviewers = ("nobody-of-that-name", "acme/no-such-team")
    opened = await to_thread(lab.forge().create, lab.proposal(labels=("perdure", "new"), reviewers=reviewers))
    (pull,) = lab.hub.pulls("me/calc")
    assert {label["name"] for label in pull["labels"]} == {"perdure", "new"}
    assert [note.partition(" could")[0] for note in opened.notes] == ["nobody-of-that-name", "acme/no-such-team"]


@pytest.mark.parametrize("operation", ["issues/add-labels", "pulls/request-reviewers"])
async def test_labels_and_reviewers_wait_for_a_github_that_is_away(lab: Lab, operation: str) -> None:
    lab.hub.faults.add(operation, "bad_gateway")
    proposal = lab.proposal(labels=("perdure",), reviewers=("perdure-bot",))
    with pytest.raises(ForgeUnavailable):
        await to_thread(lab.forge().create, proposal)
    await to_thread(lab.forge().create, proposal)
    (pull,) = lab.hub.pulls("me/calc")
    assert [label["name"] for label in pull["labels"]] == ["perdure"]


@pytest.mark.parametrize("kind", ["forbidden", "missing", "invalid"])
async def test_refused_labels_do_not_cost_the_delivery(lab: Lab, kind: str) -> None:
    lab.hub.faults.add("issues/add-labels", kind)
    opened = await to_thread(lab.forge().create, lab.proposal(labels=("perdure",)))
    (note,) = opened.notes
    assert note.startswith("the label perdure could not be set: ")


@pytest.mark.parametrize("kind", ["bad_gateway", "bad_gateway_after", "cut", "cut_after", "rate_limit", "secondary"])
@pytest.mark.parametrize("operation", ["repos/get", "pulls/list", "pulls/create"])
async def test_a_passing_fault_anywhere_ends_with_one_pull_request(lab: Lab, operation: str, kind: str) -> None:
    lab.hub.faults.add(operation, kind)
    with pytest.raises(ForgeUnavailable) as failed:
        await to_thread(lab.forge().create, lab.proposal())
    if kind in ("rate_limit", "secondary"):
        assert failed.value.retry_after is not None
        assert failed.value.retry_after >= 1
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert [pull["number"] for pull in lab.hub.pulls("me/calc")] == [opened.pull_request.number]


@pytest.mark.parametrize(
    ("kind", "error"), [("unauthorized", "accept the token"), ("forbidden", "forbids it"), ("missing", "no such thing")]
)
async def test_a_lasting_refusal_is_final(lab: Lab, kind: str, error: str) -> None:
    lab.hub.faults.add("pulls/create", kind)
    with pytest.raises(ForgeRefused, match=error) as refused:
        await to_thread(lab.forge().create, lab.proposal())
    assert TOKEN not in str(refused.value)
    assert lab.hub.pulls("me/calc") == []


async def test_an_answer_of_exists_already_is_looked_for_again(lab: Lab) -> None:
    """The list lags behind: our look does not show what is there, and GitHub refuses a second one."""
    first = await to_thread(lab.forge().create, lab.proposal())
    lab.hub.faults.add("pulls/list", "stale")
    again = await to_thread(lab.forge().create, lab.proposal())
    assert again.pull_request == first.pull_request
    assert lab.made("pulls/create") == 2
    lab.hub.faults.add("pulls/list", "stale", times=2)
    with pytest.raises(ForgeUnavailable, match="does not show it yet"):
        await to_thread(lab.forge().create, lab.proposal())


async def test_one_that_the_list_does_not_show_yet_is_the_one_that_was_opened(lab: Lab) -> None:
    lab.hub.faults.add("pulls/list", "stale", times=2)
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert [pull["number"] for pull in lab.hub.pulls("me/calc")] == [opened.pull_request.number]


async def test_nothing_to_propose_and_a_missing_base_are_said_in_words(lab: Lab) -> None:
    with pytest.raises(ForgeRefused, match="nothing to propose: main has everything"):
        await to_thread(lab.forge().create, lab.proposal(head="release"))
    with pytest.raises(ForgeRefused, match="base branch nowhere is not there"):
        await to_thread(lab.forge().create, lab.proposal(base="nowhere"))
    with pytest.raises(ForgeUnavailable, match="does not see the branch unpushed yet"):
        await to_thread(lab.forge().create, lab.proposal(head="unpushed"))


async def test_a_body_that_is_too_long_keeps_its_marker(lab: Lab) -> None:
    await to_thread(lab.forge().create, lab.proposal(body="ä" * 70_000 + MARKER))
    (pull,) = lab.hub.pulls("me/calc")
    assert len(pull["body"]) <= 65_536
    assert pull["body"].rstrip().endswith(MARKER)
    before = len(lab.hub.calls)
    await to_thread(lab.forge().create, lab.proposal(body="ä" * 70_000 + MARKER))
    assert {call[0] for call in lab.hub.calls[before:]} == {"GET"}


async def test_a_body_without_its_marker_gets_one(lab: Lab) -> None:
    first = await to_thread(lab.forge().create, lab.proposal(body="What and why."))
    assert lab.hub.pulls("me/calc")[0]["body"] == f"What and why.\n\n{MARKER}\n"
    again = await to_thread(lab.forge().create, lab.proposal(body="What and why."))
    assert again == first


async def test_a_renamed_repository_is_followed_once_and_said(lab: Lab) -> None:
    lab.hub.rename("me/calc", "me/calculator")
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.notes == ("the repository me/calc is called me/calculator now",)
    assert len(lab.hub.pulls("me/calculator")) == 1
    assert [call[2] for call in lab.hub.calls if call[3] == 301] == ["repos/get"]
    again = await to_thread(lab.forge().create, lab.proposal())
    assert again.pull_request == opened.pull_request


async def test_in_a_renamed_repository_other_branches_pull_requests_stay_alone(lab: Lab) -> None:
    """The client forgets the query of a redirected request: a list of one branch's would come as the list of all."""
    theirs = await to_thread(lab.forge().create, lab.proposal(delivery="d-2", head="perdure/d-2"))
    lab.hub.rename("me/calc", "me/calculator")
    assert await to_thread(lab.forge().find, HEAD) is None
    opened = await to_thread(lab.forge().create, lab.proposal())
    assert opened.pull_request.number != theirs.pull_request.number


async def test_an_archived_repository_is_refused(lab: Lab) -> None:
    lab.hub.archive("me/calc")
    with pytest.raises(ForgeRefused, match="archived"):
        await to_thread(lab.forge().create, lab.proposal())


async def test_a_slow_github_is_given_up(lab: Lab) -> None:
    lab.hub.faults.add("repos/get", "slow", retry_after=5)

    def ask() -> None:
        with speaking("there", "TOKEN"), connect(f"{lab.hub.url}/api/v3", TOKEN, silence_s=1) as github:
            github.get_repo("me/calc")

    with pytest.raises(ForgeUnavailable, match="does not answer"):
        await to_thread(ask)
