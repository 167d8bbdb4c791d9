"""One plugin makes client, worker and replayer speak the same language."""

from __future__ import annotations

import dataclasses

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from perdure.models.base import UnreadableValue
from perdure.models.delivery.request import DeliveryRequest
from perdure.plugin import Understanding, _converter, _runner


class Mine(DefaultFailureConverter):
    """Somebody's own."""


def test_models_and_workflows_pass_through_the_sandbox_and_a_runner_without_one_stays() -> None:
    runner = _runner(SandboxedWorkflowRunner())
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert {"perdure", "workflows", "pydantic"} <= set(runner.restrictions.passthrough_modules)
    plain = UnsandboxedWorkflowRunner()
    assert _runner(plain) is plain


def test_what_speaks_for_itself_is_pydantics_and_a_codec_that_somebody_has_configured_stays() -> None:
    assert _converter(None).payload_converter_class is Understanding
    mine = _converter(dataclasses.replace(pydantic_data_converter, failure_converter_class=Mine))
    assert (mine.payload_converter_class, mine.failure_converter_class) == (Understanding, Mine)


def test_what_cannot_be_read_is_a_value_where_nothing_was_expected_and_an_error_where_something_was() -> None:
    read = Understanding().from_payloads
    good, bad = Payload(metadata={"encoding": b"json/plain"}, data=b"{}"), Payload(data=b"?")
    broken = Payload(metadata={"encoding": b"json/plain"}, data=b'{"request": ')
    found = read([good, broken, bad])
    assert found[0] == {}
    assert found[1:] == [
        UnreadableValue("Invalid JSON: EOF while parsing a value at line 1 column 12"),
        UnreadableValue("Unknown payload encoding <unknown>"),
    ]
    for payload in (broken, bad):
        with pytest.raises((ValueError, KeyError)):
            read([payload], [DeliveryRequest])
