"""The ends of a delivery other than delivered, and the activity failures that mean each."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    TimeoutError,
    is_cancelled_exception,
)
from temporalio.workflow import ActivityHandle

from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Reached
from perdure.models.phases import ALL_PHASES, why_not
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.result import Reason, ReviewStatus, Status, TestsStatus
from perdure.models.rules.gates import CANNOT_TELL, let_through
from perdure.models.rules.specialists import is_of
from perdure.models.state import DeliveryState, parse_resume
from perdure.models.turn import Ending
from perdure.models.work import Asking, Prepared

T = TypeVar("T")

REASONS = MappingProxyType(
    {
        "SetupFailed": Reason.SETUP_FAILED,
        "SandboxUnavailable": Reason.SETUP_FAILED,
        "ModelRefusesUs": Reason.REFUSED,
        "BudgetReached": Reason.BUDGET,
        "ForgeRefused": Reason.FORGE_REFUSED,
        "Diverged": Reason.WORKSPACE_LOST,
        "WorkspaceLost": Reason.WORKSPACE_LOST,
        "TurnKillsWorker": Reason.LIMITS,
        "ResultTooLarge": Reason.LIMITS,
    }
)
"""By the type of an activity's failure; a type that is not listed is our own mistake and fails as LIMITS."""

ENDINGS = MappingProxyType(
    {
        Ending.REFUSED: (Reason.REFUSED, "the model refused"),
        Ending.LOOPING: (Reason.LIMITS, "the agent repeated itself"),
        Ending.INVALID: (Reason.REFUSED, "the model's answer did not validate, twice"),
        Ending.FAILED: (Reason.REFUSED, "the agent did not carry the step out"),
        Ending.CONTEXT: (Reason.LIMITS, "the conversation outgrew the model's context window"),
    }
)

_STEPS = 8
"""Of the event loop, in no time: a result that has come is handed on within three."""

BAD_REQUESTS = ("InvalidRequest", "BadInput")


class Stopped(Exception):
    """The process ends here, on purpose, with this status and reason."""

    def __init__(self, status: Status, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


def not_delivered(reason: Reason, message: str) -> Stopped:
    return Stopped(Status.NOT_DELIVERED, reason, message)


def doubts(state: DeliveryState, prepared: Prepared) -> list[str]:
    """Say why this can only be a draft; empty when it was tested green and reviewed, or the repository allows less."""
    found = []
    tests, review = state.tests, state.review_result
    if not prepared.allow_untested:
        if tests is None:
            found.append("not tested: the test phase was not selected")
        elif tests.status is TestsStatus.NONE:
            found.append("not tested: the repository has no test command")
        if review.status is ReviewStatus.SKIPPED:
            found.append("not reviewed: the review phase was not selected")
    if tests is not None and tests.status is TestsStatus.RED and let_through(state) is None:
        found.append(f"{CANNOT_TELL}: {tests.summary}" if tests.undecidable else "tests are red")
    if review.status is ReviewStatus.BLOCKED:
        found.append("the review found blockers")
    return found


def interpret(error: ActivityError) -> BaseException:
    """Return what an activity's final failure means for the delivery.

    A dead turn that is reported after a cancel request ends as an ordinary failure with retry state CANCEL_REQUESTED
    (holes.md H25): it is a cancellation all the same.
    """
    cause = error.cause
    if isinstance(cause, CancelledError) or error.retry_state == RetryState.CANCEL_REQUESTED:
        return asyncio.CancelledError()
    if isinstance(cause, ApplicationError):
        if cause.type in BAD_REQUESTS:
            return invalid(cause.message)
        return not_delivered(REASONS.get(cause.type or "", Reason.LIMITS), cause.message)
    if isinstance(cause, TimeoutError):
        return not_delivered(Reason.LIMITS, f"{error.activity_type} did not end within the delivery's time limit")
    return not_delivered(Reason.LIMITS, str(cause or error))


def out_of_time(error: ActivityError) -> bool:
    """True where it was ended because its time was over; its last failure, if it had any, is then the cause."""
    return error.retry_state == RetryState.TIMEOUT


def cut_off(error: ActivityError) -> str:
    """Say why the work is not begun again, in one line, where it was cut off too often; else empty."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in ("TurnKillsWorker", "RepliesCut"):
        return ""
    if cause.type == "RepliesCut" and not workflow.patched("replies-cut-asked"):
        return ""
    return cause.message.partition("\n")[0]


def reached(error: ActivityError) -> Reached | None:
    """The limit that a turn was stopped at; None when it ended for another reason."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == "BudgetReached" and cause.details:
        return Reached.model_validate(cause.details[0])
    return None


def asking(error: ActivityError) -> Asking:
    """The people who decide about a `prepare` that was cut off; none where its worker's release did not say so."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return Asking.model_validate(details[0]) if details else Asking()


def invalid(message: str) -> ApplicationError:
    """A bad submission fails the workflow at once and says which field."""
    return ApplicationError(f"InvalidRequest: {message}", type="InvalidRequest", non_retryable=True)


def not_by_itself(tasks: str) -> ApplicationError | None:
    """The refusal of a plan's tasks, or of one, that their delivery has not begun. `tasks`: their backlog's id."""
    parent, delivery = workflow.info().parent, tasks.rpartition("/")[0]
    begun_by = delivery if tasks == workflow.info().workflow_id else tasks
    if parent is not None and parent.workflow_id == begun_by and is_of(tasks, delivery):
        return None
    return invalid(f"tasks of a plan are begun by their delivery: perdure retry {delivery}")


def heed_parent(request: DeliveryRequest) -> None:
    """Refuse a task of a plan, and an attempt at one, that somebody else than its delivery has begun."""
    place, forked, info = request.landing, request.forked, workflow.info()
    refused = not_by_itself(place.backlog) if place is not None and place.within is not None else None
    if forked is not None and forked.attempt and (info.parent is None or info.parent.workflow_id != forked.delivery):
        refused = invalid(f"attempts at a plan are begun by their delivery: perdure retry {forked.delivery}")
    if refused is not None:
        raise refused


def accepted(raw: Any, more: tuple[Any, ...]) -> tuple[DeliveryRequest, DeliveryState]:
    """The request and the state it begins from; a bad one fails the workflow at once and names the field."""
    try:
        if more:
            raise InvalidRequest(f"expected one JSON object, got {1 + len(more)} arguments")
        request = parse_request(raw)
        state = parse_resume(request.resume) if request.resume else DeliveryState()
    except InvalidRequest as error:
        raise invalid(error.what) from None
    phases = request.phases if request.phases is not None else ALL_PHASES
    if problem := why_not(phases, request.branch):
        raise invalid(f"phases: {problem}")
    heed_parent(request)
    return request, state


async def finished(activity: ActivityHandle[T]) -> T:
    """Wait for an activity, which a cancellation asks to stop. What it did all the same counts: where its result and
    the request come in one workflow task, the SDK would drop the result. Raises ActivityError."""
    with suppress(asyncio.CancelledError):
        return await asyncio.shield(activity)
    for _ in range(_STEPS):
        await asyncio.sleep(0)
    if not activity.done():
        activity.cancel()
    elif not workflow.patched("result-beside-a-cancel"):
        raise asyncio.CancelledError
    return await activity


def cancels(error: BaseException) -> bool:
    """True for a cancellation, also for one that has ended an activity by the way."""
    by_the_way = is_cancelled_exception(error) and not isinstance(error, asyncio.CancelledError)
    return workflow.patched("activity-cancelled") if by_the_way else isinstance(error, asyncio.CancelledError)


def heed_cancellation() -> None:
    """Stop here if somebody asked for it.

    An activity that ends by itself before it hears of the request ends well, and the SDK counts the cancellation as
    dealt with: without this look, a cancel that meets a short turn would be forgotten.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
