"""The cluster of `make cluster`: it ends without a trace, refuses what is missing, and its faults lose nothing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from deploy.cluster import ROLES, Cluster, run_cluster, server_directory
from perdure.client import Perdure
from perdure.models.errors import InvalidRequest
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from tests.commands import perdure
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, pulls, until
from tests.processes import alive
from tests.temporal_server import cluster
from tests.waiting import patient

SCRIPT = Path(__file__).parents[2] / "deploy" / "cluster.py"
_NOT_HERE = pytest.mark.skipif(not cluster(), reason="make cluster-test plays it")


def on_cluster(test: Any) -> Any:
    return pytest.mark.cluster(_NOT_HERE(test))


def refusal(*words: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPT, *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_is_missing_is_said_in_one_line_and_nothing_stays(tmp_path: Path) -> None:
    there = tmp_path / "kept"
    empty = refusal(str(there), XDG_CACHE_HOME=str(tmp_path / "empty"), PATH=str(tmp_path))
    assert empty.startswith("error: go is not installed")
    built = tmp_path / "cache" / "perdure" / server_directory().name
    built.mkdir(parents=True)
    (built / "server").write_text("#!/bin/sh\nexit 1\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(str(there), "--port", str(port), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert said.startswith((f"error: port {port} of 127.0.0.1 is taken", "error: PostgreSQL is not installed"))
    assert not there.exists()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that PostgreSQL's own user can enter, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="perdure-test-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


async def submit_one(address: str) -> None:
    client = await Client.connect(address, namespace="default", plugins=[perdure_plugin()])
    await Perdure(client).submit({"repository": "/srv/calc", "request": "𝔞" * 300}, id="astral")


async def listed_ids(address: str) -> list[str]:
    client = await Client.connect(address, namespace="default", plugins=[perdure_plugin()])
    await until(lambda: Perdure(client).list())
    return [entry.delivery_id for entry in await Perdure(client).list()]


def run_until(number: signal.Signals, temporary: Path, *words: str, submits: bool) -> None:
    """Run a cluster that has or is given one delivery, end it by a signal, and see that no process stays."""
    process = subprocess.Popen(
        [sys.executable, SCRIPT, *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    address = re.search(r"TEMPORAL_ADDRESS=(\S+)", "".join(lines))
    assert address, lines
    if submits:
        asyncio.run(submit_one(address[1]))
    assert asyncio.run(listed_ids(address[1])) == ["astral"]
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 1 + len(ROLES)
    process.send_signal(number)
    assert process.wait(patient(40)) == 0
    assert not [each for each in started if alive(each)]


@on_cluster
@pytest.mark.timeout(300)
def test_a_cluster_ends_at_a_signal_and_leaves_nothing(open_directory: Path) -> None:
    run_until(signal.SIGTERM, open_directory, submits=True)
    assert not list(open_directory.iterdir())


@on_cluster
@pytest.mark.timeout(500)
def test_a_cluster_in_a_directory_goes_on_with_its_database_after_ctrl_c(open_directory: Path) -> None:
    kept = str(open_directory / "kept")
    run_until(signal.SIGINT, open_directory, kept, submits=True)
    run_until(signal.SIGINT, open_directory, kept, submits=False)
    assert [path.name for path in open_directory.iterdir()] == ["kept"]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster of this module's, to be hurt; engines meanwhile have their namespaces there."""
    before = os.environ["CLUSTER"]
    with run_cluster() as started:
        os.environ["CLUSTER"] = started.address
        yield started
        os.environ["CLUSTER"] = before


@on_cluster
@pytest.mark.timeout(120)
async def test_an_id_that_postgresql_does_not_take_is_refused_before_and_by_the_workflow(
    own: Cluster, tmp_path: Path
) -> None:
    async with Engine.open(tmp_path, HAPPY) as engine:
        engine.worker()
        with pytest.raises(InvalidRequest):
            await engine.perdure.submit({"repository": "/srv/calc", "request": "x"}, id="x" * 256)
        raw = {"repository": "/srv/calc", "request": "x"}
        started = await engine.client.start_workflow("Delivery", raw, id="𝔞" * 200, task_queue=TASK_QUEUE)
        with pytest.raises(WorkflowFailureError) as failed:
            await started.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "InvalidRequest"
        assert "id: has 200 characters" in failed.value.cause.message


async def deliver_under(fault: Callable[[], Awaitable[None]], root: Path, ports: int, number: int) -> list[str]:
    """Deliver that many while the fault goes on, and return what a command says again and again meanwhile."""
    origins = [make_target(root / f"calc-{each}.git") for each in range(number)]
    async with Engine.open(root, HAPPY, ports=ports) as engine:
        engine.kept()
        submitted = [await engine.submit(origin, id=f"calc-{at}", **BUILT) for at, origin in enumerate(origins)]
        await until(lambda: engine.model_calls() >= number)
        hurting = asyncio.ensure_future(fault())
        said = list[str]()
        while not hurting.done():
            begin = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure.cli", "list"),
                env=engine.environment(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, err = await asyncio.wait_for(process.communicate(), patient(40))
            assert process.returncode in (0, 3), err
            assert b"Traceback" not in err
            said.append(f"{process.returncode} {time.monotonic() - begin:.1f} s {err.decode()}")
        await hurting
        for origin, each in zip(origins, submitted, strict=True):
            result = await finished(each, engine)
            assert result.status == "delivered", result
            assert result.receipt.replies_paid_twice == 0
            assert [pull["head"] for pull in pulls(origin)] == [f"perdure/{result.delivery_id}"]
        assert await perdure(engine, "list")
        return said


@on_cluster
@pytest.mark.timeout(400)
async def test_roles_that_are_killed_in_turn_lose_nothing_and_pay_nothing_twice(
    own: Cluster, tmp_path: Path, ports: int
) -> None:
    async def fault() -> None:
        for role in ROLES:
            await asyncio.to_thread(own.kill, role)
            await asyncio.sleep(1)
            own.start_role(role)
            await asyncio.sleep(3)

    await deliver_under(fault, tmp_path, ports, 3)


@on_cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["postgres", "frontend"])
async def test_a_minute_without_it_is_said_and_everything_goes_on_then(
    own: Cluster, tmp_path: Path, ports: int, part: str
) -> None:
    async def fault() -> None:
        await asyncio.to_thread(own.kill, part)
        await asyncio.sleep(60)
        if part == "postgres":
            await asyncio.to_thread(own.start_postgres)
        else:
            own.start_role(part)

    said = await deliver_under(fault, tmp_path, ports, 3)
    print("\n".join(said))
    away = [line for line in said if line.startswith("3 ")]
    assert away
    expected = "Temporal has not answered since" if part == "postgres" else "Temporal cannot be reached"
    assert any(expected in line for line in away), away
