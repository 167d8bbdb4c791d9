"""The one comment on an issue says how its delivery stands, in words that are ours."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perdure.adapters.forges.status import status_comment
from perdure.models.budget.ledger import Spend
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import CommentInput
from perdure.models.delivery.result import PullRequest, Reason, Receipt, ReviewResult, ReviewStatus, Status, TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import TestVerdict
from perdure.models.issue import ForgeIssue

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
