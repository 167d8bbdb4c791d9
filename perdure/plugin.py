"""An object that makes client, worker, tests and replayer speak the same language."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import temporalio.client
import temporalio.worker
from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure.models.base import UnreadableValue
from perdure.text import one_line

Interceptors = Sequence[temporalio.client.Interceptor | temporalio.worker.Interceptor]


def perdure_plugin(*, interceptors: Interceptors = ()) -> SimplePlugin:
    """Data converter, workflow sandbox and interceptors, for `Client.connect(plugins=[…])`.

    A worker inherits it from its client; a Replayer is given it again. Models and workflows hold no state and pass
    through the workflow sandbox, so that loading them once serves every run (docs/adr/0014).
    """
    return SimplePlugin(
        "perdure",
        data_converter=_converter,
        workflow_runner=_runner,
        interceptors=[_Showing(), *interceptors],
    )


def _converter(converter: DataConverter | None) -> DataConverter:
    """Pydantic's converter; a codec or failure converter that somebody has configured stays."""
    return dataclasses.replace(converter or pydantic_data_converter, payload_converter_class=Understanding)


class Understanding(PydanticPayloadConverter):
    """Pydantic's, except that what strangers send, for which no type is expected, is never an error.

    An argument that cannot be decoded fails a task of the workflow, which is tried for ever while whoever
    sent it waits. JavaScript sends such a thing when it cuts a text in the middle of a character.
    """

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        hints: list[Any] = [*(type_hints or ()), *[None] * len(payloads)]
        return [self._one(payload, hint) for payload, hint in zip(payloads, hints, strict=False)]

    def _one(self, payload: Payload, hint: Any) -> Any:
        try:
            return super().from_payloads([payload], [hint])[0]
        except Exception as error:
            if hint is not None and hint is not Any:
                raise
            return UnreadableValue(_said(error))


def _said(error: Exception) -> str:
    words = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).strip("'")
    return one_line(words)


class _Showing(temporalio.worker.Interceptor):
    """Asks a workflow that has a method `shown` for its current details when somebody looks at them."""

    def workflow_interceptor_class(
        self, input: temporalio.worker.WorkflowInterceptorClassInput
    ) -> type[temporalio.worker.WorkflowInboundInterceptor] | None:
        return _ShownWhenLookedAt


class _ShownWhenLookedAt(temporalio.worker.WorkflowInboundInterceptor):
    async def handle_query(self, input: temporalio.worker.HandleQueryInput) -> Any:
        answer = await super().handle_query(input)
        made = getattr(workflow.instance(), "shown", None)
        if made is not None and isinstance(answer, WorkflowMetadata) and not answer.current_details:
            answer.current_details = made()
        return answer


def _runner(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules("perdure", "workflows", "pydantic", "pydantic_core")
        return dataclasses.replace(runner, restrictions=restrictions)
    assert runner is not None
    return runner
