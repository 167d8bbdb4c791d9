"""Ends of a delivery other than delivered: their exception, the meaning of activity failures, bad submissions, and
cancellation."""

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
from perdure.models.delivery.result import Reason, Status
from perdure.models.delivery.state import DeliveryState, parse_resume_state
from perdure.models.delivery.turn import Ending
from perdure.models.delivery.work import EscalationSettings
from perdure.models.errors import InvalidRequest
from perdure.models.limits import PLACE_CHARS
from perdure.models.phases import ALL_PHASES, invalid_phases_reason
from perdure.models.rules.admission import amounts_refusal, delivery_refusal, id_refusal
from perdure.models.rules.parallel_builds import is_tasks_backlog
from perdure.text import shell_word, shorten, valid_text

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

ADMISSION = "admission"
"""The patch under which workflows refuse what `perdure.models.rules.admission` refuses: marked only where it does."""


class DeliveryStopped(Exception):
    """Raised to end a delivery on purpose, with its status, its reason and a message."""

    def __init__(self, status: Status, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


def not_delivered(reason: Reason, message: str) -> DeliveryStopped:
    """Return the exception that ends a delivery with status NOT_DELIVERED, for a reason."""
    return DeliveryStopped(Status.NOT_DELIVERED, reason, message)


def interpret_failure(error: ActivityError) -> BaseException:
    """Return, not raise, the exception that an activity's final failure means for the delivery: asyncio.CancelledError
    for a cancellation, ApplicationError InvalidRequest for a bad request, DeliveryStopped with a reason for anything
    else.

    A turn that dies after a cancel request is reported as an ordinary failure with retry state CANCEL_REQUESTED; it
    counts as a cancellation.
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
    """Return why an activity that was cut off again and again (its worker died, or its replies were cut) is not begun
    once more, in one line; empty for any other failure."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in ("TurnKillsWorker", "RepliesCut"):
        return ""
    return cause.message.partition("\n")[0]


def reached_limit(error: ActivityError) -> LimitReached | None:
    """Return the spending limit that a turn was stopped at, from the failure BudgetReached; None for any other
    failure."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == "BudgetReached" and cause.details:
        return LimitReached.model_validate(cause.details[0])
    return None


def people_to_ask(error: ActivityError) -> EscalationSettings:
    """Return whether people are asked, and notified, about a `prepare` that was cut off, as the failure's details say;
    without details, nobody is."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return EscalationSettings.model_validate(details[0]) if details else EscalationSettings()


def invalid_request(message: str) -> ApplicationError:
    """Return the error that fails a workflow at once, as InvalidRequest, with a message that says which field is
    wrong."""
    return ApplicationError(f"InvalidRequest: {message}", type="InvalidRequest", non_retryable=True)


def refusal_reason(error: ApplicationError) -> str:
    """Return why a request was refused, in one line, as its field says it."""
    return error.message.removeprefix("InvalidRequest: ").partition("\n")[0]


def foreign_start_error(backlog_id: str) -> ApplicationError | None:
    """Return ApplicationError InvalidRequest when this workflow, a plan's backlog of tasks or one of its tasks, was not
    started by its own delivery or backlog; None when it was. `backlog_id`: of the backlog of tasks."""
    parent, delivery = workflow.info().parent, backlog_id.rpartition("/")[0]
    starter = delivery if backlog_id == workflow.info().workflow_id else backlog_id
    if parent is not None and parent.workflow_id == starter and is_tasks_backlog(backlog_id, delivery):
        return None
    return invalid_request(f"tasks of a plan are begun by their delivery: perdure retry {shell_word(delivery)}")


def refused_state(reason: str) -> DeliveryState:
    """Return the state of a delivery whose request was refused."""
    return DeliveryState(status=Status.NOT_DELIVERED, reason=Reason.INVALID_REQUEST, message=reason)


def readable_text(raw: Any, field: str) -> str:
    """Return a text of a request that could not be parsed, for people; empty where there is none. It is cut."""
    text = raw.get(field) if isinstance(raw, dict) else None
    return shorten(valid_text(text), PLACE_CHARS) if isinstance(text, str) else ""


def check_parent(request: DeliveryRequest) -> None:
    """Raise ApplicationError InvalidRequest when this delivery is a plan's task, or an attempt at a plan, and another
    workflow than the one it belongs to, or nobody, has started it. For any other request do nothing."""
    place, forked, info = request.landing, request.forked, workflow.info()
    error = foreign_start_error(place.backlog) if place is not None and request.parent_delivery is not None else None
    if forked is not None and forked.attempt and (info.parent is None or info.parent.workflow_id != forked.delivery):
        error = invalid_request(
            f"attempts at a plan are begun by their delivery: perdure retry {shell_word(forked.delivery)}"
        )
    if error is not None:
        raise error


def require_no_more(extra_args: tuple[Any, ...], *, taken: int = 1) -> None:
    """Raise InvalidRequest when a workflow was started with more arguments than the `taken` that it takes."""
    if extra_args:
        raise InvalidRequest(f"expected one JSON object, got {taken + len(extra_args)} arguments")


def parse_submission(raw: Any, extra_args: tuple[Any, ...]) -> tuple[DeliveryRequest, DeliveryState]:
    """Parse a request, and return it with the state that the delivery begins from: that of the delivery it resumes, or
    an empty one. Raises ApplicationError InvalidRequest, which names the bad field, for a request that is not valid or
    more than one argument; also when the parent workflow of a plan's task is not the backlog of that plan's tasks, or
    that of an attempt is not its delivery."""
    try:
        require_no_more(extra_args)
        request = parse_request(raw)
        state = parse_resume_state(request.resume) if request.resume else DeliveryState()
    except InvalidRequest as error:
        raise invalid_request(error.what) from None
    phases = request.phases if request.phases is not None else ALL_PHASES
    if problem := invalid_phases_reason(phases, request.branch):
        raise invalid_request(f"phases: {problem}")
    # A request that an earlier release has accepted goes on: its history is replayed, its retry is let through. The
    # origin of a retry is asked for, and only its amounts may be others then.
    resume = request.resume
    reason = delivery_refusal(request) if resume is None else "" if resume.continued else amounts_refusal(request)
    info = workflow.info()
    if not (reason or resume or info.parent):  # what a workflow starts was counted with it
        reason = id_refusal(info.workflow_id)
    if reason and workflow.patched(ADMISSION):
        raise invalid_request(reason)
    check_parent(request)
    return request, state


async def wait_for_activity(activity: ActivityHandle[T]) -> T:
    """Wait for an activity and return its result. A cancellation of the workflow meanwhile asks the activity to stop,
    and its end is waited for.

    A result that has come all the same is returned: when it and the cancel request come in one workflow task, the SDK
    would drop it. Raises ActivityError when the activity failed or was cancelled.
    """
    with suppress(asyncio.CancelledError):
        return await asyncio.shield(activity)
    for _ in range(_LOOP_STEPS):
        await asyncio.sleep(0)
    if not activity.done():
        activity.cancel()
    return await activity


def failure_reason(error: ActivityError) -> str:
    """Return why an activity failed, in words for people."""
    meaning = interpret_failure(error)
    text = meaning.message if isinstance(meaning, ApplicationError) else str(meaning)
    return text.removeprefix("InvalidRequest: ")


def is_cancellation(error: BaseException) -> bool:
    """Return whether an error is a cancellation, also one that came as the failure of an activity."""
    return is_cancelled_exception(error)


def raise_if_cancelled() -> None:
    """Raise asyncio.CancelledError when the workflow's cancellation was requested; else do nothing.

    An activity that ends by itself before it hears of the request ends well, and the SDK counts the cancellation as
    dealt with: without this check a cancel that meets a short turn would be lost.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
