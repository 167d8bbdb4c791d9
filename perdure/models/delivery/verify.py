"""The messages of `perdure verify`: questions to a delivery's host and to where the forge's token is, the facts they
answer with, and the published claims that are checked by them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from perdure.models.base import ContractHash, HistoryModel, PublishedModel
from perdure.models.budget.ledger import Spend, Usage


class ClaimStatus(StrEnum):
    """The verdict on a claim: confirmed, contradicted or unknown. `unknown` is no verdict: the claim could not be
    checked."""

    VERIFIED = "verified"
    CONTRADICTED = "contradicted"
    UNKNOWN = "unknown"


class Claim(PublishedModel):
    """One line of the receipt. `explanation`: how it was checked, what was found instead, or why it could not be
    checked."""

    mark: ClaimStatus
    claim: str
    explanation: Annotated[str, Field(alias="said")]


class VerifyInput(HistoryModel):
    """Ask a delivery's host for its facts; all names come from history.

    tip      the last checkpoint; offset: how many checkpoints and commits to leave out, oldest first
    first    prepare's checkpoint; empty when history does not have it any more
    start    the commit the delivery began on; head: the newest one of its branch
    rebased  the commit that its own are on now, where it was brought onto another one; empty: still `start`
    inherited   the last checkpoint that it has from the delivery it was forked from; empty: it is no fork
    commits  commit → the checkpoint it was made from
    report   SHA-256 of the last test report
    deaths   attempts that were reported as died: `<activity id>/<attempt>`
    """

    delivery: str
    tip: str = ""
    first: str = ""
    offset: int = 0
    start: str = ""
    rebased: str = ""
    head: str = ""
    inherited: str = ""
    commits: dict[str, str] = {}
    report: str = ""
    deaths: tuple[str, ...] = ()


class CheckpointFact(HistoryModel):
    """One checkpoint in the vault. `step` is `prepare` for the first one, which has no turn."""

    commit: str
    delivery: str
    step: str
    attempt: int = 0
    turn: int = 0


class CommitFact(HistoryModel):
    """One commit between `start` and `head`.

    delivery, step  its trailers; `step` as `implement/1`
    checkpoint      whether the one that history names is in the vault
    differs         the first few files that it has otherwise than that checkpoint
    """

    commit: str
    parents: tuple[str, ...] = ()
    delivery: str = ""
    step: str = ""
    checkpoint: bool = False
    differs: tuple[str, ...] = ()


class ExperimentFact(HistoryModel):
    """The result of the experiments in a test report, added up again from its lists.

    line      as a result has it
    promises  how many tests of the base fail on the change
    removes   the request asked for something to be removed
    tampered  the tests passed without the product being right
    """

    line: str
    promises: int = 0
    removes: bool = False
    tampered: bool = False


class ReportFact(HistoryModel):
    """The verdict of the test report in the vault, judged again from its cases, exit codes and experiments."""

    commit: str
    tree: str
    status: str
    passed: int | None = None
    failed: int | None = None
    experiment: ExperimentFact | None = None


class LedgerFact(HistoryModel):
    """Journal and spend log of the host, counted again.

    settled         replies that were paid for, and what they cost together (`spend`)
    kept_usage      usage of the turns on the way to `tip`, `turns` of them
    unpaid          turns on that way of which the spend log has no settled reply
    unknown_deaths  those of `deaths` that the journal does not have
    """

    worker_deaths: int = 0
    turns_redone: int = 0
    replies_paid_twice: int = 0
    replies_cut: int = 0
    settled: int = 0
    spend: Spend = Spend.model_construct()
    kept_usage: Usage = Usage.model_construct()
    turns: int = 0
    unpaid: tuple[str, ...] = ()
    unknown_deaths: tuple[str, ...] = ()


class HostFacts(HistoryModel):
    """The facts from a delivery's host.

    checkpoints  from prepare's to `tip`, and commits from `start` to `head`, a page of them
    next         the offset of the following page; None: there is none
    broken       what is missing below `tip` or on the way to it, in git's words; empty: nothing
    start_differences  the first few files that prepare's checkpoint holds otherwise than a checkout of `start`;
                       None: one of the two is not in the vault
    is_referenced      a ref of the delivery keeps `tip`
    tree         of `head`; empty when the vault does not have it
    """

    checkpoints: tuple[CheckpointFact, ...] = ()
    next: int | None = None
    broken: str = ""
    start_differences: tuple[str, ...] | None = None
    is_referenced: bool = False
    tree: str = ""
    commits: tuple[CommitFact, ...] = ()
    report: ReportFact | None = None
    ledger: LedgerFact = LedgerFact()


class PublishedFactsInput(HistoryModel):
    """Ask what remote and forge have of a delivery's branch. The Contract names the repository."""

    delivery: str
    contract: ContractHash
    branch: str


class PullFact(HistoryModel):
    """One pull request of the branch. `state`: open, merged or closed; `head`: the commit it proposes."""

    number: int
    state: str
    head: str
    ours: bool = False


class PublishedFacts(HistoryModel):
    """The state of remote and forge now.

    tip    where the branch is; None: it does not exist
    forge  a forge was asked for its pull requests
    """

    tip: str | None = None
    forge: bool = False
    pulls: tuple[PullFact, ...] = ()
