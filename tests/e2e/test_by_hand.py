"""A whole delivery by hand: the `temporal` command as docs/submitting.md types it, a real worker, nothing of ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from perdure.local.places import temporal_binary
from perdure.models.delivery.decisions import PendingDecision
from schemas import SHAPES, build_schema
from tests.engine import HAPPY, Engine, make_target, until
from tests.guide import Stranger, snippet


@pytest.mark.timeout(180)
async def test_the_temporal_command_submits_rejects_approves_signals_and_reads_the_end(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.worker()
        hand = Stranger(engine.client.service_client.config.target_host, tmp_path, str(origin))
        hand.env["TEMPORAL_NAMESPACE"] = engine.client.namespace
        hand.env["PATH"] = f"{temporal_binary().parent}:{os.environ['PATH']}"
        delivery = engine.perdure.delivery("from-shell")

        async def asked(behind: str = "") -> PendingDecision:
            async def found() -> PendingDecision | None:
                asked = (await delivery.describe()).pending_decision
                return asked if asked is not None and asked.target != behind else None

            there: PendingDecision = await until(found, timeout=90)
            return there

        out = await hand.runs("bash", "-euc", snippet("submit"))
        assert str(origin) in out
        first = await asked()
        reject, approve = snippet("decide").splitlines()
        assert f"rejected: plan {first.target}" in await hand.runs("bash", "-euc", reject)
        assert f'"of":"{(await asked(behind=first.target)).target}"' in await progress(hand)
        assert "approved: plan" in await hand.runs("bash", "-euc", approve)
        end = await hand.runs("bash", "-euc", snippet("result"))
        assert "completed" in end
        valid("progress", await engine.handle("from-shell").query("progress"))
        result = await engine.handle("from-shell").result()
        valid("result", result)
        valid("plan", json.loads(await delivery.artifact(result["plan"])))
        assert engine.rehearsal is not None
        assert "with types, please" in json.dumps([call.body["messages"][-1] for call in engine.rehearsal.calls])

        # Again under another id, decided by a signal while no worker runs.
        again = {name: snippet(name).replace("from-shell", "by-signal") for name in ("submit", "signalled", "result")}
        await hand.runs("bash", "-euc", again["submit"])
        delivery = engine.perdure.delivery("by-signal")
        hand.env["OF"] = (await asked()).target
        engine.end_workers()
        await hand.runs("bash", "-euc", again["signalled"])
        engine.worker()
        assert "completed" in await hand.runs("bash", "-euc", again["result"])


def valid(name: str, value: Any) -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == name)
    Draft202012Validator(build_schema(shape)).validate(value)


async def progress(hand: Stranger) -> str:
    query = snippet("submit").splitlines()[-1]
    return (await hand.runs("bash", "-euc", query + " --output json")).replace(" ", "").replace("\n", "")
