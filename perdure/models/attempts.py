"""Attempts: one plan built several times, each judged by itself. Chosen among in perdure.models.rules.attempts."""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import Recorded
from perdure.models.result import ReviewResult, ReviewStatus, TestsStatus


class Attempted(Recorded):
    """The end of one attempt, the same whatever its worker survived on the way.

    number      from 1, in the order they were begun; branch: where its commits stay; head: the newest of them, empty
                where it has none
    tests       the verdict on exactly `head`; review: of exactly `head`, the engine's own findings in it
    lines       added and removed from base to head: the change that was reviewed
    cost_usd    of its own replies, not of the plan before it; None: a price is not known
    """

    number: int = Field(ge=1)
    branch: str = ""
    head: str = ""
    tests: TestsStatus = TestsStatus.SKIPPED
    review: ReviewResult = ReviewResult()
    lines: int = Field(default=0, ge=0)
    cost_usd: float | None = 0.0

    @property
    def sound(self) -> bool:
        """It may ship: a commit, tested green, reviewed, and nothing found that blocks."""
        reviewed = self.review.status is ReviewStatus.CLEAN and not self.review.blockers
        return bool(self.head) and self.tests is TestsStatus.GREEN and reviewed
