"""A turn taken again: by the delivery itself after a rewind, or by a fork, a new delivery that goes on from there."""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import ContractHash, HistoryModel
from perdure.models.limits import NAME_CHARS
from perdure.models.phases import Step


class ForkedFrom(HistoryModel):
    """The turn of another delivery before which a sibling begins, with that turn's files and conversation.

    delivery    the other one's workflow id; at: its turn, `implement:4`; checkpoint: what that turn began with
    queue       of the host that has it; head: the newest commit by then, empty: there was none
    attempt     its number among several at one plan, which that delivery begins itself and chooses from; 0: it is none
    turns, usd  taken and paid for by the other delivery before: its cost, never the sibling's; None: not known
    """

    delivery: str = Field(min_length=1, max_length=NAME_CHARS)
    at: str = Field(max_length=100)
    checkpoint: str = Field(pattern=r"^[0-9a-f]{40}$")
    queue: str = Field(min_length=1, max_length=NAME_CHARS)
    head: str = ""
    attempt: int = 0
    turns: int = 0
    usd: float | None = None


class RewindTargetInput(HistoryModel):
    """A turn to be taken again, by a rewind or a fork, for the host that has it.

    contract, checkpoint   of that turn; model, agent: for all steps from it on, empty: as they are
    keep                   a contract with that model and agent is stored for this delivery
    """

    delivery: str
    contract: ContractHash
    step: Step
    turn: int
    checkpoint: str
    model: str = Field(default="", max_length=NAME_CHARS)
    agent: str = Field(default="", max_length=NAME_CHARS)
    keep: bool = False


class RewindTargetResult(HistoryModel):
    """The contract from that turn on, and the model of each step under it."""

    contract: ContractHash
    models: dict[str, str] = {}
