"""A workflow type that there is none of: the call that sends it, and the workflow, say which one was meant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.waiting import patient
from workflows import WORKFLOWS
from workflows.unknown_workflow import WORKFLOW_TYPES, UnknownWorkflow, nearest_workflow_type


@pytest.mark.parametrize(
    ("name", "near"), [("Delivry", "Delivery"), ("delivery", "Delivery"), ("Backlgo", "Backlog"), ("Specialist", None)]
)
def test_what_was_probably_meant_is_named_and_what_may_come_later_is_not(name: str, near: str | None) -> None:
    assert nearest_workflow_type(name) == near


def test_every_workflow_of_ours_is_among_the_names() -> None:
    assert {each.__name__ for each in WORKFLOWS} - {UnknownWorkflow.__name__} == set(WORKFLOW_TYPES)


async def test_a_misspelt_type_fails_at_once_in_the_call_and_in_the_workflow(client: Client, fresh: str) -> None:
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        "Delivry", {}, id=fresh, task_queue=fresh, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    async with Worker(client, task_queue=fresh, workflows=[UnknownWorkflow]), asyncio.timeout(patient(30)):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await client.execute_update_with_start_workflow("attach", {}, start_workflow_operation=start)
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(fresh).result()
    for cause in (refused.value.cause, failed.value.cause):
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.message.endswith("no workflow type Delivry (did you mean Delivery?)")) == (
            "InvalidRequest",
            True,
        )
