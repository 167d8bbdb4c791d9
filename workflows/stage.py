"""The carrying out of one step: scheduled, timed, recorded and shown. Nothing here decides what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType, ActivityHandle

from perdure.models import fold
from perdure.models.decisions import Said
from perdure.models.ids import delivery_key, short_run
from perdure.models.ledger import Room
from perdure.models.limits import (
    CLOSE_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    RETRY_PAUSE,
    SAID_BYTES_A_TURN,
    TASK_QUEUE,
)
from perdure.models.phases import Phase, Step
from perdure.models.request import DeliveryRequest
from perdure.models.result import Reason, StepRecord
from perdure.models.rules.allowance import Limit, room
from perdure.models.state import DeliveryState
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.visibility import CHANGE, WAITING
from perdure.models.webui import captions, columns
from perdure.models.webui.details import details
from perdure.models.work import Asking, Closed, CloseInput, PrepareInput, TestInput
from workflows import endings
from workflows.allowance import Allowance
from workflows.attributes import set_attributes
from workflows.endings import ENDINGS, Stopped, asking, cut_off, interpret, not_delivered, out_of_time, reached
from workflows.notification import DeliveryNotices
from workflows.people import People

T = TypeVar("T")

ENDLESS = RetryPolicy(initial_interval=RETRY_PAUSE, backoff_coefficient=1.0, maximum_attempts=0)
"""Deaths are not failures: attempts are bounded by time and by the journal's count, never by number (holes.md H6)."""


class Stage:
    """Carries out steps for one delivery and keeps its state up to date."""

    def __init__(self, delivery: str, request: DeliveryRequest, state: DeliveryState) -> None:
        self.delivery, self.request, self.state = delivery, request, state
        self.notices = DeliveryNotices(delivery, request, state, self.show)
        self.people = People(state, self.show, self.notices.tell)
        self.allowance = Allowance(delivery, state, self.people.waits, self.notices.tell)
        self._waiting = ("", workflow.now())

    async def once(self, step: str, work: Any, result: type[T], *, attempt: int = 1, queue: str | None = None) -> T:
        """Carry out a step that is one activity, within the time that is left."""
        caption = captions.of_step(step, attempt, self.state, getattr(work, "subject", ""))
        return await self.recorded(step, attempt, lambda: self._carried_out(step, work, result, caption, queue))

    async def aside(self, activity: str, work: Any, result: type[T], summary: str) -> T:
        """A piece of work too small to be a step of its own: it has no record, and takes milliseconds."""
        await self.people.ready()
        return await self._carried_out(activity, work, result, summary)

    async def _carried_out(
        self, activity: str, work: Any, result: type[T], summary: str, queue: str | None = None
    ) -> T:
        """Carry it out: again, from where it stands, where its time was over and a person gave more, or it was cut off
        too often and a person lets it be tried again.

        Raises what the activity's failure means for the delivery.
        """
        while True:
            try:
                doing: ActivityHandle[T] = workflow.start_activity(
                    activity,
                    work,
                    result_type=result,
                    task_queue=queue or self.queue,
                    schedule_to_close_timeout=self.people.time_left(),
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=ENDLESS,
                    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    summary=summary,
                )
                return await endings.finished(doing)
            except ActivityError as error:
                if isinstance(work, TurnInput) and (limit := reached(error)) is not None:
                    await self.allowance.refused(limit)
                    await self.people.more_money(Limit(limit.limit), limit.words)
                    work = work.model_copy(update={"room": await self._room()})
                    continue
                if out_of_time(error) and await self.people.more_time():
                    continue
                again = isinstance(work, PrepareInput | TurnInput | TestInput) and cut_off(error)
                if again and await self.people.goes_on(again, self._asking(work, error)):
                    work = work.model_copy(update={"again": work.again + 1})
                    continue
                raise interpret(error) from error

    def _asking(self, work: Any, error: ActivityError) -> Asking:
        """The people who decide about work that was cut off again and again."""
        if isinstance(work, PrepareInput):
            told = asking(error)
            self.notices.unprepared = told.notifies
            return told
        prepared = self.state.prepared
        return prepared.asking if prepared is not None else Asking()

    async def recorded(self, step: str, attempt: int, carry_out: Callable[[], Awaitable[T]]) -> T:
        """Keep the record of a step while it is carried out. Its result's `summary`, when it has one, goes there."""
        await self.people.ready()
        with self._record_kept(step, attempt):
            done = await carry_out()
        self._end("done", summary=getattr(done, "summary", ""))
        return done

    async def turns(self, step: Step, attempt: int, materials: dict[str, str], effort: str = "") -> Outcome:
        """Carry out an agentic step, one activity a turn, to its outcome; resume where an earlier run was cut off, also
        behind the last turn. `effort`: another one than its settings say."""
        if (ended := self.state.outcome_of(step, attempt)) is not None:
            return ended
        with self._record_kept(step, attempt):
            outcome, model = await self._outcome(step, attempt, materials, effort)
        if outcome.ending is Ending.DONE:
            self.state.end(step, outcome)
            unlike = (f"effort {effort}" if effort else "", f"with {model}" if model else "")
            self._end("done", summary=" · ".join(words for words in (*unlike, outcome.summary) if words))
            return outcome
        self._end("failed", summary=outcome.summary)
        self.state.at = None
        self.state.sample = short_run(workflow.info().run_id)  # these replies end it: a retry has to ask for others
        reason, words = ENDINGS[outcome.ending]
        told = outcome.summary if outcome.summary.startswith(words) else f"{words}: {outcome.summary}"
        raise not_delivered(reason, told if outcome.summary else words)

    async def _outcome(self, step: Step, attempt: int, materials: dict[str, str], effort: str) -> tuple[Outcome, str]:
        """The way the step ended, and the second model where it has gone over to one."""
        state, last = self.state, ""
        assert state.prepared is not None
        taken = state.at[2] if state.at and state.at[:2] == (step, attempt) else 0
        for turn in range(taken + 1, taken + 1 + (limit := state.prepared.turns_per_step)):
            await self.people.answered()
            left = await self._room()
            prepared = state.prepared  # a rewind may have brought other terms meanwhile
            work = TurnInput(
                delivery=self.delivery,
                step=step,
                attempt=attempt,
                turn=turn,
                checkpoint=state.checkpoint,
                contract=prepared.contract,
                materials=materials if turn == 1 else {},
                said=self._next_words(),
                told=state.told if turn == 1 else (),
                began=short_run(workflow.info().original_execution_run_id),
                sample=state.sample,
                room=left if prepared.proxied or prepared.treasury else None,
                effort=effort,
            )
            model = prepared.models.get(step, "") + (f", effort {effort}" if effort else "")
            caption = captions.of_turn(attempt, turn, last, model)
            result = await self._carried_out(step, work, TurnResult, caption)
            last = result.summary
            self.people.give_back(timedelta(seconds=result.waited_s))
            self._book(step, attempt, turn, result)
            self.allowance.covered()
            if result.outcome is not None:
                return result.outcome, result.model
        raise not_delivered(Reason.LIMITS, f"{step} did not end within {limit} turns")

    async def _room(self) -> Room:
        """The room of the next turn, once it may begin."""
        await self.people.ready(paying=True)
        while await self.allowance.waited():
            await self.people.ready(paying=True)
        assert self.state.prepared is not None
        return room(self.state, self.state.prepared)

    def _next_words(self) -> tuple[Said, ...]:
        """Return what people said and no turn has read, the oldest first, as much as one turn takes."""
        room, taken = SAID_BYTES_A_TURN, list[Said]()
        for said in self.state.said:
            room -= len(said.text.encode()) + len(said.about.encode())
            if taken and room < 0:
                break
            taken.append(said)
        return tuple(taken)

    @contextmanager
    def _record_kept(self, step: str, attempt: int) -> Iterator[None]:
        """A record of the step: of its beginning, and of its end where it does not end well."""
        self._begin(step, attempt)
        try:
            yield
        except (ActivityError, ApplicationError, Stopped, asyncio.CancelledError) as error:
            meaning = interpret(error) if isinstance(error, ActivityError) else error
            words = str(meaning).partition("\n")[0][:100] if isinstance(meaning, Stopped) else ""
            self._end("cancelled" if isinstance(meaning, asyncio.CancelledError) else "failed", summary=words)
            raise meaning from error.__cause__ if meaning is error else error

    def _book(self, step: Step, attempt: int, turn: int, result: TurnResult) -> None:
        fold.turn(self.state, step, attempt, turn, result)
        record = self.state.steps[-1]
        cost = result.usage.cost_usd
        known = record.cost_usd is not None and cost is not None
        self._record(turns=record.turns + 1, cost_usd=round((record.cost_usd or 0) + (cost or 0), 6) if known else None)

    async def close(self, *, keep: bool) -> Closed:
        """Give back worktree and ports, and write the receipt; a failure to tidy up never fails a delivery.

        A cancellation that comes now finds everything done: it must not cost the receipt.
        """
        closing: ActivityHandle[Closed] = workflow.start_activity(
            "close",
            CloseInput(delivery=self.delivery, keep=keep, tasks=tuple(map(delivery_key, self.state.begun))),
            result_type=Closed,
            task_queue=self.queue,
            schedule_to_close_timeout=CLOSE_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=ENDLESS,
            summary="tidy up, write the receipt",
        )
        try:
            with suppress(asyncio.CancelledError):
                await workflow.wait([closing])
            return await closing
        except ActivityError as error:
            state, words = self.state, f"could not tidy up: {error.cause}"
            return Closed(message=words, receipt=state.receipt, spend=state.spend)

    def left_behind(self) -> DeliveryState:
        """The state as another run begins from it. One that was rewound says so: a retry goes on with its replies."""
        info = workflow.info()
        if info.run_id != info.original_execution_run_id:
            self.state.sample = short_run(info.run_id)
        return self.state

    @property
    def queue(self) -> str:
        return self.state.prepared.queue if self.state.prepared else TASK_QUEUE

    def enter(self, phase: Phase | None) -> None:
        """A phase begins: seen in the list, the filters and the details of the Web UI."""
        self.state.phase = phase
        self.show()

    def refresh(self) -> None:
        """Bring the details up to date, which costs no event."""
        workflow.set_current_details(details(self.state, self.request, self.delivery, workflow.info().workflow_id))

    def show(self) -> None:
        """Bring details and search attributes up to date; once a phase, because each upsert is an event."""
        state = self.state
        self.refresh()
        if state.prepared is None or not state.prepared.attributes:
            return
        values = {
            "PerdureRepository": self.request.repository,
            "PerdurePhase": state.phase or "",
            "PerdureStatus": state.status or ("waiting" if state.waiting else "running"),
            "PerdureBranch": state.prepared.branch,
            "PerdurePullRequest": state.pull_request.url if state.pull_request else "",
        }
        self._waiting = self._waiting if state.waiting == self._waiting[0] else (state.waiting, workflow.now())
        more = {CHANGE: columns.change(state), WAITING: columns.waiting(*self._waiting)}
        set_attributes(values, state.spend.usd, more, state.prepared.labels, state.prepared.shows)

    async def wait(self, reason: str, pause: timedelta) -> None:
        """Let time pass, and say what for. An outage of the forge must not use up the delivery's own time."""
        self.state.waiting = reason
        self.show()
        await workflow.sleep(pause, summary=reason[:100])
        self.people.give_back(pause)

    def judge(self, summary: str) -> None:
        """The newest step ran to its end; where its verdict is no, red tests or blockers, its record says so."""
        if (words := fold.verdict(self.state, self.state.steps[-1].step, summary)) is not None:
            self._record(status="failed", summary=words)

    def committed(self, commit: str, summary: str) -> None:
        self._record(commit=commit, summary=summary)

    def _begin(self, step: str, attempt: int) -> None:
        started = workflow.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self.state.steps.append(StepRecord(step=step, attempt=attempt, started_at=started))
        self._since = workflow.now() - self.people.waited
        self.refresh()

    def _end(self, status: str, *, summary: str = "") -> None:
        seconds = round((workflow.now() - self.people.waited - self._since).total_seconds(), 1)
        self._record(status=status, duration_s=seconds, summary=summary)

    def _record(self, **changes: Any) -> None:
        self.state.steps[-1] = self.state.steps[-1].model_copy(update=changes)
