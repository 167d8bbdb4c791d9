"""A turn, as the workflow sees it: which checkpoint goes in, which comes out."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from perdure.models.base import ContractHash, Recorded
from perdure.models.decisions import Question, Said
from perdure.models.ledger import Room, Spend, Usage
from perdure.models.phases import Step

SUMMARY_LIMIT = 100
"""Characters; a turn's summary stands in history, the Web UI and `perdure logs`."""


TRY_FOUND = ("report", "review", "findings")
"""Artifacts of a fix's materials that tell what it was to mend."""


class Try(Recorded):
    """A fix that was made: what it was begun with (artifacts by name, as TurnInput has them), and the commits before
    and after it, equal where it changed nothing."""

    step: Step
    attempt: int
    before: str
    after: str
    found: dict[str, str] = {}


class TurnInput(Recorded):
    """Names everything a turn needs and holds none of it.

    delivery    the delivery's key (perdure.models.ids.delivery_key)
    step        which agentic step; attempt counts its loop from 1, turn counts from 1 within the attempt
    checkpoint  commit in the vault the turn starts from
    contract    artifact of the delivery's Contract (perdure.models.contract)
    materials   artifacts the opening message is made from, by name: plan, report, review, base, head (turn 1 only)
    said        words from people that are new since the last turn
    told        words that earlier conversations of the delivery have read (turn 1 only)
    began       the end of the id its run was started with: another one than the run's own tells a rewind
    again       how often a person let it be tried again after it had been cut off three times
    room        what it may pay for beside its own reply; None in inputs of releases that did not say so
    effort      another one than the step's settings say; empty: theirs
    sample      tells the replies a retry goes on with from those it shall not get once more; empty: the first

    Never the id of the run it belongs to: a turn pending at a reset is dispatched again with its old input (H18).
    """

    delivery: str
    step: Step
    attempt: int
    turn: int
    checkpoint: str
    contract: ContractHash
    materials: dict[str, str] = {}
    said: tuple[Said, ...] = ()
    told: tuple[Said, ...] = ()
    began: str = ""
    sample: str = ""
    again: int = 0
    room: Room | None = None
    effort: str = ""


class Ending(StrEnum):
    """The way an agentic step ended."""

    DONE = "done"
    REFUSED = "refused"
    LOOPING = "looping"
    INVALID = "invalid"
    CONTEXT = "context"
    FAILED = "failed"


class Outcome(Recorded):
    """A finished step's typed result.

    summary   one line for people
    artifact  the whole result (plan, review) as an artifact, when the step produces one
    data      the few small facts the workflow decides on: kind for classify; title, tasks, files for plan;
              counts by severity (blocker, tech_debt, skippable) for review
    """

    ending: Ending = Ending.DONE
    summary: str = ""
    artifact: str = ""
    data: dict[str, Any] = {}


class TurnResult(Recorded):
    """The product of a turn: a checkpoint, what it cost, and the step's outcome when this was its last turn.

    notes       ids of the words it has read
    question    what the agent asks a person; its next turn gets the answer
    assumption  what it assumed because nobody is to be asked
    model       the second one, from the turn on that went over to it; empty: the first
    waited_s    seconds for which the model's API let nothing through for anybody with the key; no checkpoint has it
    """

    checkpoint: str
    summary: str
    usage: Usage = Usage()
    spend: Spend = Spend()
    notes: tuple[str, ...] = ()
    outcome: Outcome | None = None
    question: Question | None = None
    assumption: str = ""
    model: str = ""
    adopted: bool = False
    waited_s: float = 0.0


class Page(Recorded):
    """A piece of a log, a diff or a table, at most 64 KiB; `next` is the offset to go on from, None at the end."""

    text: str
    next: int | None = None


TURN_BEGINS = "── "
"""Of the line that begins a turn in `logs`; all that was said and done in it is indented."""


class ReadInput(Recorded):
    """Read-only: `what` is `turns`, `turns_json`, `logs`, `diff`, or `artifact` or `artifact64` (base64, for what is no
    text) with its SHA-256 in `checkpoint`."""

    delivery: str
    what: str
    offset: int = Field(default=0, ge=0)
    checkpoint: str = ""
