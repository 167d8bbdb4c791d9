"""A fork: a sibling delivery that goes on from a turn of another one."""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import Recorded
from perdure.models.limits import NAME_CHARS


class ForkedFrom(Recorded):
    """The turn of another delivery before which a sibling begins, with that turn's files and conversation.

    delivery    the other one's workflow id; at: its turn, `implement:4`; checkpoint: what that turn began with
    queue       of the host that has it
    turns, usd  taken and paid for by the other delivery before: its cost, never the sibling's; None: not known
    """

    delivery: str = Field(min_length=1, max_length=NAME_CHARS)
    at: str = Field(max_length=100)
    checkpoint: str = Field(pattern=r"^[0-9a-f]{40}$")
    queue: str = Field(min_length=1, max_length=NAME_CHARS)
    turns: int = 0
    usd: float | None = None
