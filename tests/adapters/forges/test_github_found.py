"""Open issues by label, milestone or search: all of them or a word why not, and none of anybody else's."""

from __future__ import annotations

from asyncio import to_thread

import pytest
from twin_repository import TwinRepository

from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.models.issue import IssueQuery


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
