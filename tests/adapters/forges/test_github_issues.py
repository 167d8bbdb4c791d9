"""An issue as a request, and the one comment on it: found by marker and author, edited, never doubled."""

from __future__ import annotations

from asyncio import to_thread

import pytest
from twin_repository import TOKEN, TwinRepository

from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest
from perdure.models.issue import IssueComment

MARKER = "<!-- perdure:status=d-1 -->"


async def test_an_issue_is_read_with_labels_and_comments(twin: TwinRepository) -> None:
    said = (("bob", "Please."), ("eve", "Do not."))
    number = twin.hub.add_issue("me/calc", "Add sub", "It is missing.", labels=("bug",), author="ada", comments=said)
    issue = await to_thread(twin.forge().fetch_issue, number)
    assert (issue.number, issue.title, issue.text, issue.author) == (number, "Add sub", "It is missing.", "ada")
    assert issue.url == f"{twin.hub.url}/me/calc/issues/{number}"
    assert issue.labels == ("bug",)
    assert [(comment.author, comment.text) for comment in issue.comments] == list(said)
    assert all(comment.written_at.endswith("Z") for comment in issue.comments)


async def test_a_public_issue_can_be_read_as_nobody(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "It is missing.")
    assert (await to_thread(twin.forge(token="").fetch_issue, number)).title == "Add sub"


@pytest.mark.parametrize(("given", "why"), [({"state": "closed"}, "is closed"), ({"locked": True}, "is locked")])
async def test_what_is_over_is_refused_in_words(twin: TwinRepository, given: dict[str, object], why: str) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x", **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=f"issue #{number} of me/calc {why}"):
        await to_thread(twin.forge().fetch_issue, number)


async def test_a_pull_request_and_a_number_without_issue_are_refused_in_words(twin: TwinRepository) -> None:
    number = (await to_thread(twin.forge().open_or_update_pull, twin.proposal())).pull_request.number
    with pytest.raises(InvalidRequest, match="is a pull request, not an issue"):
        await to_thread(twin.forge().fetch_issue, number)
    with pytest.raises(InvalidRequest, match="there is no issue #4711 of me/calc") as unknown:
        await to_thread(twin.forge().fetch_issue, 4711)
    assert unknown.value.fix


async def test_one_that_was_deleted_moved_or_switched_off_is_refused_in_words(twin: TwinRepository) -> None:
    deleted, moved = (twin.hub.add_issue("me/calc", "Add sub", "x") for _ in range(2))
    twin.hub.delete_issue("me/calc", deleted)
    with pytest.raises(InvalidRequest, match="has been deleted"):
        await to_thread(twin.forge().fetch_issue, deleted)
    twin.hub.add_repository("me/other")
    twin.hub.transfer_issue("me/calc", moved, "me/other")
    with pytest.raises(InvalidRequest, match="moved to another repository") as refused:
        await to_thread(twin.forge().fetch_issue, moved)
    assert "/me/other/issues/" in refused.value.where
    twin.hub.add_repository("me/quiet", has_issues=False)
    with pytest.raises(InvalidRequest, match="issues switched off"):
        await to_thread(twin.forge(name="me/quiet").fetch_issue, 1)


async def test_of_a_long_discussion_the_newest_is_kept_and_the_rest_counted(twin: TwinRepository) -> None:
    said = tuple(("bob", f"comment {n}") for n in range(330))
    number = twin.hub.add_issue("me/calc", "Long", "x", comments=said)
    issue = await to_thread(twin.forge().fetch_issue, number)
    assert issue.comments[0] == IssueComment(author="", text="130 earlier comments are left out.")
    assert [comment.text for comment in issue.comments[1:]] == [text for _, text in said[130:]]
    assert twin.made("issues/list-comments") == 3


async def test_of_long_comments_the_newest_that_fit_are_kept(twin: TwinRepository) -> None:
    said = (("bob", "old"), ("bob", "ä" * 60_000), ("bob", "é" * 30_000), ("bob", "newest"))
    number = twin.hub.add_issue("me/calc", "Long", "x", comments=said)
    issue = await to_thread(twin.forge().fetch_issue, number)
    assert [comment.text[:6] for comment in issue.comments] == ["old", "ä" * 6, "é" * 6, "newest"]
    number = twin.hub.add_issue("me/calc", "Long", "x", comments=(*said[:1], *said[1:2] * 2, *said[3:]))
    issue = await to_thread(twin.forge().fetch_issue, number)
    assert [comment.text[:7] for comment in issue.comments] == ["2 earli", "ä" * 7, "newest"]


async def test_what_we_said_about_deliveries_is_not_part_of_the_request(twin: TwinRepository) -> None:
    said = (
        ("perdure-bot", "<!-- perdure:status=d-0 -->\nDone."),
        ("eve", "<!-- perdure:status=d-0 -->\nI am Perdure."),
    )
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=said)
    issue = await to_thread(twin.forge().fetch_issue, number)
    assert [comment.author for comment in issue.comments] == ["eve"]


async def test_one_comment_says_how_it_stands_and_is_edited(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=(("bob", "Please."),))
    url = await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    assert await to_thread(twin.forge().write_status_comment, number, "d-1", "Done.") == url
    *_, comment = comments = twin.hub.comments("me/calc", number)
    assert len(comments) == 2
    assert comment["body"] == f"{MARKER}\nDone."
    assert comment["html_url"] == url
    assert url.startswith(f"{twin.hub.url}/me/calc/issues/{number}#")


async def test_what_it_says_already_is_not_written_again(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    before = len(twin.hub.calls)
    await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    assert {call[0] for call in twin.hub.calls[before:]} == {"GET"}


async def test_another_delivery_has_a_comment_of_its_own(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    first = await to_thread(twin.forge().write_status_comment, number, "d-1", "one")
    second = await to_thread(twin.forge().write_status_comment, number, "d-12", "two")
    assert first != second


async def test_a_marker_that_a_stranger_pasted_is_left_alone(twin: TwinRepository) -> None:
    said = (("eve", f"{MARKER}\nDelivered, click here"), ("bob", f"Look: {MARKER}"))
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=said)
    await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    assert [comment["body"] for comment in twin.hub.comments("me/calc", number)] == [
        said[0][1],
        said[1][1],
        f"{MARKER}\nWorking on it.",
    ]


async def test_our_comment_is_found_on_a_later_page(twin: TwinRepository) -> None:
    said = (*(("bob", f"{n}") for n in range(150)), ("perdure-bot", f"{MARKER}\nold"))
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=said)
    await to_thread(twin.forge().write_status_comment, number, "d-1", "new")
    comments = twin.hub.comments("me/calc", number)
    assert (len(comments), comments[-1]["body"]) == (151, f"{MARKER}\nnew")


async def test_doubles_of_ours_are_removed(twin: TwinRepository) -> None:
    said = (("perdure-bot", f"{MARKER}\none"), ("bob", "Hm"), ("perdure-bot", f"{MARKER}\ntwo"))
    number = twin.hub.add_issue("me/calc", "Add sub", "x", comments=said)
    await to_thread(twin.forge().write_status_comment, number, "d-1", "three")
    bodies = [comment["body"] for comment in twin.hub.comments("me/calc", number)]
    assert bodies == [f"{MARKER}\nthree", "Hm"]


@pytest.mark.parametrize("kind", ["bad_gateway", "bad_gateway_after", "cut", "cut_after", "rate_limit", "secondary"])
@pytest.mark.parametrize("operation", ["repos/get", "issues/list-comments", "issues/create-comment"])
async def test_a_passing_fault_anywhere_ends_with_one_comment(twin: TwinRepository, operation: str, kind: str) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    twin.hub.faults.add(operation, kind)
    with pytest.raises(ForgeUnavailable):
        await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    assert [comment["body"] for comment in twin.hub.comments("me/calc", number)] == [f"{MARKER}\nWorking on it."]


async def test_what_cannot_be_told_is_refused(twin: TwinRepository) -> None:
    locked = twin.hub.add_issue("me/calc", "Add sub", "x", locked=True)
    twin.hub.add_token("ghp_reader", login="ada", scopes=("repo",), permissions={"me/calc": "read"})
    for token, number in ((TOKEN, 4711), ("ghp_reader", locked)):
        with pytest.raises(ForgeRefused) as refused:
            await to_thread(twin.forge(token).write_status_comment, number, "d-1", "Working on it.")
        assert token not in str(refused.value)


async def test_an_issue_that_moved_away_is_not_followed_to_where_it_is_now(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    twin.hub.add_repository("eve/other")
    moved = twin.hub.transfer_issue("me/calc", number, "eve/other")
    with pytest.raises(ForgeRefused, match="moved to another repository"):
        await to_thread(twin.forge().write_status_comment, number, "d-1", "Working on it.")
    assert twin.hub.comments("eve/other", moved) == []


async def test_the_oldest_of_two_stays_when_a_list_lags_behind(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    await to_thread(twin.forge().write_status_comment, number, "d-1", "one")
    twin.hub.faults.add("issues/list-comments", "stale")
    await to_thread(twin.forge().write_status_comment, number, "d-1", "two")
    assert [comment["body"] for comment in twin.hub.comments("me/calc", number)] == [f"{MARKER}\ntwo"]


async def test_a_comment_longer_than_github_takes_is_cut(twin: TwinRepository) -> None:
    number = twin.hub.add_issue("me/calc", "Add sub", "x")
    await to_thread(twin.forge().write_status_comment, number, "d-1", "y" * 70_000)
    (comment,) = twin.hub.comments("me/calc", number)
    assert len(comment["body"]) == 65_536
