"""An issue of any length becomes terms of bounded length, and says what it left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.forges.local import LocalForge
from perdure.adapters.repository.terms import ISSUE_BYTES, ISSUE_COMMENT_BYTES, bound_issue, branch_name, fetch_issue
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import InvalidRequest
from perdure.models.issue import ForgeIssue, IssueComment

ISSUE = ForgeIssue(
    number=12, title="Accept 1h30m", url="https://github.com/me/calc/issues/12", text="words", author="ada"
)


def size(issue: ForgeIssue) -> int:
    return len(issue.text.encode()) + sum(len(comment.text.encode()) for comment in issue.comments)


def test_a_short_issue_is_left_as_it_is() -> None:
    issue = ISSUE.model_copy(update={"labels": ("bug",), "comments": (IssueComment(author="bob", text="me too"),)})
    assert bound_issue(issue) == issue


def test_the_oldest_comments_go_first_and_are_counted() -> None:
    said = tuple(IssueComment(author="bob", text=f"{n} " + "x" * 10_000) for n in range(9))
    kept = bound_issue(ISSUE.model_copy(update={"comments": said})).comments
    assert kept == (IssueComment(author="", text="3 older comments are left out here: the issue is long"), *said[3:])


def test_what_the_forge_left_out_already_stays_said() -> None:
    words = IssueComment(author="", text="700 older comments are not shown")
    said = tuple(IssueComment(author="bob", text=f"{n} " + "x" * 16_000) for n in range(5))
    kept = bound_issue(ISSUE.model_copy(update={"comments": (words, *said)})).comments
    assert [comment.text[:20] for comment in kept[:2]] == ["700 older comments a", "1 older comment is l"]


def test_a_long_text_loses_its_middle() -> None:
    issue = bound_issue(ISSUE.model_copy(update={"text": "start" + "ü" * ISSUE_BYTES + "end", "title": "t" * 1000}))
    assert issue.text.startswith("start")
    assert issue.text.endswith("end")
    assert f"\n[… {ISSUE_BYTES + 8} bytes left out …]\n" in issue.text
    assert len(issue.title) == 300


def test_a_pasted_log_does_not_push_out_what_people_said() -> None:
    log = IssueComment(author="bot", text="x" * 1_000_000)
    said = IssueComment(author="bob", text="it began in 1.2")
    kept = bound_issue(ISSUE.model_copy(update={"comments": (said, log)})).comments
    assert kept[0] == said
    assert len(kept[1].text) <= ISSUE_COMMENT_BYTES


ANY = st.text(st.characters(categories=("L", "N", "P", "S", "Z", "C")), max_size=40)


@given(ANY, ANY, st.lists(st.tuples(ANY, st.integers(1, 2000)), max_size=6), st.integers(1, 3000))
def test_any_issue_fits_and_can_be_kept(title: str, text: str, said: list[tuple[str, int]], times: int) -> None:
    comments = tuple(IssueComment(author=words[:3], text=words * many) for words, many in said)
    made = bound_issue(ISSUE.model_copy(update={"title": title, "text": text * times, "comments": comments}))
    assert size(made) <= ISSUE_BYTES + 300
    assert ForgeIssue.model_validate_json(made.model_dump_json()) == made
    assert "\n" not in made.title


def test_half_a_character_does_not_keep_an_issue_from_being_kept() -> None:
    half = "a\ud800b"
    made = bound_issue(ISSUE.model_copy(update={"title": half, "text": half, "author": half, "labels": (half,)}))
    assert (made.text, made.author) == ("a?b", "a?b")
    assert ForgeIssue.model_validate_json(made.model_dump_json()) == made


def test_an_issue_of_another_repository_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not an issue of this repository"):
        fetch_issue(None, "https://github.com/me/calc/issues/12", "https://github.com/you/calc")


def test_a_repository_without_issues_is_refused(tmp_path: Path) -> None:
    for forge in (None, LocalForge(str(tmp_path))):
        with pytest.raises(InvalidRequest, match="issue: this repository has no issues Perdure can read"):
            fetch_issue(forge, "12", str(tmp_path))


@pytest.mark.parametrize(
    ("template", "words", "issue", "branch"),
    [
        ("perdure/{id}", "Add sub", None, "perdure/d"),
        ("work/{issue}-{slug}", "", ISSUE, "work/12-accept-1h30m"),
        ("work/{issue}-{slug}", "Only the parser", ISSUE, "work/12-only-the-parser"),
        ("work/{issue}{slug}", "Add sub", None, "work/add-sub"),
    ],
)
def test_a_branch_can_be_called_after_the_issue(
    template: str, words: str, issue: ForgeIssue | None, branch: str
) -> None:
    request = DeliveryRequest(repository="/r", request=words, issue=12 if issue else None)
    assert branch_name(template, "d", request, issue, "perdure.toml") == branch


@pytest.mark.parametrize("template", ["{who}/{id}", "{0}", "{id", "{id.x}", "{issue[0]}"])
def test_a_branch_with_an_unknown_place_is_refused(template: str) -> None:
    with pytest.raises(InvalidRequest, match="has a place that is not known here"):
        branch_name(template, "d", DeliveryRequest(repository="/r", issue=12), None, "perdure.toml")
