"""Histories and conversations that grow long: a turn costs little, and nothing is forgotten in what goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from perdure.adapters.worker.turn.builtin_agent import SUMMED_UP
from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.models.crash import CrashPoint
from perdure.plugin import perdure_plugin
from perdure.rehearsal.record import REHEARSAL_BODIES_KEPT
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, git, make_target


def _many(turns: int) -> str:
    """Eight calls a turn in the first third, which the cache finds hardest, and one in the others."""
    lines = ["title = 'many turns'"]
    for turn in range(1, turns - 1):
        text = f"turn {turn}: " + "words " * 40
        calls = range(8 if turn <= turns // 3 else 1)
        uses = [f'{{ tool = "write", input = {{ path = "f{call}.txt", content = "{text}" }} }}' for call in calls]
        lines += ["[[line]]", 'step = "implement"', f"turn = {turn}", f"use = [{', '.join(uses)}]"]
    tested = 'use = [{ tool = "bash", input = { command = "python3 -m unittest -q" } }]'
    lines += ["[[line]]", 'step = "implement"', f"turn = {turns - 1}", tested]
    return "\n".join([*lines, "[[line]]", 'step = "implement"', 'say = "Write many files"', ""])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("turns", [30, pytest.param(100, marks=pytest.mark.slow)])
async def test_a_turn_costs_at_most_seven_events_and_1300_bytes_and_nine_tenths_of_its_prompt_come_from_the_cache(
    turns: int, tmp_path: Path, ports: int
) -> None:
    """The cache is the rehearsal's accounting."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, _many(turns), ports=ports) as engine:
        engine.worker()
        config = "version = 1\n[setup]\ncommands = []\n[limits]\nturns_per_step = 120\n"
        submitted = await engine.submit(origin, phases=["build"], config=config)
        result = await finished(submitted, engine, timeout=150)
        assert result.status == "completed", result.message
        assert next(step.turns for step in result.steps if step.step == "implement") == turns
        usage = result.usage
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        assert usage.cache_read_tokens / prompt >= 0.9
        assert (await engine.report())["prefix_breaks"] == 0
        history = await engine.handle().fetch_history()
        size = (await engine.handle().describe()).raw_description.workflow_execution_info.history_size_bytes
        kinds = [event.WhichOneof("attributes") for event in history.events]
        first = next(
            number
            for number, event in enumerate(history.events)
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        )
        last = max(
            number
            for number, event in enumerate(history.events)
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        )
        spent = sum(event.ByteSize() for event in history.events[first:last])
        assert (last - first) / (turns - 1) <= 7, kinds[first : first + 14]
        assert spent / (turns - 1) <= 1300
        assert size < 50_000 + 1500 * turns


async def test_a_delivery_continues_as_new_at_a_phase_boundary_and_forgets_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    suggested = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=30"]
    server = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=suggested, ui=False
    )
    async with server, Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        address = server.client.service_client.config.target_host
        client = await Client.connect(address, plugins=[perdure_plugin()])
        engine.perdure = Perdure(client)
        engine.worker(TEMPORAL_ADDRESS=address)
        submitted = await engine.submit(origin)
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        runs = [run.run_id async for run in client.list_workflows("WorkflowId = 'calc-sub'")]
        assert len(runs) > 1, "no run was continued: the test shows nothing"
        assert result.run_id in runs
        assert [step.step for step in result.steps].count("prepare") == 1
        assert [step.step for step in result.steps][-1] == "open_pull_request"
        assert len(engine.rehearsal.calls) == 8  # type: ignore[union-attr]


WINDOW = 45_000
"""Tokens: at 1,350 a turn fifty turns, at 305 two hundred, fill it two times."""


def _screenplay(turns: int, numbers: int) -> str:
    """Each turn says where it is in a file and in its result: the model goes on from what it is shown last."""
    lines = ['title = "long"']
    for n in range(turns, 0, -1):
        asks = f"last = '(?m)^\\+?at {n}$'\n"
        if n == turns:
            lines.append(f"[[line]]\nstep = 'implement'\n{asks}say = 'Count to {n}'\n")
            continue
        lines.append(f"[[line]]\nstep = 'implement'\n{asks}{_use(n + 1, numbers)}")
    lines.append(f"[[line]]\nstep = 'implement'\n{_use(1, numbers)}")
    lines.append("[[line]]\nstep = 'classify'\nanswer = { kind = 'feature', reason = 'new' }\n")
    return "\n".join(lines)


def _use(n: int, numbers: int) -> str:
    command = f"echo at {n} | tee at.txt; seq 1 {numbers} | tr -d '\\n'"
    return f"use = [{{ tool = 'bash', input = {{ command = {json.dumps(command)} }} }}]\n"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("turns", "numbers"), [(50, 1600), pytest.param(200, 350, marks=pytest.mark.slow)])
async def test_it_is_made_shorter_twice_and_survives_a_death_on_the_way(
    turns: int, numbers: int, tmp_path: Path, ports: int
) -> None:
    env = {"PERDURE_MODEL_WINDOW": str(WINDOW), "PERDURE_CRASH_AT": CrashPoint.DURING_COMPACTION}
    config = BUILT["config"] + f"[limits]\nturns_per_step = {turns + 20}\ntime = '5h'\n"
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, _screenplay(turns, numbers), ports=ports, env=env) as engine:
        engine.kept()
        submitted = await engine.submit(origin, **{**BUILT, "config": config})
        result = await finished(submitted, engine, timeout=800)
        assert result.status == "delivered", result.message
        assert result.receipt.worker_deaths == 1
        assert result.receipt.replies_paid_twice == 0
        assert engine.rehearsal is not None
        asked = sum("compaction" in call.body for call in engine.rehearsal.calls)
        assert asked == 2 or turns > REHEARSAL_BODIES_KEPT, "once each, though the worker died with one of them"
        assert len(engine.rehearsal.calls) <= turns + 5, "a reply was asked for twice"
        [vault] = engine.home.root.glob("vaults/*.git")
        made = git(vault, "log", "--all", "--format=%s%n%b").count(SUMMED_UP)
        assert made == 2
