"""Models of a turn, as the workflow sees it: which checkpoint goes in, which comes out. Also the contract, the fixed
part of a delivery, which is stored once as an artifact and named by hash in every turn, and pages of text read from the
vault."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from perdure.models.backlog.request import LandingPlace
from perdure.models.base import ContractHash, HistoryModel
from perdure.models.budget.ledger import Spend, SpendingLimits, Usage
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import Question, UserMessage
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.issue import ForgeIssue
from perdure.models.phases import Step

SUMMARY_LIMIT = 100
"""Characters of a turn's summary, which stands in history, the Web UI and `perdure logs`."""


FIX_CAUSES = ("report", "review", "findings")
"""Names of a fix's materials that say what it has to fix."""


class FixAttempt(HistoryModel):
    """A fix that was made.

    before, after  the commits before and after it, equal where it changed nothing
    causes         artifacts that say what it had to fix, by name as in TurnInput.materials
    """

    step: Step
    attempt: int
    before: str
    after: str
    causes: dict[str, str] = {}


class TurnInput(HistoryModel):
    """The input of one turn: it names everything the turn needs and holds none of it.

    delivery    the delivery's key (perdure.models.ids.delivery_key)
    step        which agentic step; attempt counts its loop from 1, turn counts from 1 within the attempt
    checkpoint  commit in the vault the turn starts from
    contract    artifact of the delivery's Contract
    materials   artifacts the opening message is made from, by name: plan, report, review, base, head (turn 1 only)
    messages    messages from people that are new since the last turn
    delivered_messages   messages that earlier conversations of the delivery have read (turn 1 only)
    started_run_suffix   the end of the id its run was started with: where the run has another id, it was rewound
    approved_retries     how often a person let it be tried again after it had been cut off three times
    spending_limits      what it may pay for beside its own reply; None in inputs of releases that did not say so
    effort      another one than the step's settings say; empty: theirs
    sample      tells the replies a retry goes on with from those it shall not get once more; empty: the first

    Never the id of the run it belongs to: a turn pending at a reset is dispatched again with its old input.
    """

    delivery: str
    step: Step
    attempt: int
    turn: int
    checkpoint: str
    contract: ContractHash
    materials: dict[str, str] = {}
    messages: tuple[UserMessage, ...] = ()
    delivered_messages: tuple[UserMessage, ...] = ()
    started_run_suffix: str = ""
    sample: str = ""
    approved_retries: int = 0
    spending_limits: SpendingLimits | None = None
    effort: str = ""


class Ending(StrEnum):
    """The way an agentic step ended."""

    DONE = "done"
    REFUSED = "refused"
    LOOPING = "looping"
    INVALID = "invalid"
    CONTEXT = "context"
    FAILED = "failed"


class Outcome(HistoryModel):
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


class TurnResult(HistoryModel):
    """The product of a turn: a checkpoint, what it cost, and the step's outcome when this was its last turn.

    notes       ids of the messages it has read
    question    what the agent asks a person; its next turn gets the answer
    assumption  what it assumed because nobody is to be asked
    model       its second model, from the turn on that changed over to it; empty: the first
    adopted     the turn had been made before: this is its recorded result
    waited_s    seconds for which the model's API refused everybody with the key; no checkpoint has it
    """

    checkpoint: str
    summary: str
    usage: Usage = Usage.model_construct()
    spend: Spend = Spend.model_construct()
    notes: tuple[str, ...] = ()
    outcome: Outcome | None = None
    question: Question | None = None
    assumption: str = ""
    model: str = ""
    adopted: bool = False
    waited_s: float = 0.0


PAGE_CHARS = 16_000
"""Characters of a text in one page where nothing else is asked for: at most 64 KiB, whatever the characters."""

PAGE_CHARS_MOST = 200_000
"""Most characters of a text in one page: in JSON at most 1.2 MB, whatever the characters; a server takes 2 MB."""


class TextPage(HistoryModel):
    """A piece of a log, a diff or a table, at most 64 KiB where no more is asked for.

    `next` is the offset to go on from, None at the end.
    """

    text: str
    next: int | None = None


TURN_BEGINS = "── "
"""Beginning of the line that begins a turn in `logs`; everything else of that turn is indented."""


class VaultReadInput(HistoryModel):
    """Ask for a page of text from the vault; it changes nothing.

    what        `turns`, `turns_json`, `conversation`, `logs`, `diff`, `artifact`, or `artifact64` (base64, for what is
                no text)
    checkpoint  the last checkpoint, or the SHA-256 of an artifact
    chars       the most characters of the page, where it is a text; a worker of an older release returns fewer
    """

    delivery: str
    what: str
    offset: int = Field(default=0, ge=0)
    checkpoint: str = ""
    chars: int = Field(default=PAGE_CHARS, ge=1, le=PAGE_CHARS_MOST)


class Note(HistoryModel):
    """A file of the target repository that tells agents about it: data, never instructions to the engine."""

    path: str
    text: str


class Contract(HistoryModel):
    """The terms a delivery runs under; made by `prepare`, never changed afterwards.

    request    what is wanted, in the submitter's words; empty when the issue says it all
    issue      the issue it came from, as it was when the delivery began
    config     the effective configuration: flags, request, environment, repository, user and defaults merged
    head       the commit the delivery builds on: base_sha, or the tip of an existing branch
    branches   by kind of change, the branch it will have once the kind is known; empty where the name does not depend
    on it
    existing   whether `branch` existed before, so that other people use it too
    source     the submitter's checkout, for `[setup] copy`
    origins    where each effective setting came from, by dotted name
    grade      the sandbox grade this delivery runs in
    prompts    the repository's own prompts (`.perdure/prompts/<step>.md` of the base branch), by step
    landing    the integration branch that it lands on, as an item of a backlog; None: it is no item
    forked_from     the deliveries that it was forked from, the oldest first: commits of theirs may be among its own
    first_base_sha  the base's commit it began on, where it stands on a later one since; empty: base_sha
    sealed          what is published of it must be a sealed fact; False: it began before facts were
    """

    delivery: str
    repository: str
    request: str
    base: str
    base_sha: str
    branch: str
    config: RepositoryConfig
    head: str = ""
    branches: dict[str, str] = {}
    existing: bool = False
    source: str = ""
    notes: tuple[Note, ...] = ()
    origins: dict[str, str] = {}
    grade: str = "full"
    allow_test_changes: bool = False
    prompts: dict[str, str] = {}
    issue: ForgeIssue | None = None
    landing: LandingPlace | None = None
    first_base_sha: str = ""
    forked_from: tuple[str, ...] = ()
    sealed: bool = False

    @property
    def parent_delivery(self) -> ParentDelivery | None:
        """Return the delivery of whose plan this is a task; None: it is no task."""
        return self.landing.within if self.landing is not None else None

    @property
    def is_task(self) -> bool:
        """Return whether this is a task of another delivery's plan, so that the verdict is about all tasks together."""
        return self.parent_delivery is not None
