"""Signals, updates and queries as they reach a workflow: any Temporal client may send one, with any number of arguments
of any type. What does not fit its handler would fail a task of the workflow, which is tried for ever while the sender
waits, and then no query, update or cancellation comes through either."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, get_type_hints

import temporalio.worker
from pydantic import BaseModel
from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.exceptions import ApplicationError

from perdure.models.base import UnreadableValue
from perdure.models.delivery.decisions import parse_input
from perdure.models.errors import InvalidRequest
from perdure.text import format_count


class MessageInterceptor(temporalio.worker.Interceptor):
    """An interceptor that fits the arguments of messages to their handlers, and makes a workflow's current details when
    somebody looks at them."""

    def workflow_interceptor_class(
        self, input: temporalio.worker.WorkflowInterceptorClassInput
    ) -> type[temporalio.worker.WorkflowInboundInterceptor] | None:
        return _MessageInbound


class _MessageInbound(temporalio.worker.WorkflowInboundInterceptor):
    async def handle_signal(self, input: temporalio.worker.HandleSignalInput) -> None:
        """Handle a signal by its first arguments, as many as its handler takes. One whose arguments do not fit is
        ignored. Both are noted for people."""
        if workflow.get_signal_handler(input.signal) is not None:
            try:
                input.args, surplus = fit_arguments(input.signal, input.args)
            except InvalidRequest as error:
                return note_message(f"signal {input.signal} was ignored: {error.what}")
            if surplus:
                note_message(f"signal {input.signal}: {format_count(surplus, 'argument')} more than it takes")
        return await super().handle_signal(input)

    def handle_update_validator(self, input: temporalio.worker.HandleUpdateInput) -> None:
        """Validate an update. Raises ApplicationError NotCounted where its arguments do not fit its handler."""
        if workflow.get_update_handler(input.update) is not None:
            try:
                input.args, surplus = fit_arguments(input.update, input.args)
            except InvalidRequest as error:
                raise ApplicationError(error.what, type="NotCounted", non_retryable=True) from None
            if surplus:
                reason = f"{input.update} takes one JSON object, got {len(input.args) + surplus} arguments"
                raise ApplicationError(reason, type="NotCounted", non_retryable=True)
        super().handle_update_validator(input)

    async def handle_query(self, input: temporalio.worker.HandleQueryInput) -> Any:
        """Answer a query, whatever its arguments: no query here takes any, and the SDK's own take none. When it is the
        one for metadata, current details are empty and the workflow has a method `shown`, put the text it returns
        there."""
        if workflow.get_query_handler(input.query) is not None:
            input.args = []
        answer = await super().handle_query(input)
        make_details = getattr(workflow.instance(), "shown", None)
        if make_details is not None and isinstance(answer, WorkflowMetadata) and not answer.current_details:
            answer.current_details = make_details()
        return answer


def fit_arguments(name: str, args: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the arguments that a handler of the workflow that runs takes, those that it expects as a model parsed as
    one, and the number of those that it does not take. Raises InvalidRequest, with one line, where one is missing or is
    no such model.

    name  of the message, which is the name of the method that handles it; a handler that is no method takes anything
    """
    method = getattr(type(workflow.instance()), name, None)
    parameters = _parameters_of(method) if method is not None else ((None, False),)
    fitted = list[Any]()
    for (model, is_required), value in zip(parameters, [*args, *[_MISSING] * len(parameters)], strict=False):
        if value is _MISSING:
            if is_required:
                raise InvalidRequest("expected one JSON object, got no argument")
            break
        fitted.append(parse_input(model, value) if model is not None and not isinstance(value, model) else value)
    return fitted, max(0, len(args) - len(parameters))


def note_message(note: str) -> None:
    """Add a note for people to the workflow that runs, or to the worker's log where it has no method `note_message`."""
    add_note = getattr(workflow.instance(), "note_message", workflow.logger.warning)
    add_note(note)


_MISSING = UnreadableValue("missing")


@lru_cache(maxsize=256)
def _parameters_of(function: Callable[..., Any]) -> tuple[tuple[type[BaseModel] | None, bool], ...]:
    """Return, for each parameter of a handler but `self`, the model that it expects, None for anything, and whether it
    is required."""
    hints = get_type_hints(function)
    rows = list[tuple[type[BaseModel] | None, bool]]()
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints.get(parameter.name)
        model = hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None
        rows.append((model, parameter.default is inspect.Parameter.empty))
    return tuple(rows)
