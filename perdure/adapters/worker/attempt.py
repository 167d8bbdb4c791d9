"""The interceptor around every activity, which `worker.py` gives to its workers: it records each attempt at a
delivery's work on disk, so that other workers can report its death, and in the delivery's journal; sends heartbeats,
refuses work that has killed its worker too often, translates errors into Temporal's, and limits the size of results.
Activities and turns add to their heartbeats with `update_heartbeat`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from perdure.adapters.system.backoff import doubled_pause, spread_pause
from perdure.adapters.system.crash import crash_point
from perdure.adapters.worker.inflight import InFlight
from perdure.adapters.worker.journal import ADOPTED, DONE, Journal, disk_full_error, is_disk_full
from perdure.adapters.worker.lease import SUPERSEDED
from perdure.models.crash import CrashPoint
from perdure.models.delivery.steps import AGENTIC
from perdure.models.errors import (
    BadInput,
    BudgetReached,
    DiskFull,
    ForgeUnavailable,
    ModelUnavailable,
    NoticeUnheard,
    PerdureError,
    StepError,
    TurnKillsWorker,
    WorkCutOff,
)
from perdure.models.ids import digest
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, MODEL_PAUSE, MODEL_PAUSE_MAX
from perdure.models.phases import Step
from perdure.text import cut_middle, shell_word

HEARTBEATS_A_SECOND = 5
"""The most heartbeats a second of all attempts of a worker together: each costs the server a transaction."""

HEARTBEAT_EVERY_S = (1.0, 3.0)
"""Shortest and longest pause between two heartbeats of one attempt, the longest where many run: cancel, reset and pause
reach an attempt only with its heartbeat."""

DISK_FULL_PAUSE = timedelta(seconds=10)
"""The pause before an attempt that met a full disk is repeated: somebody has to make room first."""

DEATHS_PER_TURN = 3
"""Times that the same turn is cut off before the turn is held to be the cause, not the host."""

RESULT_BYTES = 16 * 1024
"""The largest result of an activity, checked before its effect is reported: 2 MiB would fail after the effect."""

FAILURE_CHARS = 2000
"""Characters of an exception's message that go into history; the whole text stays on the host."""

UNEXPECTED_FAILURES = 10
"""Attempts at one piece of work that may fail for a reason nobody foresaw before it fails for good: a passing reason is
over by then."""


log = logging.getLogger(__name__)

UNTRUSTED_ACTIVITIES = frozenset({*AGENTIC, Step.PREPARE, Step.RUN_TESTS, "capture_pages", "follow"})
"""Activities that run other people's code. Those can kill their worker again and again, so they are
refused after DEATHS_PER_TURN."""

LAST_ACTIVITY = "close"
"""The last activity of a delivery's run: after it there is nothing of the run to report."""

NOTICE_ACTIVITIES = ("notice_addresses", "notify")
"""The activities of a notification's run. It may end with either, and fail with either: no note of it is kept."""

current_facts: ContextVar[dict[str, Any]] = ContextVar("doing")
"""The facts of what the current attempt does, for its heartbeats: small JSON such as {"turn": 3, "doing": "pytest
-q"}."""


def update_heartbeat(**facts: Any) -> None:
    """Add facts to this attempt's heartbeats, such as `turn=3` or `doing="pytest -q"`. People see them in the Web UI's
    Pending Activities and in `perdure watch`. Outside an attempt this does nothing."""
    with contextlib.suppress(LookupError):
        current_facts.get().update(facts)


class AttemptHost(Protocol):
    """The part of the host that the interceptor needs."""

    inflight: InFlight

    def journal(self, delivery: str) -> Journal: ...


class AttemptInterceptor(Interceptor):
    """An interceptor that records every attempt at an activity whose input names a delivery. Of other activities it
    only translates the errors."""

    def __init__(self, host: AttemptHost) -> None:
        self._host = host
        self._running_attempts: set[str] = set()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _AttemptActivityInterceptor(next, self._host, self._running_attempts)


class _AttemptActivityInterceptor(ActivityInboundInterceptor):
    """The activity side of AttemptInterceptor. `running_attempts`: names of the attempts that run now, shared by all
    activities behind one interceptor."""

    def __init__(self, next: ActivityInboundInterceptor, host: AttemptHost, running_attempts: set[str]) -> None:
        super().__init__(next)
        self._host, self._running_attempts = host, running_attempts

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run an activity and return its result; record the attempt where the activity's input names a delivery.

        Raises ApplicationError in place of StepError and BadInput; for a recorded attempt in place of every error of
        the activity, of a cancellation by a takeover or by the worker's shutdown, and where the record itself finds no
        room on the disk. A cancellation that was asked for, and other errors of the record, pass unchanged. Outside a
        workflow run nothing is recorded or translated.
        """
        info = activity.info()
        if info.workflow_run_id is None:
            return await self.next.execute_activity(input)
        if not input.args or not hasattr(input.args[0], "delivery"):
            try:
                return await self.next.execute_activity(input)
            except (StepError, BadInput) as error:
                raise _to_application_error(error, info.attempt) from None
        try:
            return await self._execute_recorded(input)
        except OSError as error:  # of the record itself
            if is_disk_full(error):
                raise _to_application_error(disk_full_error(str(error.filename or "")), info.attempt) from None
            raise

    async def _execute_recorded(self, input: ExecuteActivityInput) -> Any:
        """Run an activity of a delivery on record, note how the attempt ended, and return the activity's result.

        Raises ApplicationError: of type Superseded when a newer attempt took over, WorkerShutdown (repeated after 1 ms)
        when the worker shuts down, ResultTooLarge, or as `_translate_error` makes it of any other error. A cancellation
        that somebody asked for goes on as CancelledError.
        """
        async with self._record_attempt(input.args[0]) as record:
            try:
                result = await self.next.execute_activity(input)
            except asyncio.CancelledError as cancelled:
                record.how = "superseded" if _is_superseded(cancelled) else "cancelled"
                if record.how == "superseded":
                    raise ApplicationError("a newer attempt has taken over", type="Superseded") from None
                if activity.is_worker_shutdown() and not _is_cancel_requested():
                    raise ApplicationError(
                        "the worker is shutting down", type="WorkerShutdown", next_retry_delay=timedelta(milliseconds=1)
                    ) from None
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, it is raised again, in history's words
                record.how = type(error).__name__
                record.why = error.what if isinstance(error, WorkCutOff) else ""
                # Its cause would go into history whole, traceback and all: that stays in this worker's log.
                raise self._translate_error(error, input.args[0]) from None
            _check_result_size(result)
            record.how = ADOPTED if getattr(result, "adopted", False) else DONE
            return result

    def _translate_error(self, error: Exception, work: Any) -> ApplicationError:
        """Return the ApplicationError for an error of an activity; one that is an ApplicationError already is returned
        as it is.

        StepError, BadInput and a full disk keep their type and say themselves whether they are retried. Any other error
        is our own mistake or the machine's: it is logged, and is retried until attempts at this work have failed with
        its type UNEXPECTED_FAILURES times, this one included.
        """
        if isinstance(error, ApplicationError):
            return error
        info = activity.info()
        if is_disk_full(error):
            error = disk_full_error(str(getattr(error, "filename", None) or getattr(error, "where", "")))
        if isinstance(error, StepError | BadInput):
            return _to_application_error(error, info.attempt)
        failures_before = self._host.journal(work.delivery).failures(work_key(work), type(error).__name__)
        message = str(error) if isinstance(error, PerdureError) else f"{type(error).__name__}: {error}"
        final = failures_before + 1 >= UNEXPECTED_FAILURES
        log.error("%s of %s failed", info.activity_type, work.delivery, exc_info=error)
        return ApplicationError(
            cut_middle(message, FAILURE_CHARS, head_share=0.5), type=type(error).__name__, non_retryable=final
        )

    @asynccontextmanager
    async def _record_attempt(self, work: Any) -> AsyncIterator[_AttemptEnd]:
        """Note the attempt in flight, journal its start and end, and send its heartbeats while the block runs. Yields
        the record in which the block writes how the attempt ended. Where the run ends with this attempt, its note is
        deleted afterwards.

        Raises ApplicationError (TurnKillsWorker, not retried) before the block for an untrusted activity whose work was
        cut off DEATHS_PER_TURN times; each time that a person lets the work be tried again allows as many more. That of
        `prepare` carries who decides, as the journal noted it last.
        """
        info = activity.info()
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        crash_point(CrashPoint.HANDED_OUT)
        inflight, record = self._host.inflight, _AttemptEnd()
        with contextlib.ExitStack() as exit_stack:
            exit_stack.callback(self._forget_ended_run, info, record)
            in_flight_note = inflight.note_activity(
                token=info.task_token,
                workflow_id=info.workflow_id,
                run_id=info.workflow_run_id,
                activity=info.activity_type,
            )
            exit_stack.enter_context(in_flight_note)
            journal, key = self._host.journal(work.delivery), work_key(work)
            attempt = f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}/{inflight.worker[:8]}"
            deaths = journal.deaths(key) if info.activity_type in UNTRUSTED_ACTIVITIES else []
            if len(deaths) >= DEATHS_PER_TURN * (1 + getattr(work, "approved_retries", 0)):
                fix = f"look at what it runs (memory?), then: perdure retry {shell_word(info.workflow_id)}"
                reason = f"{info.activity_type} was cut off {len(deaths)} times: {_count_causes(deaths)}"
                deciders = journal.last_deciders() if info.activity_type == Step.PREPARE else None
                raise _to_application_error(
                    TurnKillsWorker(reason, fix=fix), info.attempt, *([deciders] if deciders else [])
                )
            journal.record_start(attempt=attempt, key=key, activity=info.activity_type, worker=inflight.worker)
            facts: dict[str, Any] = {}
            current_facts.set(facts)
            self._running_attempts.add(attempt)
            heartbeats = asyncio.create_task(_send_heartbeats(facts, self._running_attempts))
            try:
                yield record
            finally:
                heartbeats.cancel()
                self._running_attempts.discard(attempt)
                journal.record_end(attempt, record.how, record.why)

    def _forget_ended_run(self, info: activity.Info, record: _AttemptEnd) -> None:
        """Delete the note of a run that ends with this attempt: after a delivery's last activity, if it succeeded, and
        after any activity of a notification."""
        last = info.activity_type == LAST_ACTIVITY and record.how == DONE
        if (last or info.activity_type in NOTICE_ACTIVITIES) and info.workflow_run_id is not None:
            self._host.inflight.forget_run(info.workflow_run_id)


class _AttemptEnd:
    """The end of an attempt: failed until something else is written; done, adopted, cancelled, superseded, or the
    error's type. `why`: what cut it off; empty: nothing."""

    how, why = "failed", ""


def _count_causes(deaths: list[str]) -> str:
    """Return causes of deaths in one line: `its worker died (2 times), the sandbox was killed, perhaps for memory: peak
    1.9 GB`."""
    counted = Counter(deaths)
    return ", ".join(why if times == 1 else f"{why} ({times} times)" for why, times in counted.items())


def work_key(work: Any) -> str:
    """Return the digest that all attempts at one piece of work share: of run id, activity type and input.

    How often a person allowed a retry, and the budget, are left out of it. Repeats within one run have equal keys, a
    rewound run has another one.
    """
    run_id = activity.info().workflow_run_id or ""
    body = (
        work.model_dump_json(exclude={"approved_retries", "spending_limits"})
        if isinstance(work, BaseModel)
        else repr(work)
    )
    return digest(run_id, activity.info().activity_type, body)


async def _send_heartbeats(facts: dict[str, Any], running_attempts: set[str]) -> None:
    """Send the facts as heartbeats until the task is cancelled, with a pause that grows with the number of running
    attempts. The first one comes after a pause: the start of the attempt has said as much, and most attempts that do
    not wait for a model are over by then."""
    while True:
        await asyncio.sleep(heartbeat_pause(len(running_attempts)))
        activity.heartbeat(dict(facts))


def heartbeat_pause(running: int) -> float:
    """Return the seconds to an attempt's next heartbeat while `running` attempts run on this worker."""
    least, most = HEARTBEAT_EVERY_S
    return min(most, max(least, running / HEARTBEATS_A_SECOND))


def _is_superseded(cancelled: asyncio.CancelledError) -> bool:
    """Return whether a newer attempt has the work now: a takeover cancelled this one, or the server does not know it
    any more or has timed it out."""
    details = activity.cancellation_details()
    return SUPERSEDED in cancelled.args or bool(details and (details.not_found or details.timed_out))


def _is_cancel_requested() -> bool:
    """Return whether the server has asked for the running activity's cancellation."""
    details = activity.cancellation_details()
    return bool(details and details.cancel_requested)


def _to_application_error(error: PerdureError, attempt: int, *details: BaseModel) -> ApplicationError:
    """Return the error for Temporal: its type, a message cut to about FAILURE_CHARS, whether it is retried, and the
    pause before that.

    The pause is the one the other side asked for (model, forge, notice address), with jitter; else one that doubles
    with `attempt` (of a model with jitter, of a forge from the second attempt on) or DISK_FULL_PAUSE; None leaves it to
    the retry policy. `details` go along; BudgetReached brings the limit that was reached in their place.
    """
    retryable = isinstance(error, StepError) and error.retryable
    pause = DISK_FULL_PAUSE if isinstance(error, DiskFull) else None
    if isinstance(error, BudgetReached):
        details = (error.reached,)
    if isinstance(error, ModelUnavailable):
        pause = spread_pause(
            doubled_pause(attempt, MODEL_PAUSE, MODEL_PAUSE_MAX)
            if error.retry_after is None
            else timedelta(seconds=error.retry_after),
            0.25,
        )
    if isinstance(error, ForgeUnavailable) and attempt > 1:  # where each is a first, the workflow counts them
        pause = doubled_pause(attempt, FORGE_PAUSE, FORGE_PAUSE_MAX)
    if isinstance(error, ForgeUnavailable | NoticeUnheard) and error.retry_after is not None:
        pause = spread_pause(timedelta(seconds=error.retry_after), 0.1)
    return ApplicationError(
        cut_middle(str(error), FAILURE_CHARS, head_share=0.5),
        *details,
        type=type(error).__name__,
        non_retryable=not retryable,
        next_retry_delay=pause,
    )


def _check_result_size(result: Any) -> None:
    """Raise ApplicationError (ResultTooLarge, not retried) when a result is a model of more than RESULT_BYTES as
    JSON."""
    if isinstance(result, BaseModel):
        size = len(result.model_dump_json().encode())
        if size > RESULT_BYTES:
            raise ApplicationError(
                f"result of {size} bytes; at most {RESULT_BYTES} go into history",
                type="ResultTooLarge",
                non_retryable=True,
            )
