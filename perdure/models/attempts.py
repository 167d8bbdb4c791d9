"""Attempts: one plan built several times, each judged by itself. Chosen among in perdure.models.rules.attempts."""

from __future__ import annotations

from perdure.models.base import ContractHash, Recorded
from perdure.models.ledger import Spend, Usage
from perdure.models.result import Attempted


class TakeAttemptInput(Recorded):
    """Measure the attempts, choose among them, and go on from what the chosen one made.

    base  the commit that all of them built on; own: the number of the delivery's own, 0 where it has made none
    """

    delivery: str
    contract: ContractHash
    checkpoint: str
    base: str
    attempts: tuple[Attempted, ...]
    own: int = 0
    attempt: int = 1


class AttemptWaits(Recorded):
    """Signal `attempt_waits`, attempt to delivery: it waits for a person, with these words; empty: it goes on."""

    number: int
    words: str = ""


class AttemptTaken(Recorded):
    """`checkpoint`: where the delivery goes on, with the chosen one's files; its own where that is the best, or nobody
    has made anything. attempts: measured, the chosen one marked; spend: of the delivery, theirs in it; usage: of the
    others alone."""

    checkpoint: str
    attempts: tuple[Attempted, ...]
    spend: Spend = Spend()
    usage: Usage = Usage()
    summary: str = ""
