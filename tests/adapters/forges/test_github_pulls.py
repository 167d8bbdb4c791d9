"""One pull request for one branch, whatever GitHub answers and whoever was there before."""

from __future__ import annotations

from asyncio import to_thread

import pytest
from twin_repository import HEAD, TOKEN, TwinRepository

from perdure.adapters.forges.github.errors import raise_forge_errors
from perdure.adapters.forges.github.transport import open_client
from perdure.models.delivery.result import PullRequest
from perdure.models.errors import ForgeRefused, ForgeUnavailable

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
    with pytest.raises(ForgeRefused, match="does not support draft") as refused:
        await to_thread(twin.forge(name="me/plain").open_or_update_pull, twin.proposal(draft=True))
    assert "[ship]" in refused.value.fix


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
