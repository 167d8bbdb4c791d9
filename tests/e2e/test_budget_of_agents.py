"""A shell inside an agent asks the model: within the turn its delivery's budget stops it, and more of it goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from temporalio.service import RPCError

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.journal import SpendLog
from perdure.models.delivery.decisions import PendingDecision
from tests import needs
from tests.engine import Engine, finished, make_target, sandboxes, until
from tests.stand_in_agent import PYTHON, StandIn

ASKS = r"""
import json, os, sys, urllib.error, urllib.request
for model in ("claude-opus-5-5", "claude-sonnet-5-5"):
    body = {"model": model, "max_tokens": 16000,
            "messages": [{"role": "user", "content": "Step: implement\n\nA title, please."}]}
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    try:
        told = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
    except urllib.error.HTTPError as error:
        told = error.read()
    print(model, told.decode())
"""
PLAY = """
[[line]]
step = "implement"
last = "A title, please"
say = "A title"
[[line]]
step = "implement"
turn = 1
[[line.use]]
tool = "bash"
input.command = '''echo before > before.txt; {python} -IS - <<'ASKS'
{asks}
ASKS'''
[[line]]
step = "implement"
turn = 2
contains = ["may ask claude-sonnet-5-5, not 'claude-opus-5-5'", "A title"]
use = [{{ tool = "bash", input = {{ command = "echo after > after.txt" }} }}]
[[line]]
step = "implement"
turn = 3
say = "Add both"
"""
CONFIG = """version = 1
[setup]
commands = []
[ship]
allow_untested = true
[steps.implement]
agent = "{agent}"
"""


async def _asked(engine: Engine) -> PendingDecision | None:
    try:
        asked = (await engine.handle().query("progress"))["asked"]
    except RPCError:  # a busy machine: it is asked again
        return None
    return PendingDecision.model_validate(asked) if asked else None


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("agent", ["stand-in", pytest.param("claude-code", marks=pytest.mark.needs("claude"))])
async def test_a_request_that_is_not_covered_stops_the_turn_and_more_budget_does_it_again(
    tmp_path: Path, ports: int, agent: str
) -> None:
    origin = make_target(tmp_path / "calc.git")
    play = PLAY.format(python=PYTHON, asks=ASKS)
    async with Engine.open(
        tmp_path / "engine",
        play,
        ports=ports,
        env={**StandIn(tmp_path).env, "PATH": f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}"},
        measured=True,
    ) as engine:
        engine.worker()
        submitted = await engine.submit(
            origin, phases=["build", "ship"], config=CONFIG.format(agent=agent), budget_usd=0.1
        )
        asked = await until(lambda: _asked(engine))
        assert (asked.gate, asked.limit) == ("budget", "usd")
        assert "of $0.10 are spent, and the agent's next request may cost $0.16" in asked.summary
        assert sandboxes(engine) == []
        assert engine.model_calls() == 1, "neither the title nor the other model was asked"
        spent = SpendLog(engine.home.workspace("calc-sub")).total_spend()
        workspace = Workspace.open(engine.home, "calc-sub")
        assert spent.at_risk_usd == 0.0
        assert spent.usd
        assert not (workspace.path / "before.txt").exists()
        await asyncio.sleep(1)
        assert engine.model_calls() == 1, "it goes on while it waits"

        await engine.handle().execute_update("add_budget", {"of": asked.target, "usd": 1})
        result = await finished(submitted, engine)
        assert result.status == "delivered", result
        assert engine.model_calls() == 4, "the reply that began the turn was not bought again"
        assert result.receipt.replies_paid_twice == 0
        assert result.usage.cost_usd == SpendLog(engine.home.workspace("calc-sub")).total_spend().usd
