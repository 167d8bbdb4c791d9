"""The agentic steps: each a sequence of activities of its name, one a turn.

Effect: one checkpoint. Looks first: the checkpoint of an earlier attempt is adopted. Key: run, step, attempt, turn.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.transaction import take_turn
from perdure.models.phases import Step
from perdure.models.turn import TurnInput, TurnResult


class Turns:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name=Step.CLASSIFY)
    async def classify(self, work: TurnInput) -> TurnResult:
        """Bug, feature or chore."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.PLAN)
    async def plan(self, work: TurnInput) -> TurnResult:
        """Read the repository, answer with a Plan."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.IMPLEMENT)
    async def implement(self, work: TurnInput) -> TurnResult:
        """Change the worktree."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.DOCUMENT)
    async def document(self, work: TurnInput) -> TurnResult:
        """Bring the documentation up to date with the change."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.FIX_TESTS)
    async def fix_tests(self, work: TurnInput) -> TurnResult:
        """Change the worktree until the last report's failures are gone."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.REVIEW)
    async def review(self, work: TurnInput) -> TurnResult:
        """Read the change, answer with a Review."""
        return await take_turn(self._host, work)

    @activity.defn(name=Step.FIX_REVIEW)
    async def fix_review(self, work: TurnInput) -> TurnResult:
        """Change the worktree until the review's blockers are gone."""
        return await take_turn(self._host, work)
