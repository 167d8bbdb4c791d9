"""Changed promises and the experiment's line in a pull request, in its pages and in the comment on an issue."""

from __future__ import annotations

from body_fixtures import CONTRACT, WORK

from perdure.adapters.forges.artifacts import artifact_files
from perdure.adapters.forges.body import EngineObservations, pull_request_body
from perdure.adapters.forges.status import status_comment
from perdure.models.delivery.publishing import CommentInput
from perdure.models.delivery.result import Receipt
from tests.tried import ADD, LINE, QUOTE, REVIEW, VERDICT, report

RECEIPT = Receipt(experiment=LINE)


def text_of(draft: str = "") -> str:
    work = WORK.model_copy(update={"tests": VERDICT, "draft_reason": draft})
    return pull_request_body(work, CONTRACT, None, REVIEW, RECEIPT, None, EngineObservations(report=report()))


def test_a_pull_request_draft_or_not_has_the_line_and_each_promise_with_both_versions_and_its_reason() -> None:
    for text in (text_of(), text_of("blockers")):
        assert f"- tests: 46 green · {LINE}, on tree" in text
        assert f"- judged by experiment: {LINE}" in text
        assert "## Changed promises" in text
        assert f"the request says “{QUOTE}”" in text
        assert "**: nothing in the request asks for it" in text
        assert ">     -     assert add(1, 2) == 3\n>     +     assert add(1, 2) == -1" in text
    assert "Changed promises" not in pull_request_body(
        WORK, CONTRACT, None, REVIEW, RECEIPT, None, EngineObservations()
    )


def test_names_and_versions_of_tests_call_nobody_and_end_nothing() -> None:
    hostile = report(promises=({"name": "@everyone closes #12", "before": "```\n<b>", "after": "```\n<!-- @ada"},))
    text = pull_request_body(WORK, CONTRACT, None, None, RECEIPT, None, EngineObservations(report=hostile))
    assert "@everyone" not in text
    assert "@ada" not in text
    assert "#12" not in text
    assert "**: not reviewed" in text


def test_pages_have_the_line_what_is_wrong_and_how_each_test_fails() -> None:
    files = artifact_files(None, REVIEW, report(written=("tests/t.json",)), RECEIPT)
    page = files["tests.md"].decode()
    assert LINE in page
    assert "- tampered: files of the test side are written while the tests run: tests/t.json" in page
    assert "> E 3 != -1" in page
    assert ADD in page
    assert f'"experiment": "{LINE}"' in files["receipt.json"].decode()


def test_the_comment_on_an_issue_says_how_many_promises_are_not_kept() -> None:
    work = CommentInput(delivery="d", contract="p", workflow_id="d", status="delivered", tests=VERDICT)
    text = status_comment(work, CONTRACT)
    assert LINE in text
    assert "changed promises: 2 tests of `main` that the change does not keep" in text
