"""The text of one pull request that several of ours write to: each has a part between two marks, people the rest."""

from __future__ import annotations

import re
from dataclasses import replace

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import BODY_CHARS, OURS, marker
from perdure.models.limits import FORGE_TEXT_CHARS

_END = re.compile(rf"{re.escape(OURS)}([^\n]*?) -->\n?")

_CUT = "_… cut here: there is no room for more beside the others_"


def begins(delivery: str) -> str:
    """The first line of a part. What stands between the mark of another part and this line is somebody else's."""
    return f"<!-- perdure:begins={delivery} -->"


def beside_others(proposal: Proposal, title: str, there: str) -> Proposal:
    """The proposal as a pull request with the text `there` takes it: its part put in, or in place of the one that it
    had, and nothing else touched. The title is of whoever has the first part.

    As it is where the text is its own alone and does not say where its part begins. What there is no room for is left
    out of its part, never its end (Proposal.end).
    """
    text = there.replace("\r\n", "\n")
    owners = [found[1] for found in _END.finditer(text)]
    if set(owners) <= {proposal.delivery} and begins(proposal.delivery) not in text:
        return proposal
    at, to = _place(text, proposal.delivery)
    before, after = text[:at], text[to:]
    before += "\n" * (2 - _ends_of_line(before)) if before else ""
    part = _within(proposal, len(before) + len(after) + 1) + "\n"
    first = proposal.delivery in owners[:1]
    return replace(proposal, title=proposal.title if first else title, body=before + part + after)


def _place(text: str, delivery: str) -> tuple[int, int]:
    """From where to where its part goes; where it has none, nothing, right after the last one."""
    last = 0
    for found in _END.finditer(text):
        if found[1] == delivery:
            begun = text.find(begins(delivery), last, found.start())
            return (begun if begun >= 0 else last), found.end()
        last = found.end()
    return last, last


def _ends_of_line(text: str) -> int:
    return min(2, len(text) - len(text.rstrip("\n")))


def _within(proposal: Proposal, others: int) -> str:
    """Its part beside so many characters: whole lines of it, and its end as long as a forge takes that."""
    text, mark = proposal.body.strip(), marker(proposal.delivery)
    if len(text) + others <= BODY_CHARS:
        return text
    end = next(
        (end for end in (proposal.end.strip(), mark) if mark in end and len(end) + others < FORGE_TEXT_CHARS), mark
    )
    kept = text.removesuffix(end)[: max(0, BODY_CHARS - others - len(_CUT) - len(end) - 4)]
    kept = kept[: kept.rfind("\n") + 1].strip()
    return f"{kept}\n\n{_CUT}\n\n{end}" if kept else end
