"""Whatever the model's API does, a delivery is delivered anyway or ends with a typed, readable reason."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engine import Engine, finished, make_target

PASSING = ["429", "hang", "cut", "max_tokens"]
FINAL = {"refusal": ("refused", "refused"), "401": ("refused", "ANTHROPIC_API_KEY")}
"""One of each way through a delivery; which fault is of which kind: tests/adapters/agents/builtin/test_model.py."""

SCREENPLAY = (
    "title = 'faults'\n"
    + "".join(
        f"""
[[line]]
step = "implement"
turn = 1
contains = ["fault {fault}!"]
fault = "{fault}"
{"retry_after = 0.1" if fault == "429" else ""}
times = {2 if fault in PASSING and fault not in ("hang", "max_tokens") else 1}
use = [{{ tool = "write", input = {{ path = "new.txt", content = "{fault}\\n" }} }}]
"""
        for fault in [*PASSING, *FINAL]
    )
    + """
[[line]]
step = "implement"
last = "cut off"
use = [{ tool = "write", input = { path = "new.txt", content = "after all\\n" } }]
[[line]]
step = "implement"
contains = ["new.txt"]
say = "Write a file"
[[line]]
step = "implement"
use = [{ tool = "write", input = { path = "new.txt", content = "after all\\n" } }]
"""
)

CONFIG = "version = 1\n[setup]\ncommands = []\n"


@pytest.mark.timeout(180)
async def test_every_class_of_model_fault_ends_well_or_with_a_reason(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(
        tmp_path, SCREENPLAY, ports=ports, env={"PERDURE_MODEL_SILENCE_S": "2"}, measured=True
    ) as engine:
        engine.worker()
        names = [*PASSING, *FINAL]
        submitted = [
            await engine.submit(
                origin, f"fault {name}!", id=f"fault-{name.replace('_', '-')}", phases=["build"], config=CONFIG
            )
            for name in names
        ]
        results = await asyncio.gather(*(finished(one, engine, timeout=150) for one in submitted))
        for name, result in zip(names, results, strict=True):
            if name in PASSING:
                assert result.status == "completed", (name, result.message)
            else:
                reason, words = FINAL[name]
                assert (result.status, result.reason) == ("not_delivered", reason), (name, result)
                assert words in result.message, (name, result.message)
            assert result.receipt.replies_paid_twice == 0
        by_name = dict(zip(names, results, strict=True))
        assert by_name["429"].receipt.replies_cut == 0, "a refused request is not billed"
        assert by_name["cut"].receipt.replies_cut == 2, "a reply that was cut off may have been billed"
        assert by_name["401"].usage.cost_usd == 0
