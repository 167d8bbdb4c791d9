"""Around every activity: noted in flight, journalled, heartbeating, its errors translated, its result weighed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
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

from perdure.adapters.system.crash import crash_point
from perdure.adapters.worker.inflight import InFlight
from perdure.adapters.worker.journal import ADOPTED, DONE, Journal
from perdure.adapters.worker.lease import SUPERSEDED
from perdure.adapters.worker.replies import disk_full, is_disk_full
from perdure.models.crash import CrashPoint
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
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC

RETRY_PAUSE_MODEL_S = (1.0, 60.0)
"""First and longest pause after a model error that did not say when to come back; doubles, with jitter."""

HEARTBEATS_A_SECOND = 5
"""Of all attempts of a worker together: each costs the server a transaction."""

HEARTBEAT_EVERY_S = (1.0, 3.0)
"""Between two of one attempt, the latter where many run: cancel, reset and pause reach it only with its heartbeat."""

DISK_FULL_PAUSE = timedelta(seconds=10)
"""Until a full disk is looked at again: somebody has to make room first."""

DEATHS_PER_TURN = 3
"""The same turn seeing its worker die this often is the turn's fault, not the host's (holes.md H6)."""

RESULT_BYTES = 16 * 1024
"""An activity's result, checked before its effect is reported: 2 MiB would fail after the effect (holes.md H36)."""

FAILURE_CHARS = 2000
"""Of an exception's message in history; the whole text stays on the host."""

UNEXPECTED_FAILURES = 10
"""Attempts at one piece of work that fail for a reason nobody foresaw: a passing one is over by then."""


log = logging.getLogger(__name__)

FENCED = frozenset({*AGENTIC, Step.PREPARE, Step.RUN_TESTS, "capture_pages", "follow"})
"""Activities that run other people's code: these can kill their worker again and again (holes.md H6)."""

LAST = "close"
"""The last activity of a delivery's run: after it there is nothing of the run to report."""

TELLING = ("notice_addresses", "notify")
"""The activities of a notification's run. It may end with either, and fail with either: nothing of it is kept."""

doing: ContextVar[dict[str, Any]] = ContextVar("doing")
"""The current attempt's work, for heartbeats: small JSON such as {"turn": 3, "doing": "pytest -q"}."""


def now_doing(**facts: Any) -> None:
    """Say what this attempt does now; seen in the Web UI's Pending Activities and by `perdure watch`."""
    with contextlib.suppress(LookupError):
        doing.get().update(facts)


class Keeper(Protocol):
    """The host as far as the interceptor needs it."""

    inflight: InFlight

    def journal(self, delivery: str) -> Journal: ...


class AttemptInterceptor(Interceptor):
    """Every activity that names a delivery goes through here; reading ones (no delivery's work) do not."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._running: set[str] = set()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Attempts(next, self._keeper, self._running)


class _Attempts(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, keeper: Keeper, running: set[str]) -> None:
        super().__init__(next)
        self._keeper, self._running = keeper, running

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.workflow_run_id is None:
            return await self.next.execute_activity(input)
        if not input.args or not hasattr(input.args[0], "delivery"):
            try:
                return await self.next.execute_activity(input)
            except (StepError, BadInput) as error:
                raise _translate(error, info.attempt) from None
        try:
            return await self._recorded(input)
        except OSError as error:  # of the record itself
            if is_disk_full(error):
                raise _translate(disk_full(str(error.filename or "")), info.attempt) from None
            raise

    async def _recorded(self, input: ExecuteActivityInput) -> Any:
        async with self._on_the_record(input.args[0]) as record:
            try:
                result = await self.next.execute_activity(input)
            except asyncio.CancelledError as cancelled:
                record.how = "superseded" if _superseded(cancelled) else "cancelled"
                if record.how == "superseded":
                    raise ApplicationError("a newer attempt has taken over", type="Superseded") from None
                if activity.is_worker_shutdown() and not _asked_to_cancel():
                    raise ApplicationError(
                        "the worker is shutting down", type="WorkerShutdown", next_retry_delay=timedelta(milliseconds=1)
                    ) from None
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, it is raised again, in history's words
                record.how = type(error).__name__
                record.why = error.what if isinstance(error, WorkCutOff) else ""
                # Its cause would go into history whole, traceback and all: that stays in this worker's log.
                raise self._translated(error, input.args[0]) from None
            _weigh(result)
            record.how = ADOPTED if getattr(result, "adopted", False) else DONE
            return result

    def _translated(self, error: Exception, work: Any) -> ApplicationError:
        """A typed error is what it says. Any other is our own mistake or the machine's: tried again, not for ever."""
        info = activity.info()
        if is_disk_full(error):
            error = disk_full(str(getattr(error, "filename", None) or getattr(error, "where", "")))
        if isinstance(error, StepError | BadInput):
            return _translate(error, info.attempt)
        before = self._keeper.journal(work.delivery).failures(work_key(work), type(error).__name__)
        words = str(error) if isinstance(error, PerdureError) else f"{type(error).__name__}: {error}"
        final = before + 1 >= UNEXPECTED_FAILURES
        log.error("%s of %s failed", info.activity_type, work.delivery, exc_info=error)
        return ApplicationError(_trim(words), type=type(error).__name__, non_retryable=final)

    @asynccontextmanager
    async def _on_the_record(self, work: Any) -> AsyncIterator[_Record]:
        info = activity.info()
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        crash_point(CrashPoint.HANDED_OUT)
        inflight, record = self._keeper.inflight, _Record()
        with contextlib.ExitStack() as ending:
            ending.callback(self._forget, info, record)
            noted = inflight.noted(
                token=info.task_token,
                workflow_id=info.workflow_id,
                run_id=info.workflow_run_id,
                activity=info.activity_type,
            )
            ending.enter_context(noted)
            journal, key = self._keeper.journal(work.delivery), work_key(work)
            attempt = f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}/{inflight.worker[:8]}"
            deaths = journal.deaths(key) if info.activity_type in FENCED else []
            if len(deaths) >= DEATHS_PER_TURN * (1 + getattr(work, "again", 0)):
                fix = f"look at what it runs (memory?), then: perdure retry {info.workflow_id}"
                words = f"{info.activity_type} was cut off {len(deaths)} times: {_tally(deaths)}"
                asking = journal.asking() if info.activity_type == Step.PREPARE else None
                raise _translate(TurnKillsWorker(words, fix=fix), info.attempt, *([asking] if asking else []))
            journal.began(attempt=attempt, key=key, activity=info.activity_type, worker=inflight.worker)
            facts: dict[str, Any] = {}
            doing.set(facts)
            self._running.add(attempt)
            beat = asyncio.create_task(_beat(facts, self._running))
            try:
                yield record
            finally:
                beat.cancel()
                self._running.discard(attempt)
                journal.ended(attempt, record.how, record.why)

    def _forget(self, info: activity.Info, record: _Record) -> None:
        last = info.activity_type == LAST and record.how == DONE
        if (last or info.activity_type in TELLING) and info.workflow_run_id is not None:
            self._keeper.inflight.forget(info.workflow_run_id)


class _Record:
    how, why = "failed", ""


def _tally(deaths: list[str]) -> str:
    """`its worker died (2 times), the sandbox was killed, perhaps for memory: peak 1.9 GB`."""
    counted = Counter(deaths)
    return ", ".join(why if times == 1 else f"{why} ({times} times)" for why, times in counted.items())


def work_key(work: Any) -> str:
    """Return what all attempts at one piece of work share, over reruns of one run, not over rewinds."""
    run_id = activity.info().workflow_run_id or ""
    body = work.model_dump_json(exclude={"again", "room"}) if isinstance(work, BaseModel) else repr(work)
    return digest(run_id, activity.info().activity_type, body)


async def _beat(facts: dict[str, Any], running: set[str]) -> None:
    """From a task of its own. The first is a while after the start, which has said as much: most attempts that do not
    wait for a model are over by then."""
    while True:
        await asyncio.sleep(heartbeat_pause(len(running)))
        activity.heartbeat(dict(facts))


def heartbeat_pause(running: int) -> float:
    """Return the seconds to an attempt's next heartbeat where so many run on this worker."""
    least, most = HEARTBEAT_EVERY_S
    return min(most, max(least, running / HEARTBEATS_A_SECOND))


def _superseded(cancelled: asyncio.CancelledError) -> bool:
    details = activity.cancellation_details()
    return SUPERSEDED in cancelled.args or bool(details and (details.not_found or details.timed_out))


def _asked_to_cancel() -> bool:
    details = activity.cancellation_details()
    return bool(details and details.cancel_requested)


def _translate(error: PerdureError, attempt: int, *details: BaseModel) -> ApplicationError:
    """Typed, bounded, and with the pause the other side asked for."""
    retryable = isinstance(error, StepError) and error.retryable
    pause = DISK_FULL_PAUSE if isinstance(error, DiskFull) else None
    if isinstance(error, BudgetReached):
        details = (error.reached,)
    if isinstance(error, ModelUnavailable):
        first, longest = RETRY_PAUSE_MODEL_S
        backoff = (
            error.retry_after if error.retry_after is not None else min(longest, first * 2 ** min(attempt - 1, 10))
        )
        pause = timedelta(seconds=backoff + random.uniform(0, 0.25 * backoff))  # noqa: S311  # jitter, not a secret
    if isinstance(error, ForgeUnavailable) and attempt > 1:  # where each is a first, the workflow counts them
        pause = min(FORGE_PAUSE_MAX, FORGE_PAUSE * 2 ** min(attempt - 1, 10))
    if isinstance(error, ForgeUnavailable | NoticeUnheard) and error.retry_after is not None:
        # never before it said; and not everybody at the same moment
        pause = timedelta(seconds=error.retry_after + random.uniform(0, 0.1 * error.retry_after))  # noqa: S311
    return ApplicationError(
        _trim(str(error)), *details, type=type(error).__name__, non_retryable=not retryable, next_retry_delay=pause
    )


def _trim(text: str) -> str:
    if len(text) <= FAILURE_CHARS:
        return text
    half = FAILURE_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _weigh(result: Any) -> None:
    if isinstance(result, BaseModel):
        size = len(result.model_dump_json().encode())
        if size > RESULT_BYTES:
            raise ApplicationError(
                f"result of {size} bytes; at most {RESULT_BYTES} go into history",
                type="ResultTooLarge",
                non_retryable=True,
            )
