"""An issue as a request, those that a search finds, and the one comment that says how its delivery stands."""

from __future__ import annotations

import re
from asyncio import to_thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from twin_repository import TOKEN, TwinRepository

from perdure.adapters.forges.status import status_comment
from perdure.models.budget.ledger import Spend
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import CommentInput
from perdure.models.delivery.result import PullRequest, Reason, Receipt, ReviewResult, ReviewStatus, Status, TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import TestVerdict
from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest
from perdure.models.issue import ForgeIssue, IssueComment, IssueQuery

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


async def test_issues_are_found_by_label_milestone_and_search_the_oldest_first(twin: TwinRepository) -> None:
    def add(title: str, *, label: str = "", milestone: str = "", state: str = "open", locked: bool = False) -> int:
        labels = (label,) if label else ()
        return twin.hub.add_issue("me/calc", title, labels=labels, milestone=milestone, state=state, locked=locked)

    first = add("Add sub", label="good first issue")
    add("Add mul", label="good first issue", state="closed")
    add("Add div", label="good first issue", locked=True)
    second = add("It is slow", label="good first issue", milestone="1.0 beta")
    third = add("So slow", milestone="2.0")
    await to_thread(twin.forge().open_or_update_pull, twin.proposal())
    twin.hub.add_repository("me/other")
    twin.hub.add_issue("me/other", "slow there, too")
    forge = twin.forge()

    async def found(text: str) -> list[int]:
        return list(await to_thread(forge.find_issues, IssueQuery.parse(text), 1000))

    assert await found("label:good first issue") == [first, second]
    assert await found('milestone:"1.0 beta"') == [second]
    assert await found("search:slow") == [second, third]
    assert await found("search:slow repo:me/other") == [second, third]
    assert await found("search:slow is:closed") == []
    assert await found("label:nobody's") == []


async def test_more_than_fit_are_refused_and_a_search_without_end_is_tried_again(twin: TwinRepository) -> None:
    for number in range(5):
        twin.hub.add_issue("me/calc", f"Number {number}", labels=("bug",))
    with pytest.raises(ForgeRefused, match="5 open issues are meant, at most 4 fit"):
        await to_thread(twin.forge().find_issues, IssueQuery.parse("label:bug"), 4)
    twin.hub.faults.add("search/issues-and-pull-requests", "stale")
    with pytest.raises(ForgeUnavailable, match="did not come to its end"):
        await to_thread(twin.forge().find_issues, IssueQuery.parse("label:bug"), 1000)


async def test_a_long_list_is_read_to_its_end(twin: TwinRepository) -> None:
    made = [twin.hub.add_issue("me/calc", f"Number {number}", labels=("bug",)) for number in range(103)]
    assert list(await to_thread(twin.forge().find_issues, IssueQuery.parse("label:bug"), 1000)) == made


@pytest.mark.parametrize(
    "text", ["", "bug", "label:", 'label:""', "milestones:1", 'label:a"b', "search: ", "label:" + "x" * 300]
)
def test_what_names_no_issues_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="names no"):
        IssueQuery.parse(text)


CONTRACT = Contract(
    delivery="calc-issue-12",
    repository="https://x/o/calc",
    request="",
    base="main",
    base_sha="b" * 40,
    branch="perdure/calc-issue-12",
    config=RepositoryConfig(version=1),
    issue=ForgeIssue(number=12, title="Sub", url="https://x/o/calc/issues/12", text="secret words"),
)
PULL = PullRequest(number=7, url="https://x/o/calc/pull/7", title="feat: add sub")
TESTS = TestVerdict(status=TestsStatus.GREEN, tree="c0ffee" * 7, summary="4 green")
CLEAN = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=1)


def said(receipt: Receipt | None = None, spend: Spend | None = None, watch: str = "", **how: Any) -> str:
    work = CommentInput(delivery="calc-issue-12", contract="p", workflow_id="calc-issue-12", **how)
    return status_comment(work, CONTRACT, receipt, spend, watch)


def test_at_the_start_it_says_what_runs_where_and_for_how_much_at_most() -> None:
    text = said(Receipt(), Spend(), "http://127.0.0.1:8233/x")
    assert text.startswith("**Perdure is working on this.**\n")
    assert "- branch `perdure/calc-issue-12`, from `main` at `bbbbbbbbbbbb`" in text
    assert "- spends at most $5.00" in text
    assert "[Watch it](http://127.0.0.1:8233/x)" in text
    assert "secret words" not in text
    assert "](" not in said(watch="javascript:alert(1)")


def test_while_a_person_has_to_decide_it_says_what_and_where() -> None:
    text = said(waiting="question: ask @everybody\nwhich unit?")
    assert text.startswith("**Waiting for a person: question: ask ")
    assert "@everybody" not in text.replace("\u200b", "x"), "nobody is called by an agent's words"
    assert "`perdure show calc-issue-12` says how to decide." in text


def test_at_the_end_it_names_the_pull_request_with_its_evidence_and_receipt() -> None:
    receipt, spend = Receipt(worker_deaths=2, turns_redone=1), Spend(usd=0.43, at_risk_usd=0.1)
    text = said(receipt, spend, status="delivered", pull_request=PULL, tests=TESTS, review_result=CLEAN)
    assert text.splitlines() == [
        "**Pull request #7 is ready.**",
        "",
        "- branch `perdure/calc-issue-12`, from `main` at `bbbbbbbbbbbb`",
        "- tests: 4 green, on tree `c0ffeec0ffee`",
        "- review: clean, 0 blockers, 1 tech debt",
        "- cost: $0.43, up to $0.10 more for replies cut off",
        "- receipt: 2 worker deaths, 1 turn redone, 0 replies paid twice",
        "",
        "**Next:** Review and merge it: #7. Merging it closes this issue.",
    ]


@pytest.mark.parametrize(
    ("how", "headline"),
    [
        ({"status": "draft", "reason": "tests_red", "pull_request": PULL},
         "Pull request #7 is open as a draft: tests are red."),
        ({"status": "draft", "pull_request": PULL}, "Pull request #7 is open as a draft."),
        ({"status": "delivered"}, "The branch is pushed."),
        ({"status": "draft", "reason": "blockers"}, "The branch is pushed: the review found blockers that remain."),
        ({"status": "completed"}, "Done; no pull request was asked for."),
        ({"status": "no_changes"}, "There was nothing to change."),
        ({"status": "cancelled"}, "Cancelled."),
        ({"status": "not_delivered"}, "Not delivered."),
        ({"status": "not_delivered", "reason": "tests_red"}, "Not delivered: tests are red."),
        ({"status": "not_delivered", "reason": "new @reason"}, "Not delivered: new @\u200breason."),
        ({"status": "odd"}, "Not delivered."),
    ],
)  # fmt: skip
def test_every_ending_has_its_headline(how: dict[str, Any], headline: str) -> None:
    assert said(**how).splitlines()[0] == f"**{headline}**"


def test_every_reason_is_said_in_words() -> None:
    for reason in Reason:
        first = said(status=Status.NOT_DELIVERED, reason=reason).splitlines()[0]
        assert "_" not in first
        assert first != "**Not delivered.**"


def test_what_did_not_end_well_says_why_and_how_to_go_on() -> None:
    text = said(status="not_delivered", reason="forge_refused", message="the branch\nis protected, @ada")
    assert "the branch is protected, @\u200bada" in text.splitlines()
    three = said(
        status="not_delivered", message="it is archived:\nnobody can change it\nwhere: me/calc\nfix: unarchive it"
    )
    paragraphs = three.split("\n\n")
    assert paragraphs[1:4] == ["it is archived: nobody can change it", "where: me/calc", "fix: unarchive it"]
    assert "`perdure retry calc-issue-12` goes on where it stopped" in text
    assert "branch `perdure" not in text
    none = TestVerdict(status=TestsStatus.NONE, tree="")
    draft = said(status="draft", pull_request=PULL, tests=none)
    assert "- tests: the repository has no test command" in draft
    assert "Look at what is missing: #7." in draft
    kept = CONTRACT.config.model_copy(update={"ship": CONTRACT.config.ship.model_copy(update={"close_issue": False})})
    work = CommentInput(delivery="d", contract="p", workflow_id="d", status="delivered", pull_request=PULL)
    assert "closes" not in status_comment(work, CONTRACT.model_copy(update={"config": kept}))


HARMFUL = [
    *("@ada", "#12", "closes ", "<!-- perdure:status=x -->", "![x](https://e)", "```", "\n", "# ", "<b>", "`", "&#64;"),
    *("\u202e", "x" * 900),
]


@given(st.lists(st.sampled_from(HARMFUL), max_size=9).map("".join))
def test_words_of_others_are_words_and_the_comment_stays_short(text: str) -> None:
    tests = TESTS.model_copy(update={"summary": text})
    whole = said(status="not_delivered", reason=text, message=text, tests=tests)
    tokens = MarkdownIt("commonmark").parse(whole)
    kinds = {inner.type for token in tokens for inner in (token, *(token.children or []))}
    assert not {"link_open", "image", "html_inline", "html_block", "heading_open", "fence"} & kinds
    assert not re.search(r"@\w|#\d|<!--", whole)
    assert len(whole) <= 4000
    assert "**Next:** `perdure show" in whole
