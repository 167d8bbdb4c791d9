"""A stranger with nothing but a connection to Temporal: made-up state, and activities called from elsewhere, publish
nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import ActivityFailureError, Client, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure.client.history.runs import read_runs
from perdure.models.limits import TASK_QUEUE
from tests.engine import HAPPY, Engine, git, heads, make_target, pulls

QUIET = "version = 1\n[setup]\ncommands = []\n[ship]\nallow_untested = true\n"
ONCE = RetryPolicy(maximum_attempts=1)


@workflow.defn(name="Delivery", sandboxed=False)
class TenLines:
    """A stranger's workflow on a queue of his own: calls one activity of the host, or goes on as one of ours."""

    @workflow.run
    async def run(self, call: dict[str, Any]) -> Any:
        if "goes_on" in call:
            workflow.continue_as_new(call["goes_on"], task_queue=TASK_QUEUE)
        if "child" in call:
            return await workflow.execute_child_workflow(
                call["child"], call["raw"], id=call["id"], task_queue=TASK_QUEUE
            )
        return await workflow.execute_activity(
            call["name"],
            call["work"],
            task_queue=call["queue"],
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )


class Stranger:
    """His client and his worker. `built`: what `prepare`, `commit` and tests have told in the history of a delivery."""

    def __init__(self, engine: Engine, queue: str) -> None:
        self.engine, self.client, self.queue = engine, engine.client, queue
        self.built: dict[str, Any] = {}

    async def reads(self, id: str) -> dict[str, Any]:
        for run in await read_runs(self.client, id):
            for act in run.activities.values():
                if act.result is not None:
                    self.built[act.activity] = act.result
        return self.built

    async def starts(self, kind: str, raw: Any, id: str, queue: str = TASK_QUEUE, **more: Any) -> Any:
        handle = await self.client.start_workflow(
            kind, raw, id=id, task_queue=queue, id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE, **more
        )
        return await handle.result()

    async def refused(self, kind: str, raw: Any, id: str, queue: str = TASK_QUEUE, **more: Any) -> str:
        with pytest.raises(WorkflowFailureError) as failed:
            await self.starts(kind, raw, id, queue, **more)
        return _reason(failed.value)

    async def calls(self, name: str, work: dict[str, Any], queue: str) -> str:
        """The one line with which an activity ends that his workflow calls."""
        call = {"name": name, "work": work, "queue": queue}
        return await self.refused("Delivery", call, f"his-{uuid.uuid4()}", self.queue)

    async def calls_alone(self, name: str, work: dict[str, Any], queue: str) -> str:
        """Likewise without any workflow."""
        with pytest.raises(ActivityFailureError) as failed:
            await self.client.execute_activity(
                name, work, id=f"his-{uuid.uuid4()}", task_queue=queue, start_to_close_timeout=timedelta(seconds=30)
            )
        return _reason(failed.value)


def _reason(error: BaseException) -> str:
    """The one line of the first failure that is not only about what failed below it."""
    while not isinstance(error, ApplicationError):
        error = getattr(error, "cause")  # noqa: B009  # of a workflow, a child or an activity
    assert error.non_retryable, error
    assert "\n" not in error.message.strip()
    return error.message


@asynccontextmanager
async def stranger(engine: Engine) -> AsyncIterator[Stranger]:
    queue = f"his-{uuid.uuid4()}"
    client = await Client.connect(engine.client.service_client.config.target_host, namespace=engine.client.namespace)
    async with Worker(client, task_queue=queue, workflows=[TenLines]):
        yield Stranger(engine, queue)


def made_up(built: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The state of a delivery that is said to be tested and reviewed, on a branch of the stranger's choice."""
    commit, prepared = built["commit"], built["prepare"]
    green = {"status": "green", "passed": 4321, "tree": commit["tree"], "summary": "4321 green"}
    return {
        "prepared": {**prepared, "phases": ["ship"], "branch": "hijacked", "branches": {}},
        "planning": {"kind": "feature", "title": "Hijacked"},
        "building": {"built": True, "head": commit["commit"]},
        "testing": {"verdict": green, "tested_commit": commit["commit"]},
        "reviewing": {"result": {"status": "clean"}, "reviewed_commit": commit["commit"]},
        **more,
    }


async def built_only(engine: Engine, origin: Path) -> None:
    """A delivery that has built and was asked to publish nothing."""
    await (await engine.submit(origin, phases=["build"], config=QUIET)).delivery.result()


@pytest.mark.timeout(300)
async def test_made_up_state_publishes_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        await built_only(engine, origin)
        built, before = await he.reads("calc-sub"), heads(origin)
        run = (await engine.handle().describe()).run_id
        request = {"repository": str(origin), "request": "Add sub", "config": QUIET}
        state = made_up(built)
        fork = {
            "delivery": "calc-sub",
            "at": "implement:1",
            "checkpoint": built["prepare"]["checkpoint"],
            "queue": built["prepare"]["queue"],
        }
        points: dict[str, dict[str, Any]] = {
            "continued": {"resume": {"run_id": run, "state": state, "continued": True}},
            "retried": {"resume": {"run_id": run, "state": state}},
            "of no run": {"resume": {"run_id": "", "state": state}},
            "rewound": {"resume": {"run_id": run, "state": state, "rewound": "implement:1"}},
            "forked": {"resume": {"run_id": "", "state": state}, "forked": fork},
        }
        for name, point in points.items():
            raw = {**request, **point}
            id = "calc-sub" if name != "forked" else "calc-fork"
            told = await he.refused("Delivery", raw, id)
            assert told.startswith("InvalidRequest: resume: "), (name, told)
            memo = {"resume": {"run_id": run, "state": state}}
            told = await he.refused("Delivery", {"repository": "", "request": ""}, id, memo=memo)
            again = (await engine.handle(id).describe()).run_id
            told = await he.refused("Delivery", {**request, "resume": {"run_id": again, "state": state}}, id)
            assert told.startswith("InvalidRequest: resume: "), (name, told)
        continued = {**request, **points["continued"]}
        await he.client.start_workflow("Delivery", {"goes_on": continued}, id="calc-sub", task_queue=he.queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await engine.handle().result()
        assert "resume: " in _reason(failed.value)
        attempt = {**points["forked"], "forked": {**fork, "delivery": "his-parent", "attempt": 1}}
        call = {"child": "Delivery", "raw": {**request, **attempt}, "id": "his-parent/attempt-1"}
        assert "resume: " in await he.refused("Delivery", call, "his-parent", he.queue)
        assert heads(origin) == before
        assert pulls(origin) == []


@pytest.mark.timeout(300)
async def test_activities_that_publish_do_not_work_for_workflows_of_others(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        await built_only(engine, origin)
        built, before = await he.reads("calc-sub"), heads(origin)
        prepared, commit = built["prepare"], built["commit"]
        common = {"delivery": "calc-sub", "policy": prepared["policy"], "workflow_id": "calc-sub"}
        tests = {"status": "green", "passed": 4321, "tree": commit["tree"]}
        base, head = git(origin, "rev-parse", "main"), commit["commit"]
        place = {"backlog": "night", "item": "one", "branch": "release"}
        backlog = {"backlog": "night", "repository": str(origin), "backlog_request": {"repository": str(origin)}}
        words = {"title": "Any", "body": ""}
        pushed = {"branch": "hijacked", "head": head, "tests": tests}
        works: dict[str, dict[str, Any]] = {
            "push_branch": {**common, **pushed},
            "open_pull_request": {**common, **pushed, "base": "main", "title": "Any"},
            "land": {**common, "place": place, "commit": head, "onto": base, "tests": tests},
            "publish_artifacts": common,
            "comment": common,
            "make_branch": {**backlog, "branch": "release"},
            "close_backlog": {**backlog, **words, "base": "main", "branch": "release", "head": head},
            "move_branch": {**backlog, "branch": "release", "base_sha": base, "onto": base, "head": head},
            "close": {"delivery": "calc-sub"},
        }
        for name, work in works.items():
            told = await he.calls(name, work, prepared["queue"])
            assert "no workflow of Perdure's" in told, (name, told)
            told = await he.calls_alone(name, work, prepared["queue"])
            assert "no workflow of Perdure's" in told, (name, told)
        assert heads(origin) == before
        assert pulls(origin) == []
