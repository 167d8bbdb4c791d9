"""Several attempts at one plan, each a delivery of its own in the same vault; the verdict chooses one of them.

They are begun as children, heard until they end, and the best one's files are taken over: the delivery commits them,
tests them once more as its own, and goes on. What its reviewer has said of them is not paid for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

from perdure.models import fold
from perdure.models.attempts import AttemptTaken, AttemptWaits, TakeAttemptInput
from perdure.models.decisions import Asked
from perdure.models.forking import ForkedFrom
from perdure.models.limits import TASK_QUEUE, USD_LEAST, WORKFLOW_TASK
from perdure.models.phases import Phase, Step
from perdure.models.request import ResumePoint
from perdure.models.result import Attempted, DeliveryResult, Reason, Status
from perdure.models.rules.allowance import budget_usd, paid, used_tokens
from perdure.models.rules.attempts import attempt_of, beginning, summary
from perdure.models.work import Prepared
from workflows.attempts_heard import Builders, Child, ended
from workflows.endings import Stopped, not_delivered
from workflows.stage import Stage
from workflows.steps import Steps
from workflows.telling import tell

THERE_STILL = timedelta(minutes=1)
"""Between looks for the end of the same attempt, which a run before a rewind began: what it makes counts no more."""

_PHASES = (Phase.BUILD, Phase.TEST, Phase.REVIEW)


class Attempts:
    """One delivery's attempts at its plan."""

    def __init__(self, stage: Stage, steps: Steps, tell_backlog: Callable[[str], Awaitable[None]] | None) -> None:
        self._stage, self._steps, self._tell_backlog = stage, steps, tell_backlog
        self._building = ""
        self._asking: dict[int, str] = {}
        if stage.request.forked is not None and stage.request.forked.attempt:
            stage.people.backlog = self._tell_waiting

    @property
    def _prepared(self) -> Prepared:
        assert self._stage.state.prepared is not None
        return self._stage.state.prepared

    async def build(self) -> bool:
        """Have the plan built by all attempts at once and take the best one; False where it is built once, or at first.

        Raises Stopped where none of them made anything.
        """
        if self._prepared.attempts < 2:
            return False
        self._stage.state.planned = self._stage.state.planned or self._stage.state.checkpoint
        if self._prepared.after_red:
            return False
        if not self._stage.state.attempts:
            await self._take(await self._built(range(1, self._prepared.attempts + 1)))
        attempts = self._stage.state.attempts
        if any(one.chosen for one in attempts):
            return True
        if all(one.words.startswith("the agent changed nothing") for one in attempts):
            raise Stopped(Status.NO_CHANGES, None, summary(attempts))
        raise not_delivered(Reason.LIMITS, f"none of {len(attempts)} attempts made a commit: {summary(attempts)}")

    async def after_red(self, words: str) -> bool:
        """The delivery's own change failed, as `words` say: let the other attempts begin, and say whether one of them
        is better. Not once it has stood on what others landed: the plan's checkpoint is from before that."""
        state, prepared = self._stage.state, self._prepared
        if prepared.attempts < 2 or not prepared.after_red or state.attempts or not state.planned or state.landings:
            return False
        own = Attempted(
            number=1,
            delivery=workflow.info().workflow_id,
            branch=prepared.branch,
            head=state.head,
            words=words.partition("\n")[0][:200],
            tests=state.tests.status if state.tests is not None else Attempted(number=1).tests,
            review=state.review_result if state.reviewed == state.head else Attempted(number=1).review,
            cost_usd=state.usage.cost_usd,
        )
        await self._take([own, *await self._built(range(2, prepared.attempts + 1))], own=1)
        return not state.head

    async def commit(self) -> None:
        """Commit the files of the one that was chosen. What its reviewer has said is said of these."""
        state, steps = self._stage.state, self._steps
        number = next(one.number for one in state.attempts if one.chosen)
        await steps.commit(Step.IMPLEMENT, number, state.title or self._prepared.title)
        if state.review:
            state.reviewed = steps.reviewed_before = state.head

    async def _built(self, numbers: Iterable[int]) -> list[Attempted]:
        """Begin these attempts and wait for all of them. Their own time stands for the delivery's."""
        stage, since, numbers = self._stage, workflow.now(), tuple(numbers)
        left = round(budget_usd(stage.state, self._prepared) - paid(stage.state), 6)
        usd = round(left / len(numbers), 6)
        if usd < USD_LEAST:
            raise not_delivered(Reason.BUDGET, f"${left:.2f} are left, too little for {len(numbers)} attempts")
        ids = {number: attempt_of(workflow.info().workflow_id, number) for number in numbers}
        stage.state.begun = (*stage.state.begun, *ids.values())
        self._building = f"for {len(numbers)} attempts at its plan, each judged by itself: perdure list"
        workflow.set_signal_handler("attempt_waits", self._hear)
        self._show()
        builders = Builders(stage.state, exact=workflow.patched("attempts-heard-words"))
        for number, id in ids.items():
            given = stage.state.said
            builders.add(number, await self._begun(number, id, usd, len(numbers)), given)
        children = builders.children
        try:
            await builders.hear()
        except asyncio.CancelledError:
            for child in children.values():
                child.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*children.values(), return_exceptions=True)
            raise
        finally:
            self._building = stage.state.waiting = ""
        stage.people.give_back(workflow.now() - since)
        ends = [await ended(number, ids[number], child) for number, child in children.items()]
        builders.remember(ends)
        return [end.attempted for end in ends]

    async def _begun(self, number: int, id: str, usd: float, sharing: int) -> Child:
        """One attempt. One of the same id that a run before this one began is waited for first."""
        state, prepared = self._stage.state, self._prepared
        tokens = prepared.budget_tokens + state.extra_tokens if prepared.budget_tokens else 0
        changes: dict[str, Any] = {
            "phases": tuple(phase for phase in prepared.phases if phase in _PHASES),
            "checkpoint": state.planned,
            "time_s": max(self._stage.people.time_left().total_seconds(), 1.0),
            "on_failure": "none",
            "attempts": 1,
            "after_red": False,
            "limited": False,
            "landing": "",
        }
        began = beginning(state, prepared.model_copy(update=changes), number, prepared.attempts)
        forked = ForkedFrom(
            delivery=workflow.info().workflow_id,
            at="implement:1",
            checkpoint=state.planned,
            queue=prepared.queue,
            attempt=number,
        )
        asked: dict[str, Any] = {
            "phases": changes["phases"],
            "gates": (),
            "push": False,
            "proof": None,
            "attempts": None,
            "after_red": None,
            "landing": None,
            "budget_usd": usd,
            "tokens": max((tokens - used_tokens(state.usage, state.spend)) // sharing, 1) if tokens else None,
            "resume": ResumePoint(run_id="", state=began.model_dump(mode="json", exclude_defaults=True)),
            "forked": forked,
        }
        request = self._stage.request.model_copy(update=asked)
        while True:
            try:
                return await workflow.start_child_workflow(
                    "Delivery",
                    request.model_dump(mode="json", exclude_defaults=True),
                    id=id,
                    task_queue=TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK,
                    parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    result_type=DeliveryResult,
                    static_summary=f"attempt {number} of {prepared.attempts} at the plan",
                )
            except WorkflowAlreadyStartedError:
                await workflow.sleep(THERE_STILL, summary="the same attempt, begun before, is not over yet")

    async def _hear(self, said: AttemptWaits) -> None:
        """An attempt waits for a person, who sees it here, and at the backlog, and decides it there."""
        self._asking.pop(said.number, None)
        if said.words:
            self._asking[said.number] = said.words
        self._show()
        if self._tell_backlog is not None:
            await self._tell_backlog("; ".join(self._waiting()))

    def _show(self) -> None:
        if self._building:
            self._stage.state.waiting = "; ".join([self._building, *self._waiting()])[:500]
            self._stage.refresh()

    def _waiting(self) -> list[str]:
        id = workflow.info().workflow_id
        return [f"{attempt_of(id, number)} waits: {words}" for number, words in sorted(self._asking.items())]

    async def _tell_waiting(self, asked: Asked | None) -> None:
        """Tell the delivery whose plan it is that this attempt waits for a person; None: it goes on."""
        forked = self._stage.request.forked
        assert forked is not None
        said = AttemptWaits(number=forked.attempt, words=asked.words[:200] if asked is not None else "")
        await tell(workflow.get_external_workflow_handle(forked.delivery), "attempt_waits", said)

    async def _take(self, attempts: list[Attempted], own: int = 0) -> None:
        """The best one's files are this delivery's from here on."""
        state = self._stage.state
        work = TakeAttemptInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            checkpoint=state.checkpoint,
            base=self._prepared.head,
            attempts=tuple(attempts),
            own=own,
        )
        fold.attempt_taken(state, await self._stage.once("take_attempt", work, AttemptTaken))
