"""Attempts: one plan built several times, each judged by itself. The choice among them:
perdure.models.rules.attempts."""

from __future__ import annotations

from perdure.models.base import ContractHash, HistoryModel
from perdure.models.ledger import Spend, Usage
from perdure.models.result import AttemptResult


class TakeAttemptInput(HistoryModel):
    """Measure the attempts, choose the best one, and let the delivery go on from its files.

    base        the commit that all of them built on
    own_number  the number of the delivery's own attempt; 0: it made none
    """

    delivery: str
    contract: ContractHash
    checkpoint: str
    base: str
    attempts: tuple[AttemptResult, ...]
    own_number: int = 0
    attempt: int = 1


class AttemptWaits(HistoryModel):
    """Signal `attempt_waits`, attempt to delivery: it waits for a person, or no longer does.

    number       of the attempt
    waiting_for  what it waits for, in one line; empty: it waits no longer
    """

    number: int
    waiting_for: str = ""


class TakeAttemptResult(HistoryModel):
    """The attempts after they were measured, and where the delivery goes on.

    checkpoint  with the files of the chosen attempt; the delivery's own where that is the best, or none has made
    anything
    attempts    measured, the chosen one marked
    spend       of the delivery, with that of the attempts
    usage       of the other attempts alone
    """

    checkpoint: str
    attempts: tuple[AttemptResult, ...]
    spend: Spend = Spend()
    usage: Usage = Usage()
    summary: str = ""
