"""The fixed part of a delivery: stored once as an artifact, named by hash in every turn."""

from __future__ import annotations

from perdure.models.backlog import LandingPlace
from perdure.models.base import HistoryModel
from perdure.models.config import RepositoryConfig
from perdure.models.issue import ForgeIssue


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

    @property
    def is_task(self) -> bool:
        """Return whether this is a task of another delivery's plan, so that the verdict is about all tasks together."""
        return self.landing is not None and self.landing.within is not None
