"""Issues, comments and labels on the twin."""

from __future__ import annotations

import asyncio
from typing import Any

import github
import pytest


async def test_issues_and_pull_requests_share_their_numbers(hub: Any) -> None:
    assert hub.twin.add_issue("me/calc", "First", "Text", labels=("bug",), author="bob") == 1
    hub.branch("work")
    assert (await hub.do(lambda repository: repository.create_pull("main", "work", title="T"))).number == 2
    assert hub.twin.add_issue("me/calc", "Third") == 3
    issue, pull = [await hub.do(lambda repository, n=n: repository.get_issue(n)) for n in (1, 2)]
    assert (issue.title, issue.body, issue.user.login, issue.labels[0].name) == ("First", "Text", "bob", "bug")
    assert issue.pull_request is None
    assert pull.pull_request is not None
    assert pull.html_url.endswith("/me/calc/pull/2")


async def test_a_comment_is_written_changed_and_removed(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "An issue", comments=(("bob", "Yes please"),))
    issue = await hub.do(lambda repository: repository.get_issue(number))
    made = await asyncio.to_thread(lambda: issue.create_comment("Started"))
    await asyncio.to_thread(lambda: made.edit("Done"))
    said = [(each["user"]["login"], each["body"]) for each in hub.twin.comments("me/calc", number)]
    assert said == [("bob", "Yes please"), ("perdure-bot", "Done")]
    assert made.html_url == f"{hub.twin.url}/me/calc/issues/{number}#issuecomment-{made.id}"
    await asyncio.to_thread(made.delete)
    for work in (made.delete, lambda: made.edit("Again")):
        with pytest.raises(github.UnknownObjectException):
            await asyncio.to_thread(work)
    assert len(hub.twin.comments("me/calc", number)) == 1


async def test_comments_come_oldest_first_and_in_pages(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "Long", comments=[("bob", f"{i}") for i in range(7)])
    client = hub.client(per_page=3)
    issue = await asyncio.to_thread(lambda: client.get_repo("me/calc").get_issue(number))
    assert issue.comments == 7
    assert [each.body for each in await asyncio.to_thread(lambda: list(issue.get_comments()))] == list("0123456")
    assert [each.body for each in await asyncio.to_thread(lambda: issue.get_comments().get_page(2))] == ["6"]


async def test_a_comment_is_neither_empty_nor_endless(hub: Any) -> None:
    number = hub.twin.add_issue("me/calc", "An issue")
    for text, words in (("", "blank"), ("x" * 65_537, "65536")):
        told = await hub.refused(lambda repository, text=text: repository.get_issue(number).create_comment(text))
        assert told.status == 422
        assert words in told.body["errors"][0]["message"]


async def test_unknown_labels_are_made_and_known_ones_kept_once(hub: Any) -> None:
    hub.branch("work")
    number = hub.twin.add_pull("me/calc", "work")
    pull = await hub.do(lambda repository: repository.get_pull(number))
    await asyncio.to_thread(lambda: pull.add_to_labels("perdure", "bug"))
    await asyncio.to_thread(lambda: pull.add_to_labels("Perdure"))
    (listed,) = await hub.do(lambda repository: list(repository.get_pulls()))
    assert [each.name for each in listed.labels] == ["perdure", "bug"]
    told = await hub.refused(lambda repository: repository.get_pull(number).add_to_labels("x" * 51))
    assert told.status == 422


async def test_closed_and_locked_issues_say_so(hub: Any) -> None:
    closed = hub.twin.add_issue("me/calc", "Old", state="closed")
    locked = hub.twin.add_issue("me/calc", "Hot", locked=True)
    hub.twin.add_token("ghp_stranger", login="eve", permissions={})
    shown = [await hub.do(lambda repository, n=n: repository.get_issue(n)) for n in (closed, locked)]
    assert [(each.state, each.locked) for each in shown] == [("closed", False), ("open", True)]
    await asyncio.to_thread(lambda: shown[1].create_comment("a collaborator may"))
    told = await hub.refused(
        lambda repository: repository.get_issue(locked).create_comment("Me!"), token="ghp_stranger"
    )
    assert (told.status, told.body["message"]) == (403, "Unable to create comment because issue is locked.")


async def test_an_issue_that_is_gone_is_410_and_one_that_has_moved_redirects(hub: Any) -> None:
    hub.twin.add_repository("me/other")
    number, moving = hub.twin.add_issue("me/calc", "Gone"), hub.twin.add_issue("me/calc", "Moving")
    hub.twin.delete_issue("me/calc", number)
    assert (await hub.ask("GET", f"/repos/me/calc/issues/{number}")).status == 410
    there = hub.twin.transfer_issue("me/calc", moving, "me/other")
    found = await hub.do(lambda repository: repository.get_issue(moving))
    assert found.html_url == f"{hub.twin.url}/me/other/issues/{there}"
    assert (await hub.ask("GET", "/repos/me/calc/issues/99")).status == 404


async def test_a_repository_without_issues_says_410(hub: Any) -> None:
    hub.twin.add_repository("me/quiet", has_issues=False)
    number = hub.twin.add_issue("me/quiet", "Nobody sees it")
    told = await hub.refused(lambda repository: repository.get_issue(number), name="me/quiet")
    assert (told.status, told.body["message"]) == (410, "Issues has been disabled in this repository.")
