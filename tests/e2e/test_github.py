"""An issue on GitHub becomes one pull request that closes it, whatever dies, its token stays secret."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from google.protobuf.json_format import MessageToJson
from temporalio.client import Client
from temporalio.testing import TimeSkipper, WorkflowEnvironment

from activities.prepare import UNKNOWN_HOST_PATIENCE
from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.models.delivery.result import Reason, Status
from perdure.models.errors import InvalidRequest
from perdure.models.limits import FORGE_PAUSE_MAX
from perdure.plugin import perdure_plugin
from tests.e2e.test_kill_points import AT_A_HOSTED_FORGE
from tests.engine import CALC, HAPPY, finished, git, heads, make_target, until
from tests.engine_with_github import BUILD, ID, TOKEN, EngineWithGitHub, engine_with_github
from tests.fork_server import Kept
from tests.secret_watch import SecretWatch, hits, recording


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_an_issue_ends_in_a_pull_request_that_closes_it_and_what_is_no_open_issue_is_refused_with_words(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, HAPPY, ports=ports) as world:
        worker = world.engine.worker()
        submitted = await world.submit()
        assert submitted.delivery.id == ID
        again = await world.submit()
        assert again.attached
        await until((world.engine.home.tree(ID) / "calc.py").exists)
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        pull = world.check_one(result)
        assert pull["title"] == "feat: add sub"
        assert "Closes #1" in pull["body"].splitlines()
        assert "worker deaths" in pull["body"]
        assert pull["body"].rstrip().endswith(f"<!-- perdure:delivery={ID} -->")
        assert [label["name"] for label in pull["labels"]] == ["perdure"]
        assert result.pull_request is not None
        assert result.pull_request.url == f"{world.url}/pull/{pull['number']}"
        assert "perdure-artifacts" in heads(world.bare)
        listed = git(world.bare, "ls-tree", "-r", "--name-only", "perdure-artifacts").splitlines()
        assert f"{ID}/plan.md" in listed
        await _strangers_words_are_data(world)
        await _refused(world, result.pull_request.number)
        world.github.merge("me/calc", pull["number"])
        assert world.github.issue("me/calc", world.issue)["state"] == "closed"
        assert worker.poll() is None


async def _strangers_words_are_data(world: EngineWithGitHub) -> None:
    assert world.engine.rehearsal is not None
    calls = world.engine.rehearsal.calls
    assert any("There is add, there is no sub." in str(call.body["messages"]) for call in calls)
    assert all("Ignore all previous instructions" not in str(call.body.get("system")) for call in calls)


async def _refused(world: EngineWithGitHub, pull: int) -> None:
    """What is not an open issue, with words."""
    refused = {
        "closed": world.github.add_issue("me/calc", "Old", "done", state="closed"),
        "locked": world.github.add_issue("me/calc", "Hot", "stop", locked=True),
        "pull request": pull,
        "no issue": 99,
    }
    for words, number in refused.items():
        submitted = await world.engine.perdure.submit({"repository": world.url, "issue": number})
        with pytest.raises(Exception, match=words):
            await finished(submitted, world.engine)


BOTH = ",".join(AT_A_HOSTED_FORGE)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("points", [BOTH, *(pytest.param(p, marks=pytest.mark.slow) for p in AT_A_HOSTED_FORGE)])
async def test_a_worker_killed_between_an_effect_at_github_and_its_report_does_not_do_it_twice(
    points: str, tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports, env={"PERDURE_CRASH_AT": points}) as world:
        world.engine.kept()
        result = await finished(await world.build(), world.engine)
        assert result.receipt.worker_deaths == len(points.split(",")), world.engine.worker_log()[-3000:]
        world.check_one(result)


@pytest.mark.timeout(120)
async def test_a_refusal_of_the_forge_comes_before_the_first_cent(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        weak = "ghp_" + "readonly0" * 4
        world.github.add_token(weak, login="reader", scopes=("public_repo",), permissions={"me/calc": "read"})
        world.engine.worker(PERDURE_GITHUB_TOKEN=weak)
        result = await finished(await world.build(), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert "push" in result.message or "write" in result.message
        assert world.engine.model_calls() == 0
        assert TOKEN not in str(result)

        world.engine.kill_workers()
        world.github.add_ruleset("me/calc", "perdure/*", rules=[{"type": "creation"}])
        world.engine.worker()
        result = await finished(await world.build(id="calc-ruled"), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert (
            "(creation) would refuse the push of perdure/calc-ruled: nobody but those who may bypass" in result.message
        )
        assert world.engine.model_calls() == 0
        assert heads(world.bare).keys() == {"main"}
        assert world.github.pulls("me/calc") == []


@pytest.mark.timeout(120)
async def test_a_repository_that_was_renamed_is_followed_and_named(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.rename("me/calc", "me/sums")
        world.engine.worker()
        result = await finished(await world.build(), world.engine)
        assert result.pull_request is not None, (result.message, world.engine.worker_log()[-3000:])
        assert "me/sums" in result.message
        (pull,) = world.github.pulls("me/sums")
        assert pull["number"] == result.pull_request.number


@pytest.mark.timeout(120)
async def test_branches_that_are_protected_against_us_are_a_refusal_that_says_what_to_set(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.protect("me/calc", "perdure/**")
        world.engine.worker()
        result = await finished(await world.build(), world.engine)
        assert (result.status, result.reason) == (Status.NOT_DELIVERED, Reason.FORGE_REFUSED)
        assert "[git] branch" in result.message
        assert world.github.pulls("me/calc") == []
        (comment,) = world.github.comments("me/calc", world.issue)[-1:]
        assert "not delivered" in comment["body"].lower()


KILLS = 8 if "FORGE_KILLS" in os.environ else 4
"""Tried in one delivery of `make chaos-github`, and of the suite.

One that comes when a fault has just ended the attempt kills an idle worker."""

REQUESTS = 7
"""Of the ten or so that an undisturbed attempt asks of GitHub, git's included: each kill comes after some of them."""

OPERATIONS = ("pulls/list", "pulls/create", "pulls/update", "issues/add-labels", "git/push", "git/fetch", "*")
FAULTS = ("bad_gateway", "bad_gateway_after", "cut", "cut_after", "slow", "secondary", "rate_limit")


def _seeds() -> list[int]:
    first, _, last = os.environ.get("FORGE_KILLS", "1").partition("-")
    return list(range(int(first), int(last or first) + 1))


def _attempts(world: EngineWithGitHub) -> int:
    """How often an attempt at the pull request has begun."""
    journal = world.engine.home.workspace(ID) / "journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum('"open_pull_request"' in line for line in lines if _whole(line))


def _whole(line: str) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


async def _kill(world: EngineWithGitHub, kept: Kept, rng: random.Random) -> None:
    seen = 0
    for _ in range(KILLS):
        await until(lambda: _attempts(world) > seen, timeout=120, every=0.01)  # noqa: B023
        seen = _attempts(world)
        if rng.random() < 0.4:
            world.github.faults.add(rng.choice(OPERATIONS), rng.choice(FAULTS), times=1, retry_after=1.0)
        asked = len(world.github.calls) + rng.randint(0, REQUESTS)
        with suppress(AssertionError):
            await until(lambda: len(world.github.calls) >= asked, timeout=2, every=0.002)  # noqa: B023
        await asyncio.sleep(rng.uniform(0.0, 0.03))
        kept.worker.kill()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", _seeds())
async def test_a_worker_killed_while_it_opens_the_pull_request_opens_exactly_one(
    seed: int, tmp_path: Path, ports: int
) -> None:
    rng = random.Random(seed)
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        git(world.bare, "branch", "somebody/else", "main")
        git(world.bare, "branch", "perdure/calc-issue-10", "main")
        before = heads(world.bare)
        worker = world.engine.kept()
        submitted = await world.build()
        killing = asyncio.create_task(_kill(world, worker, rng))
        try:
            result = await finished(submitted, world.engine, timeout=240)
        finally:
            killing.cancel()
        print(f"seed {seed}: {result.receipt}")
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        after = heads(world.bare)
        assert {name: after[name] for name in before} == before
        for name in ("somebody/else", "perdure/calc-issue-10"):
            git(world.bare, "branch", "-D", name)
        world.check_one(result)


@asynccontextmanager
async def skipping(world: EngineWithGitHub) -> AsyncIterator[TimeSkipper]:
    """A real server on which a running workflow's clock can be moved on, in place of the engine's own."""
    flag = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    start = WorkflowEnvironment.start_time_skipping_v2
    async with await start(dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=flag) as server:
        address = server.client.service_client.config.target_host
        world.engine.env |= {"TEMPORAL_ADDRESS": address}
        world.engine.client = await Client.connect(address, plugins=[perdure_plugin()])
        world.engine.perdure = Perdure(world.engine.client)
        try:
            yield TimeSkipper(world.engine.client)
        finally:
            world.engine.end_workers()


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_an_hour_without_github_at_the_end_is_waited_out_and_shown(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world, skipping(world) as clock:
        world.engine.worker()
        submitted = await world.build()
        handle = world.engine.handle(ID)
        await until(lambda: world.engine.model_calls() >= 2)  # paid for; what is left is the forge's
        world.github.down = True

        async def waiting() -> str:
            return str((await handle.query("progress"))["waiting"])

        await until(waiting)
        for _ in range(6):
            await clock.fast_forward(handle, timedelta(minutes=10))
            words = await until(waiting)
            assert "next try at" in words
        shown = str(await handle.query("__temporal_workflow_metadata"))
        assert "**Waiting:**" in shown
        described = await handle.describe()
        assert described.typed_search_attributes
        assert "waiting" in str(described.search_attributes.get("PerdureStatus"))
        assert world.github.pulls("me/calc") == []
        world.github.down = False
        await clock.fast_forward(handle, timedelta(minutes=10))
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, result.message
        world.check_one(result)
        assert world.engine.model_calls() == 2


@pytest.mark.timeout(180)
async def test_github_that_is_away_at_the_first_look_is_waited_for_and_named(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.down = True
        world.engine.worker()
        submitted = await world.build()

        async def named() -> bool:
            described = await submitted.delivery.describe()
            return any(
                "cannot be reached" in pending.failure and "502" in pending.failure for pending in described.pending
            )

        await until(named)
        world.github.down = False
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, result.message
        world.check_one(result)


@pytest.mark.timeout(150)
async def test_a_retry_takes_the_ship_settings_as_they_are_then(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        files = {**CALC, "perdure.toml": "version = 1\n[setup]\ncommands = []\n"}
        origin = make_target(tmp_path / "poor.git", files=files)
        world.github.add_repository("me/poor", source=origin, drafts=False)
        world.engine.worker()
        request = {"repository": f"{world.github.url}/me/poor", "request": "Add sub", "phases": ["build", "ship"]}
        submitted = await world.engine.perdure.submit(request, id="poor")
        first = await finished(submitted, world.engine)
        assert (first.status, first.reason) == (Status.NOT_DELIVERED, "forge_refused"), first.message
        assert "does not support draft pull requests" in first.message
        await submitted.delivery.retry()
        again = await finished(submitted, world.engine)
        assert (again.status, again.reason) == (Status.NOT_DELIVERED, "forge_refused"), "nothing has changed"
        git(tmp_path, "clone", "-q", str(tmp_path / "github" / "me" / "poor.git"), "checkout")
        with (tmp_path / "checkout" / "perdure.toml").open("a") as settings:
            settings.write('[ship]\nallow_untested = true\nlabels = ["ready"]\n')
        git(tmp_path / "checkout", "commit", "-qam", "Open what nobody has tested")
        git(tmp_path / "checkout", "push", "-q", "origin", "main")
        calls = world.engine.model_calls()
        await submitted.delivery.retry()
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, result.message
        (pull,) = world.github.pulls("me/poor")
        assert (pull["draft"], [label["name"] for label in pull["labels"]]) == (False, ["ready"])
        assert world.engine.model_calls() == calls, "nothing is built or paid for again"


@pytest.mark.timeout(180)
async def test_a_host_that_nobody_has_heard_of_is_waited_for_a_while_only(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world, skipping(world) as clock:
        worker = world.engine.worker()
        submitted = await world.engine.submit("https://no-such-host.invalid/me/calc.git", id=ID)

        async def named() -> bool:
            described = await submitted.delivery.describe()
            return any("check the name, the network" in pending.failure for pending in described.pending)

        await until(named)
        await clock.fast_forward(world.engine.handle(ID), UNKNOWN_HOST_PATIENCE + FORGE_PAUSE_MAX)
        with pytest.raises(InvalidRequest, match="no-such-host"):
            await finished(submitted, world.engine)
        assert worker.poll() is None


@pytest.mark.long
@pytest.mark.timeout(400)  # every git it starts is a shell script first
async def test_the_token_appears_in_no_child_no_file_no_history_no_log_and_no_pull_request(
    tmp_path: Path, ports: int
) -> None:
    async with engine_with_github(tmp_path, HAPPY, ports=ports, own_server=True) as world:
        seen = tmp_path / "seen"
        shims = recording(seen, ("git", "env"))  # of each that is started, whenever that is
        worker = world.engine.program(PATH=f"{shims}:{os.environ['PATH']}")
        with SecretWatch((TOKEN,), roots=(worker.pid,)) as watch:  # and what lives for more than a moment
            world.github.faults.add("pulls/create", "unauthorized", times=1)  # its error goes into history
            submitted = await world.submit(phases=["build", "test", "ship"])
            first = await finished(submitted, world.engine, timeout=150)
            assert (first.status, first.reason) == (Status.NOT_DELIVERED, "forge_refused")
            await submitted.delivery.retry()
            result = await finished(submitted, world.engine, timeout=150)
        assert result.status is Status.DRAFT, (result.message, world.engine.worker_log()[-3000:])
        assert {"git", "git-remote-http"} <= watch.seen, watch.seen
        async for execution in world.engine.client.list_workflows():
            history = await world.engine.client.get_workflow_handle(
                execution.id, run_id=execution.run_id
            ).fetch_history()
            for event in history.events:
                watch.scan_bytes(f"history of {execution.id}", MessageToJson(event).encode())
                watch.scan_bytes(f"history of {execution.id}", event.SerializeToString())  # payloads as they are
        watch.scan_bytes("result", str(result).encode())
        watch.scan_bytes("pull requests", str(world.github.pulls("me/calc")).encode())
        watch.scan_bytes("comments", str(world.github.comments("me/calc", world.issue)).encode())
        assert TOKEN.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert {path.name.partition(".")[0] for path in seen.glob("*.*")} == {"git", "env"}
        watch.scan(seen, world.engine.home.root, world.engine.log, world.bare, Path.home() / ".gitconfig")
        assert watch.found == [], hits(watch.found)
        assert ID in str(list(world.engine.home.root.rglob("*")))


QUEUE = {"PERDURE_PUBLISHER_QUEUE": "publish"}


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_only_the_publisher_needs_the_token(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        agent = world.engine.program(**QUEUE, PERDURE_GITHUB_TOKEN="")
        submitted = await world.build()

        async def waiting() -> str:
            return str((await world.engine.handle(submitted.delivery.id).query("progress"))["waiting"])

        assert "the publisher is not there" in await until(waiting, 60)
        assert world.engine.model_calls() == 0
        publisher = world.engine.worker(**QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="")
        result = await finished(submitted, world.engine, timeout=90)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        world.check_one(result)
        assert TOKEN not in psutil.Process(agent.pid).environ().values()
        assert publisher.poll() is None


@pytest.mark.timeout(120)
async def test_a_publisher_that_dies_is_buried_by_the_worker_beside_it(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.engine.worker(**QUEUE, PERDURE_GITHUB_TOKEN="")
        first = world.engine.worker(
            **QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="", PERDURE_CRASH_AT="after-push"
        )
        submitted = await world.build()
        await until(lambda: first.poll() is not None)
        world.engine.worker(**QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="")
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        assert result.receipt.worker_deaths == 1
        world.check_one(result)
