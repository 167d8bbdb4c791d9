"""The text of a backlog's pull request: a table of what has landed, by the commits of its branch, and of what has not,
by this home's own labels; the issues that merging closes; and the hidden marks of its part, which it may share.

Nothing of it is what a workflow says in words of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from perdure.adapters.forges.body import BODY_CHARS, marker, part_start
from perdure.adapters.forges.markdown import code_span, neutral_line
from perdure.adapters.git.integration import LandedCommit
from perdure.models.backlog.landing import CloseBacklogInput
from perdure.models.backlog.request import ITEM_ID
from perdure.models.ids import delivery_key
from perdure.models.rules.dependencies import OUTCOMES
from perdure.models.rules.landed_checks import unchecked_line

_OUTCOME = re.compile(rf"{'|'.join(OUTCOMES)}|blocked by {ITEM_ID}")

_CELL_CHARS = 120
"""The most characters of an item's id or a commit's subject in the table."""


def backlog_title(work: CloseBacklogInput, landed: Sequence[LandedCommit]) -> str:
    """Return the title: the backlog's name, and how many of its items have landed."""
    items = {commit.item or commit.commit for commit in landed}
    others = {item for item, outcome in _known_outcomes(work).items() if outcome != "decomposed"}
    return f"{work.backlog}: {len(items)} of {len(items | others)} items"


def backlog_body(work: CloseBacklogInput, landed: Sequence[LandedCommit], behind: str, end: str) -> str:
    """Return the text of the backlog's pull request, at most BODY_CHARS: the hidden mark where its part begins, the
    note `behind`, the table of items, which landed items' checks may not hold, and `end`. A table that is too long is
    cut, and a remark says by how much."""
    begin_mark = f"{part_start(delivery_key(work.backlog))}\n"
    unchecked_ids = [item for item in work.unchecked if re.fullmatch(ITEM_ID, item)]
    note = f"\n\n- {unchecked_line(unchecked_ids)}" if unchecked_ids else ""
    table = "\n".join(_table_rows(landed, _known_outcomes(work)))
    remaining_chars = BODY_CHARS - len(begin_mark) - len(behind) - len(note) - len(end) - 100
    if len(table) > remaining_chars:
        kept = table[: table.rfind("\n", 0, remaining_chars)]
        table = f"{kept}\n\n_… cut here, {len(table) - len(kept)} more characters_"
    return begin_mark + behind + table + note + end


def backlog_footer(work: CloseBacklogInput, landed_issues: Set[int], closed_issues: Set[int]) -> str:
    """Return the end of the text: the issues that merging closes, and those of landed items that it leaves open, the
    backlog's name, and the hidden marker by which the pull request is recognised."""
    closing = ", ".join(f"closes #{number}" for number in sorted(closed_issues))
    left_open = ", ".join(f"#{number}" for number in sorted(landed_issues - closed_issues))
    sentences = [f"C{closing[1:]}."] if closing else []
    sentences += [f"Merging this leaves {left_open} open."] if left_open else []
    issues_paragraph = f"\n\n{' '.join(sentences)}" if sentences else ""
    return (
        f"{issues_paragraph}\n\n---\nDelivered by Perdure as backlog "
        f"{code_span(work.backlog)}.\n\n{marker(delivery_key(work.backlog))}\n"
    )


def _known_outcomes(work: CloseBacklogInput) -> dict[str, str]:
    """Return what came of items that did not land, without what is no item's id or none of our labels."""
    return {
        item: outcome
        for item, outcome in work.unlanded.items()
        if re.fullmatch(ITEM_ID, item) and _OUTCOME.fullmatch(outcome)
    }


def _table_rows(landed: Sequence[LandedCommit], unlanded: Mapping[str, str]) -> Iterable[str]:
    """Yield the lines of the table: its head, a row for each landed commit, and one for each other item."""
    yield "| item | what | came of it | commit |"
    yield "|:--|:--|:--|:--|"
    for commit in landed:
        yield f"| {_cell(commit.item)} | {_cell(commit.subject)} | landed | `{commit.commit[:12]}` |"
    for item, outcome in unlanded.items():
        yield f"| {item} | | {outcome} | |"


def _cell(text: str) -> str:
    """Return a text as one neutral cell of a table."""
    return neutral_line(text, _CELL_CHARS).replace("|", "\\|")
