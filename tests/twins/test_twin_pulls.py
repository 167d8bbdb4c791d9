"""Pull requests, issues, comments and pages on the twin, as PyGithub sees them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import github
import pytest

from perdure.models.errors import BadInput
from tests.twins.github import GitHubTwin, refs
from tests.twins.github.about_pulls import closes
from tests.twins.github.answers import Problem
from tests.twins.github.html import markdown


def create(head: str = "work", base: str = "main", **more: Any) -> Any:
    return lambda repository: repository.create_pull(base, head, **{"title": "A title", "body": "A body", **more})


async def test_a_pull_request_is_opened_and_says_what_it_changes(hub: Any) -> None:
    sha = hub.branch("work")
    pull = await hub.do(create(draft=True))
    assert (pull.number, pull.title, pull.body, pull.draft) == (1, "A title", "A body", True)
    assert (pull.head.sha, pull.head.label, pull.base.ref) == (sha, "me:work", "main")
    assert (pull.commits, pull.additions, pull.deletions, pull.changed_files, pull.mergeable) == (1, 1, 0, 1, True)
    assert pull.html_url == f"{hub.twin.url}/me/calc/pull/1"
    assert refs.git(hub.bare, "rev-parse", "refs/pull/1/head") == sha
    assert [each["number"] for each in hub.twin.pulls("me/calc")] == [1]


async def test_twenty_who_open_one_at_once_open_one(hub: Any) -> None:
    hub.branch("work")
    body = {"head": "work", "base": "main", "title": "One"}
    answers = await asyncio.gather(*(hub.ask("POST", "/repos/me/calc/pulls", body) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [201] + [422] * 19
    said = {answer.body["errors"][0]["message"] for answer in answers if answer.status == 422}
    assert said == {"A pull request already exists for me:work."}
    assert len(hub.twin.pulls("me/calc")) == 1


async def test_the_refusals_are_in_githubs_words(hub: Any) -> None:
    hub.branch("work")
    refs.git(hub.bare, "branch", "same", "main")
    empty = refs.git(hub.bare, "hash-object", "-t", "tree", "-w", "--stdin")
    refs.git(hub.bare, "update-ref", "refs/heads/stranger", refs.git(hub.bare, "commit-tree", empty, "-m", "alone"))

    async def said(**wanted: Any) -> Any:
        told = await hub.refused(create(**wanted))
        assert told.status == 422
        return told.body.get("errors", [told.body])[0]

    assert (await said(head="same"))["message"] == "No commits between main and same"
    assert (await said(head="main"))["message"] == "No commits between main and main"
    assert await said(head="gone") == {"resource": "PullRequest", "field": "head", "code": "invalid"}
    assert await said(base="gone") == {"resource": "PullRequest", "field": "base", "code": "invalid"}
    assert "no history in common" in (await said(head="stranger"))["message"]
    assert "256" in (await said(title="x" * 257))["message"]
    assert "65536" in (await said(body="x" * 65_537))["message"]
    assert (await said(title=" "))["code"] == "missing_field"
    assert hub.twin.pulls("me/calc") == []


async def test_a_plan_without_drafts_has_none(hub: Any) -> None:
    hub.twin.add_repository("me/poor", drafts=False)
    hub.branch("work", where="me/poor")
    told = await hub.refused(create(draft=True), name="me/poor")
    assert told.status == 422
    assert told.body["message"] == "Draft pull requests are not supported in this repository."
    assert "errors" not in told.body
    assert not (await hub.do(create(), name="me/poor")).draft


async def test_nothing_is_written_to_an_archived_repository(hub: Any) -> None:
    hub.branch("work")
    number = hub.twin.add_issue("me/calc", "An issue")
    hub.twin.archive("me/calc")
    for work in (create(), lambda repository: repository.get_issue(number).create_comment("hello")):
        told = await hub.refused(work)
        assert (told.status, told.body["message"]) == (403, "Repository was archived so is read-only.")
    assert (await hub.do(lambda repository: repository.archived)) is True


async def test_lists_are_filtered_sorted_and_come_in_pages(hub: Any) -> None:
    for name in ("one", "two", "three"):
        hub.branch(name, file=f"{name}.txt")
        hub.twin.add_pull("me/calc", name)
    hub.twin.close("me/calc", 2)

    def numbers(**wanted: Any) -> Any:
        return hub.do(lambda repository: [pull.number for pull in repository.get_pulls(**wanted)])

    assert await numbers() == [3, 1]
    assert await numbers(state="all", sort="created", direction="asc") == [1, 2, 3]
    assert await numbers(state="closed") == [2]
    assert await numbers(head="me:three") == [3]
    assert await numbers(head="you:three") == []
    assert await numbers(base="other") == []
    first = await hub.ask("GET", "/repos/me/calc/pulls?state=all&per_page=2")
    assert [pull["number"] for pull in first.body] == [3, 2]
    assert 'page=2>; rel="next"' in first.headers["Link"]
    assert "state=all" in first.headers["Link"]
    small = await asyncio.to_thread(
        lambda: [pull.number for pull in hub.client(per_page=1).get_repo("me/calc").get_pulls(state="all")]
    )
    assert small == [3, 2, 1]


async def test_a_pull_request_follows_its_branch_and_is_closed_with_it(hub: Any) -> None:
    hub.branch("work")
    pull = await hub.do(create())
    newer = hub.branch("work", "more\n", of="work")
    assert hub.twin.pulls("me/calc")[0]["head"]["sha"] == newer
    assert refs.git(hub.bare, "rev-parse", "refs/pull/1/head") == newer
    refs.git(hub.bare, "branch", "-D", "work")
    assert (await hub.do(lambda repository: repository.get_pull(pull.number))).state == "closed"


async def test_a_merge_is_real_and_closes_what_the_body_says(hub: Any) -> None:
    issues = [hub.twin.add_issue("me/calc", f"Issue {number}") for number in range(3)]
    sha = hub.branch("work")
    text = f"Closes #{issues[0]}\n\n`fixes #{issues[1]}` <!-- fixes #{issues[1]} --> see #{issues[2]}"
    number = (await hub.do(create(body=text))).number
    merged = hub.twin.merge("me/calc", number)
    assert refs.parents(hub.bare, merged)[1] == sha
    assert refs.tip(hub.bare, "main") == merged
    assert [hub.twin.issue("me/calc", number)["state"] for number in issues] == ["closed", "open", "open"]
    shown = hub.twin.pulls("me/calc")[0]
    assert (shown["merged"], shown["state"], shown["merge_commit_sha"]) == (True, "closed", merged)
    refs.git(hub.bare, "fsck", "--strict", "--connectivity-only")


async def test_a_merge_into_another_branch_closes_no_issue(hub: Any) -> None:
    issue = hub.twin.add_issue("me/calc", "An issue")
    refs.git(hub.bare, "branch", "next", "main")
    hub.branch("work")
    await hub.do(create(base="next", body=f"Closes #{issue}"))
    hub.twin.merge("me/calc", 2)
    assert hub.twin.issue("me/calc", issue)["state"] == "open"


async def test_what_conflicts_is_not_merged(hub: Any) -> None:
    hub.branch("work", "one\n")
    hub.branch("main", "two\n")
    pull = await hub.do(create())
    assert (pull.mergeable, pull.mergeable_state) == (False, "dirty")
    with pytest.raises(Problem, match="not mergeable"):
        hub.twin.merge("me/calc", pull.number)


async def test_title_body_state_and_base_can_be_changed(hub: Any) -> None:
    refs.git(hub.bare, "branch", "next", "main")
    hub.branch("work")
    pull = await hub.do(create())
    await asyncio.to_thread(lambda: pull.edit(title="New", body="Newer", base="next"))
    assert (pull.title, pull.body, pull.base.ref) == ("New", "Newer", "next")
    await asyncio.to_thread(lambda: pull.edit(state="closed"))
    other = await hub.do(create(base="next"))
    with pytest.raises(github.GithubException, match="already exists"):
        await asyncio.to_thread(lambda: pull.edit(state="open"))
    await asyncio.to_thread(lambda: other.edit(state="closed"))
    await asyncio.to_thread(lambda: pull.edit(state="open"))
    assert [each["state"] for each in hub.twin.pulls("me/calc")] == ["open", "closed"]
    with pytest.raises(github.GithubException, match="'gone' was not found"):
        await asyncio.to_thread(lambda: pull.edit(base="gone"))


async def test_reviews_are_asked_of_collaborators_only(hub: Any) -> None:
    hub.branch("work")
    pull = await hub.do(create())
    await asyncio.to_thread(lambda: pull.create_review_request(reviewers=["carol"]))
    shown = hub.twin.pulls("me/calc")[0]
    assert [each["login"] for each in shown["requested_reviewers"]] == ["carol"]
    for who, words in (("nobody", "only be requested from collaborators"), ("perdure-bot", "pull request author")):
        with pytest.raises(github.GithubException, match=words) as caught:
            await asyncio.to_thread(lambda who=who: pull.create_review_request(reviewers=[who]))
        assert caught.value.status == 422


async def test_an_organisations_teams_can_be_asked_for_a_review(hub: Any) -> None:
    hub.twin.add_repository("acme/calc", organization=True, teams=("core",))
    hub.branch("work", where="acme/calc")
    pull = await hub.do(create(), name="acme/calc")
    await asyncio.to_thread(lambda: pull.create_review_request(team_reviewers=["core"]))
    (listed,) = await hub.do(lambda repository: list(repository.get_pulls()), name="acme/calc")
    assert [each.slug for each in listed.requested_teams] == ["core"]
    with pytest.raises(github.GithubException) as caught:
        await asyncio.to_thread(lambda: pull.create_review_request(team_reviewers=["others"]))
    assert caught.value.status == 422


async def test_a_forks_branch_of_the_same_name_is_another_one(hub: Any) -> None:
    hub.twin.add_repository("eve/calc", fork_of="me/calc")
    sha = hub.branch("work", "evil\n", where="eve/calc")
    hub.branch("work")
    theirs = hub.twin.add_pull("me/calc", "work", fork="eve/calc", author="eve")
    ours = await hub.do(create())
    labels = {pull["number"]: pull["head"]["label"] for pull in hub.twin.pulls("me/calc")}
    assert labels == {theirs: "eve:work", ours.number: "me:work"}
    assert refs.git(hub.bare, "rev-parse", f"refs/pull/{theirs}/head") == sha
    hub.twin.merge("me/calc", theirs)
    assert refs.git(hub.bare, "show", "main:x.txt") == "evil"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Closes #1", [("me/calc", 1)]),
        ("fixed: #2 and resolves you/other#3", [("me/calc", 2), ("you/other", 3)]),
        ("This encloses #1, see #2, close 3", []),
        ("```\ncloses #1\n```\n`closes #2`<!-- closes #3 -->", []),
    ],
)
def test_only_closing_words_close(text: str, found: list[tuple[str, int]]) -> None:
    assert closes(text, "me/calc") == found


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


EVIL = "<script>alert(1)</script> [x](javascript:alert(1)) <!-- perdure:status=1 -->"


async def test_an_issue_and_its_pull_request_can_be_read(hub: Any) -> None:
    issue = hub.twin.add_issue("me/calc", "Add sub", "**Please**", labels=("bug",), comments=(("bob", "Yes, see #2"),))
    hub.branch("work", "one\ntwo\n")
    pull = hub.twin.add_pull("me/calc", "work", title="feat: add sub", body=f"Closes #{issue}", draft=True)
    page = (await hub.page(f"/me/calc/issues/{issue}")).body
    for words in ("Add sub", "<strong>Please</strong>", ">bug<", "bob", 'href="/me/calc/issues/2">#2</a>', ">Open<"):
        assert words in page
    page = (await hub.page(f"/me/calc/pull/{pull}")).body
    for words in ("feat: add sub", ">Draft<", "<code>work</code> into <code>main</code>", "x.txt", "+two", "1 commit"):
        assert words in page
    assert (await hub.page(f"/me/calc/issues/{pull}")).headers["Location"] == f"/me/calc/pull/{pull}"


async def test_a_merged_pull_request_and_its_issue_say_so(hub: Any) -> None:
    issue = hub.twin.add_issue("me/calc", "Add sub")
    hub.branch("work")
    pull = hub.twin.add_pull("me/calc", "work", body=f"Fixes #{issue}")
    hub.twin.merge("me/calc", pull)
    assert ">Merged<" in (await hub.page(f"/me/calc/pull/{pull}")).body
    assert ">Closed<" in (await hub.page(f"/me/calc/issues/{issue}")).body


async def test_nothing_that_strangers_write_runs(hub: Any) -> None:
    hub.twin.add_issue("me/calc", EVIL, EVIL, labels=(EVIL.replace(",", ""),), author="<b>", comments=(("<i>", EVIL),))
    told = await hub.page("/me/calc/issues/1")
    assert "<script>" not in told.body
    assert 'href="javascript' not in told.body
    assert "<b>" not in told.body
    assert told.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "perdure:status" not in markdown(EVIL, "me/calc")


def test_comments_are_hidden_outside_of_code_only() -> None:
    shown = markdown("before <!-- hidden\n --> after\n```\n<!-- shown -->\n```\n", "me/calc")
    assert "hidden" not in shown
    assert "&lt;!-- shown --&gt;" in shown


async def test_private_missing_and_renamed_repositories_answer_as_githubs_pages_do(hub: Any) -> None:
    hub.twin.add_repository("me/secret", private=True)
    hub.twin.add_issue("me/secret", "Hidden")
    hub.twin.add_issue("me/calc", "Shown")
    for path in ("/me/secret/issues/1", "/me/gone/issues/1", "/me/calc/issues/9", "/a/b/c/d"):
        assert (await hub.page(path)).status == 404
    hub.twin.rename("me/calc", "me/sums")
    assert (await hub.page("/me/calc/issues/1")).headers["Location"] == "/me/sums/issues/1"


async def test_a_port_that_is_taken_is_said_in_words(hub: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot listen"):
        async with GitHubTwin(tmp_path, token="t", port=int(hub.twin.url.rpartition(":")[2])):
            pass
