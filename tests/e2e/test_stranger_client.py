"""A stranger with nothing but a connection to Temporal: made-up state, and activities called from elsewhere, publish
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.common import WorkflowIDReusePolicy

from perdure.models.delivery.state import retry_request
from tests.attack.stranger_client import QUIET, Stranger, made_up, reason_of, stranger
from tests.engine import HAPPY, Engine, git, heads, make_target, pulls, until


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
        assert "resume: " in reason_of(failed.value)
        attempt = {**points["forked"], "forked": {**fork, "delivery": "his-parent", "attempt": 1}}
        call = {"child": "Delivery", "raw": {**request, **attempt}, "id": "his-parent/attempt-1"}
        assert "resume: " in await he.refused("Delivery", call, "his-parent", he.queue)
        assert heads(origin) == before
        assert pulls(origin) == []


@pytest.mark.timeout(300)
async def test_what_an_ended_run_has_left_counts_as_it_is_and_with_no_dollar_more(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        request = {"phases": ["build", "ship"], "gates": ["pull_request"], "config": QUIET}
        delivery = (await engine.submit(origin, **request)).delivery

        async def waits() -> bool:
            return (await delivery.describe()).pending_decision is not None

        await until(waits, 60)
        await engine.handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle().result()
        left = (await delivery.describe()).resume
        assert left is not None
        raw = retry_request(await delivery.request(), left)
        for name, change in (
            ("budget", {"extra_usd": 1e6}),
            ("gates", {"decided": {"pull_request:x": {"verdict": "approved"}}}),
        ):
            state = {**raw["resume"]["state"], name: {**raw["resume"]["state"].get(name, {}), **change}}
            told = await he.refused("Delivery", {**raw, "resume": {**raw["resume"], "state": state}}, "calc-sub")
            assert told.startswith("InvalidRequest: resume: "), (name, told)
        await he.client.start_workflow(
            "Delivery", raw, id="calc-sub", task_queue="perdure", id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
        )
        await until(waits, 60)
        await engine.handle().execute_update("approve", {})
        assert (await delivery.result()).status == "delivered"


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


@pytest.mark.timeout(400)
async def test_facts_that_no_activity_of_the_home_has_sealed_are_not_published(tmp_path: Path, ports: int) -> None:
    """He works on our own queue, while no worker of ours does: nothing tells his workflow from one of ours."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine, stranger(engine) as he:
        engine.worker()
        phases, gates = ["build", "ship"], ["pull_request"]
        waiting = (await engine.submit(origin, phases=phases, gates=gates, config=QUIET)).delivery
        other = await engine.submit(origin, "Add sub", id="calc-other", phases=["build", "test"], config=QUIET)
        await other.delivery.result()

        async def waits() -> bool:
            return (await waiting.describe()).pending_decision is not None

        await until(waits, 60)
        engine.end_workers()
        built, before = dict(await he.reads("calc-sub")), heads(origin)
        theirs = dict(await Stranger(engine, "").reads("calc-other"))
        prepared, head, queue = built["prepare"], built["commit"]["commit"], built["prepare"]["queue"]
        common = {"delivery": "calc-sub", "policy": prepared["policy"], "workflow_id": "calc-sub"}
        common_of_other = {"delivery": "calc-other", "policy": theirs["prepare"]["policy"]}
        made_up_tests = {"status": "green", "passed": 4321, "tree": built["commit"]["tree"]}
        shipped = {**common, "base": "main", "branch": prepared["branch"], "head": head, "title": "Any"}
        place = {"backlog": "night", "item": "one", "branch": "release"}
        attempts = (
            ("push_branch", {**common, "branch": "hijacked", "head": head}, "is no branch of this delivery"),
            ("push_branch", {**common, "branch": prepared["branch"], "head": head, "tests": made_up_tests}, "no tests"),
            ("push_branch", {**common, "branch": prepared["branch"], "head": theirs["commit"]["commit"]}, "no commit"),
            ("open_pull_request", {**shipped, "tests": made_up_tests}, "no tests gave that verdict"),
            ("open_pull_request", {**shipped, "tests": theirs["run_tests"]}, "no tests gave that verdict"),
            (
                "open_pull_request",
                {**shipped, **common_of_other, "head": theirs["commit"]["commit"]},
                "was not asked to",
            ),
            ("open_pull_request", {**shipped, "review": "a" * 64}, "no review of"),
            ("land", {**common, "place": place, "commit": head, "onto": git(origin, "rev-parse", "main")}, "release"),
        )
        for name, work, reason in attempts:
            told = await he.calls_as_ours(name, work, queue)
            assert reason in told, (name, told)
            assert "\n" not in told.strip()
        assert heads(origin) == before
        assert pulls(origin) == []
