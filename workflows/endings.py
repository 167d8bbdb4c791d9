"""Ends of a delivery other than delivered, the activity failures that mean each, and how a cancellation is heeded."""

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

from perdure.models.budget.ledger import LimitReached
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.delivery.result import Reason, ReviewStatus, Status, TestsStatus
from perdure.models.delivery.state import DeliveryState, parse_resume_state
from perdure.models.delivery.turn import Ending
from perdure.models.delivery.work import EscalationSettings, PreparedWorkspace
from perdure.models.errors import InvalidRequest
from perdure.models.phases import ALL_PHASES, invalid_phases_reason
from perdure.models.rules.gates import CANNOT_TELL, red_tests_approval
from perdure.models.rules.parallel_builds import is_tasks_backlog

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
"""Reason by the type of an activity's failure. A type that is not listed is our own mistake, and fails as LIMITS."""

ENDINGS = MappingProxyType(
    {
        Ending.REFUSED: (Reason.REFUSED, "the model refused"),
        Ending.LOOPING: (Reason.LIMITS, "the agent repeated itself"),
        Ending.INVALID: (Reason.REFUSED, "the model's answer did not validate, twice"),
        Ending.FAILED: (Reason.REFUSED, "the agent did not carry the step out"),
        Ending.CONTEXT: (Reason.LIMITS, "the conversation outgrew the model's context window"),
    }
)

_LOOP_STEPS = 8
"""Steps of the event loop, which take no time: a result that has come is handed on within three."""

BAD_REQUESTS = ("InvalidRequest", "BadInput")


class DeliveryStopped(Exception):
    """Exception that ends the process on purpose, with the status and reason of the delivery."""

    def __init__(self, status: Status, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


def not_delivered(reason: Reason, message: str) -> DeliveryStopped:
    """Return the exception that ends a delivery as not delivered, for a reason."""
    return DeliveryStopped(Status.NOT_DELIVERED, reason, message)


def draft_reasons(state: DeliveryState, prepared: PreparedWorkspace) -> list[str]:
    """Return why a change can only be a draft, or not land: what was not tested or reviewed, what is red, blockers.
    Empty: nothing is wrong with it.

    Tests or a review that were not made count only where the repository does not allow that (`allow_untested`).
    """
    reasons = []
    tests, review = state.tests, state.review_result
    if not prepared.allow_untested:
        if tests is None:
            reasons.append("not tested: the test phase was not selected")
        elif tests.status is TestsStatus.NONE:
            reasons.append("not tested: the repository has no test command")
        if review.status is ReviewStatus.SKIPPED:
            reasons.append("not reviewed: the review phase was not selected")
    if tests is not None and tests.status is TestsStatus.RED and red_tests_approval(state) is None:
        reasons.append(f"{CANNOT_TELL}: {tests.summary}" if tests.undecidable else "tests are red")
    if review.status is ReviewStatus.BLOCKED:
        reasons.append("the review found blockers")
    return reasons


def interpret_failure(error: ActivityError) -> BaseException:
    """Return the exception that an activity's final failure means for the delivery: DeliveryStopped, ApplicationError
    InvalidRequest, or CancelledError.

    A dead turn that is reported after a cancel request ends as an ordinary failure with retry state CANCEL_REQUESTED:
    it is a cancellation all the same.
    """
    cause = error.cause
    if isinstance(cause, CancelledError) or error.retry_state == RetryState.CANCEL_REQUESTED:
        return asyncio.CancelledError()
    if isinstance(cause, ApplicationError):
        if cause.type in BAD_REQUESTS:
            return invalid_request(cause.message)
        return not_delivered(REASONS.get(cause.type or "", Reason.LIMITS), cause.message)
    if isinstance(cause, TimeoutError):
        return not_delivered(Reason.LIMITS, f"{error.activity_type} did not end within the delivery's time limit")
    return not_delivered(Reason.LIMITS, str(cause or error))


def is_out_of_time(error: ActivityError) -> bool:
    """Return whether an activity was ended because its time was over. Its last failure, if it had any, is then the
    cause."""
    return error.retry_state == RetryState.TIMEOUT


def cut_off_reason(error: ActivityError) -> str:
    """Return why an activity that was cut off again and again is not begun once more, in one line; empty for any other
    failure."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in ("TurnKillsWorker", "RepliesCut"):
        return ""
    return cause.message.partition("\n")[0]


def reached_limit(error: ActivityError) -> LimitReached | None:
    """Return the spending limit that a turn was stopped at; None where it ended for another reason."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == "BudgetReached" and cause.details:
        return LimitReached.model_validate(cause.details[0])
    return None


def people_to_ask(error: ActivityError) -> EscalationSettings:
    """Return whether people are asked, and notified, about a `prepare` that was cut off. It comes with the failure;
    where the worker's release did not send it, nobody is."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return EscalationSettings.model_validate(details[0]) if details else EscalationSettings()


def invalid_request(message: str) -> ApplicationError:
    """Return the error that fails a workflow at once, as InvalidRequest, with a message that says which field is
    wrong."""
    return ApplicationError(f"InvalidRequest: {message}", type="InvalidRequest", non_retryable=True)


def foreign_start_error(backlog_id: str) -> ApplicationError | None:
    """Return the error for a plan's backlog of tasks, or one of its tasks, that somebody else than its delivery has
    started; None where the delivery has. `backlog_id`: of the tasks."""
    parent, delivery = workflow.info().parent, backlog_id.rpartition("/")[0]
    starter = delivery if backlog_id == workflow.info().workflow_id else backlog_id
    if parent is not None and parent.workflow_id == starter and is_tasks_backlog(backlog_id, delivery):
        return None
    return invalid_request(f"tasks of a plan are begun by their delivery: perdure retry {delivery}")


def check_parent(request: DeliveryRequest) -> None:
    """Check that a plan's task, or an attempt at a plan, was started by its delivery. Raises ApplicationError
    InvalidRequest where somebody else has started it."""
    place, forked, info = request.landing, request.forked, workflow.info()
    error = foreign_start_error(place.backlog) if place is not None and place.within is not None else None
    if forked is not None and forked.attempt and (info.parent is None or info.parent.workflow_id != forked.delivery):
        error = invalid_request(f"attempts at a plan are begun by their delivery: perdure retry {forked.delivery}")
    if error is not None:
        raise error


def parse_submission(raw: Any, extra_args: tuple[Any, ...]) -> tuple[DeliveryRequest, DeliveryState]:
    """Parse a request, and return it with the state that the delivery begins from. Raises ApplicationError
    InvalidRequest that names the bad field."""
    try:
        if extra_args:
            raise InvalidRequest(f"expected one JSON object, got {1 + len(extra_args)} arguments")
        request = parse_request(raw)
        state = parse_resume_state(request.resume) if request.resume else DeliveryState()
    except InvalidRequest as error:
        raise invalid_request(error.what) from None
    phases = request.phases if request.phases is not None else ALL_PHASES
    if problem := invalid_phases_reason(phases, request.branch):
        raise invalid_request(f"phases: {problem}")
    check_parent(request)
    return request, state


async def wait_for_activity(activity: ActivityHandle[T]) -> T:
    """Wait for an activity and return its result; a cancellation of the workflow asks the activity to stop.

    What it did all the same counts: where its result and the cancel request come in one workflow task, the SDK would
    drop the result. Raises ActivityError.
    """
    with suppress(asyncio.CancelledError):
        return await asyncio.shield(activity)
    for _ in range(_LOOP_STEPS):
        await asyncio.sleep(0)
    if not activity.done():
        activity.cancel()
    return await activity


def is_cancellation(error: BaseException) -> bool:
    """Return whether an error is a cancellation, also one that came as the failure of an activity."""
    return is_cancelled_exception(error)


def raise_if_cancelled() -> None:
    """Raise CancelledError where the workflow's cancellation was requested.

    An activity that ends by itself before it hears of the request ends well, and the SDK counts the cancellation as
    dealt with: without this check a cancel that meets a short turn would be forgotten.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
