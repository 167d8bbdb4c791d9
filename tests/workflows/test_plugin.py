"""One plugin makes client, worker and replayer speak the same language."""

from __future__ import annotations

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure.plugin import _converter, _runner


def test_models_pass_through_the_sandbox_and_a_runner_without_one_stays() -> None:
    runner = _runner(SandboxedWorkflowRunner())
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert {"perdure", "pydantic"} <= set(runner.restrictions.passthrough_modules)
    plain = UnsandboxedWorkflowRunner()
    assert _runner(plain) is plain


def test_without_a_converter_it_is_pydantics() -> None:
    assert _converter(None) is pydantic_data_converter
