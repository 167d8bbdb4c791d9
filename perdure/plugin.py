"""One object that makes client, worker, tests and replayer speak the same language."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import temporalio.client
import temporalio.worker
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

Interceptors = Sequence[temporalio.client.Interceptor | temporalio.worker.Interceptor]


def perdure_plugin(*, interceptors: Interceptors = ()) -> SimplePlugin:
    """Data converter, workflow sandbox and interceptors, for `Client.connect(plugins=[…])`.

    A worker inherits it from its client; a Replayer is given it again. The models are pure and passed through the
    workflow sandbox, so that loading them once serves every run.
    """
    return SimplePlugin(
        "perdure",
        data_converter=_converter,
        workflow_runner=_runner,
        interceptors=list(interceptors),
    )


def _converter(converter: DataConverter | None) -> DataConverter:
    """Pydantic's converter; a codec or failure converter that somebody has configured stays."""
    if converter is None:
        return pydantic_data_converter
    return dataclasses.replace(converter, payload_converter_class=pydantic_data_converter.payload_converter_class)


def _runner(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules("perdure", "pydantic", "pydantic_core")
        return dataclasses.replace(runner, restrictions=restrictions)
    assert runner is not None
    return runner
