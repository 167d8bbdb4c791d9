"""The shapes a history can have: deliveries, notifications and treasuries that end, or wait, in every way they can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from perdure.client import budgets as treasury
from perdure.local.places import temporal_binary
from perdure.plugin import perdure_plugin
from tests.e2e.test_budget import ASKED as COSTS
from tests.e2e.test_budget import STORY as COSTLY
from tests.e2e.test_budget import budgets
from tests.e2e.test_budget import waits as for_the_day
from tests.e2e.test_specialists import BESIDE, MEETS, TARGET, story
from tests.e2e.test_tamper import FILES, TAKES_AWAY, line
from tests.e2e.test_verdicts import HERE, PYTEST
from tests.engine import FIXES, HAPPY, Engine, finished, make_target, until
from tests.engine_with_github import BUILD, ID, engine_with_github
from tests.receiver import SECRET, Receiver
from tests.replay.shapes_between import between, checked
from tests.replay.shapes_of_attempts import attempts
from tests.replay.shapes_of_backlogs import backlog, crowded, decomposed, left, moved_base, tried_items
from tests.replay.shapes_of_people import (
    PORTS,
    Keep,
    answered,
    cut_off,
    decided,
    edited,
    killed_at_first,
    mended,
    progress,
    steered,
    told_apart,
    waits_for,
)

BUDGET = '[[treasury]]\nlabel = "team-a"\nusd_per_day = {usd}\n'
NEW_RUN_AT = 30
"""Events after which a new run is suggested: a delivery begins two or three, a treasury some."""


async def fixes(root: Path, keep: Keep) -> None:
    origin = make_target(root / "calc.git")
    config = (root / "calc.git-work" / "perdure.toml").read_text() + "[limits]\ntest_fixes = 0\n"
    async with Engine.open(root, FIXES, ports=PORTS, own_server=True) as engine:
        engine.worker()
        for name, more in (
            ("delivered-with-fixes", {}),
            ("tests-red", {"config": config}),
            ("draft", {"phases": ["build", "ship"]}),
            ("planned", {"phases": ["plan"]}),
        ):
            await finished(await engine.submit(origin, id=name, **more), engine)
            await keep(engine.handle(name), name)


async def killed(root: Path, keep: Keep) -> None:
    origin = make_target(root / "calc.git")
    async with Engine.open(
        root, HAPPY, ports=PORTS, own_server=True, env={"PERDURE_CRASH_AT": "during-tool:3"}
    ) as engine:
        engine.kept()
        submitted = await engine.submit(origin, id="killed-and-retried", questions=False)
        await finished(submitted, engine)
        await keep(engine.handle("killed-and-retried"), "three-deaths")
        await submitted.delivery.retry()
        await finished(submitted, engine)
        await keep(engine.handle("killed-and-retried"), "killed-and-retried")


async def tampered(root: Path, keep: Keep) -> None:
    """A test is taken away, and stays away."""
    origin = make_target(root / "calc.git", FILES)
    vain = line("@@").replace("'@@'", "\"echo '# no' >> calc.py\"")
    async with Engine.open(root, TAKES_AWAY + vain, ports=PORTS, own_server=True, env=HERE) as engine:
        engine.worker()
        config = PYTEST + "[limits]\ntest_fixes = 1\n"
        result = await finished(await engine.submit(origin, phases=["build", "test"], config=config), engine)
        assert result.reason == "tampered", result
        await keep(engine.handle(), "tampered")


async def told(root: Path, keep: Keep) -> None:
    """A delivery whose gate and end are told; the end to somebody who does not want to hear of it."""
    origin = make_target(root / "calc.git")
    async with Receiver.open() as receiver:
        env = {"PERDURE_WEBHOOK_URL": receiver.url, "PERDURE_WEBHOOK_SECRET": SECRET}
        async with Engine.open(root, HAPPY, ports=PORTS, own_server=True, env=env) as engine:
            engine.worker()
            submitted = await engine.submit(origin, phases=["plan"], gates=["plan"])
            asked = await waits_for(engine.handle())
            await until(lambda: receiver.of("waiting"))
            receiver.answers = [(503, {}), (404, {})]
            await engine.handle().execute_update("approve", {"of": asked["of"]})
            await finished(submitted, engine)
            await keep(engine.handle(), "notifying")
            ended = await until(lambda: _ended(engine, "Notification", 2))
            names = {WorkflowExecutionStatus.COMPLETED: "notification", WorkflowExecutionStatus.FAILED: "not-told"}
            for run in ended:
                await keep(engine.client.get_workflow_handle(run.id), names.pop(run.status))
            assert not names, "one was told, one was not"


async def shared(root: Path, keep: Keep) -> None:
    """A budget of the day that is spent; its treasury is ended by somebody, and started again."""
    origin = make_target(root / "calc.git")
    (root / "budgets.toml").write_text(BUDGET.format(usd=0.000001))
    async with Engine.open(
        root, HAPPY, ports=PORTS, own_server=True, env={"PERDURE_TREASURY": str(root / "budgets.toml")}
    ) as engine:
        engine.worker()
        submitted = await engine.submit(origin, labels=["team-a"])
        handle, keeper = engine.handle(), engine.handle(treasury.TREASURY)
        await until(lambda: progress(handle, "waiting"))
        await keep(handle, "waiting-for-the-treasury")
        engine.kill_workers()
        first = (await keeper.describe()).run_id
        await keeper.terminate()
        await keep(engine.client.get_workflow_handle(treasury.TREASURY, run_id=first), "treasury-ended")
        engine.worker()
        await until(lambda: _another(keeper, first))
        await treasury.add_to_budget(engine.client, "label:team-a", 5)
        await finished(submitted, engine)
        await keep(handle, "shared-budget")
        await keep(keeper, "treasury")


async def covered(root: Path, keep: Keep) -> None:
    """A turn whose next request the day's budget does not cover: refused, and taken once there is more."""
    origin = make_target(root / "calc.git")
    env = budgets(root / "budgets.toml", 0.05)
    async with Engine.open(root, COSTLY, ports=PORTS, own_server=True, env=env) as engine:
        engine.worker()
        submitted = await engine.submit(origin, id="covered", **COSTS)
        await until(lambda: for_the_day(engine, "covered"))
        await keep(engine.handle("covered"), "waiting-for-the-day")
        await treasury.add_to_budget(engine.client, "label:team-a", 5)
        await finished(submitted, engine)
        await keep(engine.handle("covered"), "covered-by-the-day")


async def long(root: Path, keep: Keep) -> None:
    """What goes on in new runs, and what went before them: a delivery with decisions behind it, and a treasury."""
    origin = make_target(root / "calc.git")
    (root / "budgets.toml").write_text(BUDGET.format(usd=100))
    async with _short_runs(root, HAPPY, {"PERDURE_TREASURY": str(root / "budgets.toml")}) as engine:
        handle, keeper = engine.handle(), engine.handle(treasury.TREASURY)
        submitted = await engine.submit(origin, gates=["plan", "pull_request"], labels=["team-a"])
        first, keepers_first = [(await one.describe()).run_id for one in (handle, keeper)]
        asked = await waits_for(handle)
        await handle.signal("say", {"text": "Keep it short.", "id": "short"})
        await handle.execute_update("add_budget", {"usd": 1, "id": "one"})
        await handle.execute_update("approve", {"of": asked["of"]})
        asked = await waits_for(handle, behind=asked["of"])
        assert (await handle.describe()).run_id != first, "no run was continued: this shows nothing"
        await keep(handle, "continued-and-waiting")
        await handle.execute_update("approve", {"of": asked["of"]})
        await finished(submitted, engine)
        await keep(handle, "continued")
        await keep(engine.client.get_workflow_handle(handle.id, run_id=first), "before-it-continued")
        begun, more = 0, 0  # deliveries, and those that the next run has heard of
        while more < 1:
            more += await _another(keeper, keepers_first)
            begun += 1
            await finished(await engine.submit(origin, id=f"more-{begun}", phases=["plan"], labels=["team-a"]), engine)
        before = engine.client.get_workflow_handle(keeper.id, run_id=keepers_first)
        await keep(before, "treasury-before-it-continued")
        await keep(keeper, "treasury-continued")


async def github(root: Path, keep: Keep) -> None:
    async with engine_with_github(root, FIXES, ports=PORTS, own_server=True) as world:
        world.engine.worker()
        await finished(await world.submit(), world.engine)
        await keep(world.engine.handle(ID), "github-issue")


async def away(root: Path, keep: Keep) -> None:
    """The forge does not answer."""
    async with engine_with_github(root, BUILD, ports=PORTS, own_server=True) as world:
        world.engine.worker()
        submitted = await world.build()
        await until(lambda: world.engine.model_calls() >= 2)
        world.github.down = True
        await until(lambda: progress(world.engine.handle(ID), "waiting"))
        await keep(world.engine.handle(ID), "waiting-for-the-forge")
        await submitted.delivery.cancel()
        await finished(submitted, world.engine, timeout=120)


async def specialists(root: Path, keep: Keep) -> None:
    """A plan whose tasks are built at once: the delivery, its tasks' backlog, and one that met another in a file."""
    origin = make_target(root / "calc.git", TARGET)
    async with Engine.open(root, MEETS + story(docs=BESIDE), ports=PORTS, own_server=True) as engine:
        engine.worker()
        await finished(await engine.submit(origin), engine, 200)
        await keep(engine.handle(), "specialists")
        [tasks] = [run.id async for run in engine.client.list_workflows("WorkflowType = 'Backlog'")]
        await keep(engine.handle(tasks), "tasks")
        await keep(engine.handle(f"{tasks}/1-backend"), "task")
        await keep(engine.handle(f"{tasks}/2-docs"), "task-beside")


SHAPES = (
    *(fixes, killed, decided, answered, steered, edited, mended, told_apart, cut_off, killed_at_first, tampered),
    *(told, shared, long, github, away, specialists, attempts, covered),
    *(backlog, moved_base, decomposed, crowded, tried_items, left, between, checked),
)


async def _ended(engine: Engine, kind: str, count: int) -> list[Any]:
    query = f"WorkflowType = '{kind}' AND ExecutionStatus != 'Running'"
    found = [run async for run in engine.client.list_workflows(query)]
    return found if len(found) >= count else []


async def _another(handle: WorkflowHandle[Any, Any], run_id: str) -> bool:
    return (await handle.describe()).run_id != run_id


@asynccontextmanager
async def _short_runs(root: Path, screenplay: str, env: dict[str, str]) -> AsyncIterator[Engine]:
    """An engine with one worker, at a server that soon suggests a new run."""
    suggested = ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={NEW_RUN_AT}"]
    server = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=suggested, ui=False
    )
    async with server, Engine.open(root, screenplay, ports=PORTS, own_server=True, env=env) as engine:
        address = server.client.service_client.config.target_host
        engine.client = await Client.connect(address, plugins=[perdure_plugin()])
        engine.perdure = type(engine.perdure)(engine.client)
        engine.worker(TEMPORAL_ADDRESS=address)
        await until(lambda: "working on perdure" in engine.worker_log())
        yield engine
