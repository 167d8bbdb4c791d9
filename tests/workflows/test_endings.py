"""Which failure of an activity means which end of a delivery."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, RetryState, TimeoutError, TimeoutType

from perdure.models import errors
from perdure.models.delivery.result import Reason, Status
from perdure.models.delivery.turn import Ending
from workflows.endings import BAD_REQUESTS, ENDINGS, REASONS, DeliveryStopped, interpret_failure, not_delivered


def failure(cause: BaseException | None, state: RetryState = RetryState.NON_RETRYABLE_FAILURE) -> ActivityError:
    error = ActivityError(
        "failed", scheduled_event_id=1, started_event_id=2, identity="w", activity_type="implement",
        activity_id="1", retry_state=state,
    )  # fmt: skip
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("kind", "reason"), [*REASONS.items(), ("KeyError", Reason.LIMITS), (None, Reason.LIMITS)])
def test_a_typed_failure_has_its_reason_and_any_other_is_our_own_mistake(kind: str | None, reason: Reason) -> None:
    stop = interpret_failure(failure(ApplicationError("why", type=kind)))
    assert isinstance(stop, DeliveryStopped)
    assert (stop.status, stop.reason, stop.message) == (Status.NOT_DELIVERED, reason, "why")


def test_every_type_named_here_exists_in_the_tree_of_errors() -> None:
    for name in {*REASONS, *BAD_REQUESTS} - {"ResultTooLarge"}:
        assert issubclass(getattr(errors, name), errors.PerdureError)


def test_every_ending_of_an_agent_but_done_has_a_reason_and_words() -> None:
    assert ENDINGS.keys() == set(Ending) - {Ending.DONE}


@pytest.mark.parametrize("kind", BAD_REQUESTS)
def test_a_bad_request_fails_the_workflow_instead_of_ending_a_delivery(kind: str) -> None:
    error = interpret_failure(failure(ApplicationError("base: no branch x", type=kind)))
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == ("InvalidRequest", True)
    assert error.message == "InvalidRequest: base: no branch x"


def test_a_cancel_is_one_however_the_activity_heard_of_it() -> None:
    died = ApplicationError("the worker died", type="WorkerDied")
    assert isinstance(interpret_failure(failure(CancelledError("x"))), asyncio.CancelledError)
    assert isinstance(interpret_failure(failure(died, RetryState.CANCEL_REQUESTED)), asyncio.CancelledError)
    assert isinstance(interpret_failure(failure(died, RetryState.TIMEOUT)), DeliveryStopped)


def test_a_timeout_and_a_failure_without_a_cause_are_limits() -> None:
    late = TimeoutError("late", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[])
    for cause, words in ((late, "implement did not end within"), (None, "failed")):
        stop = interpret_failure(failure(cause))
        assert isinstance(stop, DeliveryStopped)
        assert stop.reason is Reason.LIMITS
        assert words in stop.message
    assert str(not_delivered(Reason.BUDGET, "m")) == "m"
