"""Submitting with nothing of ours: plain JSON to a workflow type by name, and the `temporal` command."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from perdure.local.places import temporal_binary
from perdure.models.delivery.decisions import PendingDecision
from schemas import SHAPES, build_schema
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, until
from tests.guide import Stranger, snippet


async def _fails(client: Client, request: Any, id: str) -> ApplicationError:
    """Submit and wait for the failure; the client has no plugin, no converter, no model of ours."""
    handle = await client.start_workflow("Delivery", request, id=id, task_queue="perdure")
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    return failure.value.cause


@pytest.mark.always
async def test_a_bad_submission_from_a_foreign_client_fails_within_a_second_and_names_the_field(
    tmp_path: Path, ports: int
) -> None:
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        stranger = await Client.connect(
            engine.client.service_client.config.target_host, namespace=engine.client.namespace
        )
        wrong: dict[str, tuple[Any, str]] = {
            "misspelt": ({"repository": "/x", "reqest": "y"}, "reqest: unknown field (did you mean request?)"),
            "missing": ({"repository": "/x"}, "request: required field is missing"),
            "empty": ({"repository": "/x", "request": "  "}, "request: is empty"),
            "large": ({"repository": "/x", "request": "x" * 65537}, "at most 65536 (64 KiB)"),
            "phase": ({"repository": "/x", "request": "y", "phases": ["plan", "shp"]}, "phases.1"),
            "alone": ({"repository": "/x", "request": "y", "phases": ["ship"]}, "ship needs something to work on"),
            "land": ({"repository": "/x", "request": "y", "phases": ["land"]}, "it comes with a backlog"),
            "text": ("just words", "expected one JSON object, got a string"),
            "nothing": (None, "expected one JSON object, got null"),
        }
        await _fails(stranger, {}, "warm-up")
        started = time.monotonic()
        for id, (request, words) in wrong.items():
            failure = await _fails(stranger, request, id)
            assert failure.type == "InvalidRequest"
            assert failure.non_retryable
            assert words in failure.message, failure.message
        # Not a measurement: eight of these within a minute means that none waited for a retry or a timeout.
        assert time.monotonic() - started < 60
        missing = await _fails(stranger, {"repository": str(tmp_path / "no"), "request": "y"}, "no-repository")
        assert missing.type == "InvalidRequest"
        lands = {"backlog": "none", "item": "a", "branch": "main"}
        onto_main = {"repository": str(make_target(tmp_path / "calc.git")), "request": "y", "landing": lands}
        failure = await _fails(stranger, onto_main, "lands-on-main")
        assert (failure.type, "a backlog's deliveries are begun by it" in failure.message) == ("InvalidRequest", True)


@pytest.mark.always
async def test_the_id_is_the_delivery(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        first = await engine.submit(origin, **BUILT)
        second = await engine.submit(origin, **BUILT)
        assert (first.attached, second.attached) == (False, True)
        result = await finished(first, engine)
        third = await engine.submit(origin, **BUILT)
        assert third.attached
        again = await finished(third, engine)
        assert again.run_id == result.run_id, "a finished delivery was started again"
        assert again.pull_request == result.pull_request


@pytest.mark.always
async def test_any_workflow_id_becomes_a_safe_place_on_disk(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, id="../../Évil id/..", **BUILT), engine)
        assert result.status == "delivered"
        assert result.delivery_id == "../../Évil id/.."
        assert {path.parent for path in (tmp_path / "home" / "workspaces").iterdir()} == {
            tmp_path / "home" / "workspaces"
        }
        assert sorted(path.name for path in tmp_path.iterdir()) == ["calc.git", "calc.git-work", "home", "worker.log"]


@pytest.mark.timeout(180)
async def test_the_temporal_command_rejects_and_decides_while_no_worker_runs(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        hand = Stranger(engine.client.service_client.config.target_host, tmp_path, str(origin))
        hand.env["TEMPORAL_NAMESPACE"] = engine.client.namespace
        hand.env["PATH"] = f"{temporal_binary().parent}:{os.environ['PATH']}"
        delivery = engine.perdure.delivery("again")
        await engine.submit(origin, id="again", phases=["plan"], gates=["plan"])

        async def asked(behind: str = "") -> PendingDecision:
            async def found() -> PendingDecision | None:
                asked = (await delivery.describe()).pending_decision
                return asked if asked is not None and asked.target != behind else None

            there: PendingDecision = await until(found, timeout=90)
            return there

        first = await asked()
        reject = ("temporal", "workflow", "update", "execute", "--workflow-id", "again", "--name", "reject")
        assert f"rejected: plan {first.target}" in await hand.runs(*reject, "--input", '{"note": "with types, please"}')
        hand.env["OF"] = (await asked(behind=first.target)).target
        engine.end_workers()
        await hand.runs("bash", "-euc", snippet("signalled"))
        engine.worker()
        valid("result", result := await engine.handle("again").result())
        assert result["status"] == "completed"
        valid("progress", await engine.handle("again").query("progress"))
        valid("plan", json.loads(await delivery.artifact(result["plan"])))
        assert engine.rehearsal is not None
        assert "with types, please" in json.dumps([call.body["messages"][-1] for call in engine.rehearsal.calls])


def valid(name: str, value: Any) -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == name)
    Draft202012Validator(build_schema(shape)).validate(value)
