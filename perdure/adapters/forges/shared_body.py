"""The text of one pull request that several deliveries of ours write to: each has a part between two markers, and what
stands outside is people's."""

from __future__ import annotations

import re
from dataclasses import replace

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import BODY_CHARS, MARKER_START, marker
from perdure.models.limits import FORGE_TEXT_CHARS

_PART_END = re.compile(rf"{re.escape(MARKER_START)}([^\n]*?) -->\n?")

_CUT_NOTE = "_… cut here: there is no room for more beside the others_"


def part_start(delivery: str) -> str:
    """Return the hidden first line of a delivery's part. What stands between the end of another part and this line is
    somebody else's."""
    return f"<!-- perdure:begins={delivery} -->"


def merge_part(proposal: Proposal, title: str, existing_body: str) -> Proposal:
    """Return the proposal with the text that the shared pull request is to have: its part added to `existing_body`, or
    in place of its earlier one, and nothing else touched.

    `title` is the pull request's; it stays unless the first part is this delivery's. The proposal is returned as it is
    when the existing text is its own alone and has no mark of where its part begins. What there is no room for is left
    out of its part, never its end (Proposal.body_end).
    """
    text = existing_body.replace("\r\n", "\n")
    owners = [match[1] for match in _PART_END.finditer(text)]
    if set(owners) <= {proposal.delivery} and part_start(proposal.delivery) not in text:
        return proposal
    start, end = _part_range(text, proposal.delivery)
    before, after = text[:start], text[end:]
    before += "\n" * (2 - _trailing_newlines(before)) if before else ""
    part = _fit_part(proposal, len(before) + len(after) + 1) + "\n"
    is_first = proposal.delivery in owners[:1]
    return replace(proposal, title=proposal.title if is_first else title, body=before + part + after)


def _part_range(text: str, delivery: str) -> tuple[int, int]:
    """Return the start and end of a delivery's part in the text; where it has none, twice the end of the last part."""
    previous_end = 0
    for match in _PART_END.finditer(text):
        if match[1] == delivery:
            start = text.find(part_start(delivery), previous_end, match.start())
            return (start if start >= 0 else previous_end), match.end()
        previous_end = match.end()
    return previous_end, previous_end


def _trailing_newlines(text: str) -> int:
    """Count the newlines at the end of a text, at most two."""
    return min(2, len(text) - len(text.rstrip("\n")))


def _fit_part(proposal: Proposal, other_chars: int) -> str:
    """Return the proposal's text cut to whole lines so that it fits beside `other_chars` characters of others, with a
    note where it was cut.

    Its end always stays: `body_end` as long as that fits into what a forge takes, else the marker alone.
    """
    text, mark = proposal.body.strip(), marker(proposal.delivery)
    if len(text) + other_chars <= BODY_CHARS:
        return text
    end = next(
        (end for end in (proposal.body_end.strip(), mark) if mark in end and len(end) + other_chars < FORGE_TEXT_CHARS),
        mark,
    )
    beginning = text.removesuffix(end)[: max(0, BODY_CHARS - other_chars - len(_CUT_NOTE) - len(end) - 4)]
    beginning = beginning[: beginning.rfind("\n") + 1].strip()
    return f"{beginning}\n\n{_CUT_NOTE}\n\n{end}" if beginning else end
