"""The Temporal plugin of Perdure: data converter, workflow sandbox and interceptors, the same for client, worker, tests
and replayer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import temporalio.client
import temporalio.worker
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure.converter import perdure_data_converter
from perdure.workflow_messages import MessageInterceptor

Interceptors = Sequence[temporalio.client.Interceptor | temporalio.worker.Interceptor]


def perdure_plugin(*, interceptors: Interceptors = ()) -> SimplePlugin:
    """Return the plugin for `Client.connect(plugins=[…])`: data converter, workflow sandbox, one that fits messages
    to their handlers, and `interceptors`.

    A worker inherits it from its client; a Replayer is given it again. Models and workflows hold no state and pass
    through the workflow sandbox, so that loading them once serves every run (docs/adr/0014).
    """
    return SimplePlugin(
        "perdure",
        data_converter=perdure_data_converter,
        workflow_runner=_runner,
        interceptors=[MessageInterceptor(), *interceptors],
    )


def _runner(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Return the workflow sandbox with the modules of perdure, workflows and pydantic passed through; any other runner
    as it is."""
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules("perdure", "workflows", "pydantic", "pydantic_core")
        return dataclasses.replace(runner, restrictions=restrictions)
    assert runner is not None
    return runner
