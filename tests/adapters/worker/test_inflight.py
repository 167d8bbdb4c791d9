"""Dead turns are reported by the living, at once and exactly once; what was handed out is done again."""

from __future__ import annotations

import ast
import asyncio
import base64
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from napping import Nap, Patient
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.adapters.worker import inflight as inflights
from perdure.adapters.worker.inflight import InFlight, find_handed_out, is_alive
from perdure.adapters.worker.journal import Journal
from perdure.models.delivery.result import Receipt
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from tests.processes import ROOT, line
from tests.waiting import patient


@asynccontextmanager
async def undertaker(home: Home, client: Client) -> AsyncIterator[InFlight]:
    worker = InFlight(home)
    task = asyncio.create_task(worker.report_dead_workers(client))
    try:
        yield worker
        assert not task.done(), "nobody looks for the dead any more"
    finally:
        task.cancel()
        await asyncio.wait({task})
        worker.close()


async def gone(path: Path, timeout: float = 40) -> None:
    async with asyncio.timeout(patient(timeout)):
        while path.exists():
            await asyncio.sleep(0.02)


@contextmanager
def napping(home: Home, server: str, queue: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real worker and its name."""
    script = str(Path(__file__).with_name("napping.py"))
    process = subprocess.Popen(
        [sys.executable, script, str(home.root), server, queue],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ready, _, name = line(process).partition(" ")
        assert ready == "ready"
        yield process, name
    finally:
        process.kill()
        process.communicate(timeout=patient(10))


@pytest.mark.timeout(60)
async def test_all_that_a_killed_worker_did_is_redone_at_once_and_a_stale_report_does_not_touch_the_second_attempt(
    home: Home, server: str, tmp_path: Path
) -> None:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    queue, naps = f"nap-{uuid.uuid4().hex}", ["go", "go-too", "go-three"]
    with napping(home, server, queue) as (first, name):
        handle = await client.start_workflow(Nap.run, naps, id=queue, task_queue=queue)
        assert {await asyncio.to_thread(line, first) for _ in naps} == {f"{file} 1" for file in naps}
        with napping(home, server, queue) as (second, _):
            stale = shutil.copytree(home.inflight / name, tmp_path / "stale")
            assert [file.name.partition(".")[0] for file in stale.iterdir()] == [handle.result_run_id] * 3
            first.kill()
            assert {await asyncio.to_thread(line, second) for _ in naps} == {f"{file} 2" for file in naps}

            shutil.copytree(stale, home.inflight / "stale")
            (home.inflight / "stale.lock").touch()
            await gone(home.inflight / "stale.lock")
            pending = (await handle.describe()).raw_description.pending_activities
            assert [activity.attempt for activity in pending] == [2, 2, 2]
            assert {activity.last_failure.application_failure_info.type for activity in pending} == {"WorkerDied"}

            for file in naps:
                (home.root / file).touch()
            assert await handle.result() == ["woke in attempt 2"] * 3
            assert not list(home.inflight.glob(f"{name}*"))
            log = Journal(home.workspace("go"), lambda worker: is_alive(home.inflight, worker))
            assert log.make_receipt() == Receipt(worker_deaths=1, turns_redone=1)


@pytest.mark.timeout(60)
async def test_a_report_that_found_no_server_is_made_again(home: Home, server: str) -> None:
    dead(home, "gone")
    port = free_port()
    async with forwarding(port, server):
        client = await Client.connect(f"127.0.0.1:{port}")
    async with undertaker(home, client):
        await asyncio.sleep(1.2)
        assert (home.inflight / "gone" / "run.json").exists(), "a death was forgotten because nobody could be told"
        async with forwarding(port, server):
            await gone(home.inflight / "gone.lock")


async def test_a_note_that_a_power_cut_emptied_stops_nobody_from_reporting_the_others(home: Home, server: str) -> None:
    client = await Client.connect(server)
    dead(home, "gone", "another")
    (home.inflight / "gone" / "aaa.json").write_bytes(b"")
    async with undertaker(home, client):
        await gone(home.inflight / "gone.lock")
    assert not (home.inflight / "gone").exists()


async def test_the_living_and_what_another_worker_is_reporting_are_left_alone(home: Home, server: str) -> None:
    client = await Client.connect(server)
    living = InFlight(home)
    with living.note_activity(token=b"t", workflow_id="w", run_id="r", activity="implement"):
        pass
    dead(home, "gone")
    burial = try_lock(home.inflight / f"{inflights.REPORTING}.lock")
    assert burial is not None
    async with undertaker(home, client) as other:
        await asyncio.sleep(0.3)
        assert (home.inflight / "gone" / "run.json").exists()
        assert not other.is_alive("gone"), "a death counts while it is being reported, too"
        os.close(burial)
        await gone(home.inflight / "gone.lock")
        assert other.is_alive(living.worker)
        assert (home.inflight / living.worker / "r.json").exists()
    living.close()


async def test_a_disk_that_fails_for_a_moment_does_not_end_the_looking(
    home: Home, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await Client.connect(server)
    dead(home, "gone")
    monkeypatch.setattr(inflights, "SCAN_EVERY_S", 0.05)
    notes = home.inflight / "gone"
    (notes / "run.json").rename(notes / "kept")
    (notes / "run.json").mkdir()  # cannot be read as a file: OSError
    async with undertaker(home, client):
        await asyncio.sleep(0.3)
        (notes / "run.json").rmdir()
        (notes / "kept").rename(notes / "run.json")
        await gone(home.inflight / "gone.lock")


def test_who_asks_whether_a_worker_lives_never_makes_it_look_alive(home: Home) -> None:
    dead(home, "gone")
    with (home.inflight / "gone.lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not is_alive(home.inflight, "gone")
    assert not is_alive(home.inflight, "never was")
    assert not (home.inflight / "never was.lock").exists()


def test_a_worker_is_found_held_from_the_first_moment_and_leaves_nothing_at_an_orderly_end(home: Home) -> None:
    worker = InFlight(home)
    assert worker.is_alive(worker.worker)
    assert is_alive(home.inflight, worker.worker)
    notes = home.inflight / worker.worker
    with worker.note_activity(token=b"1", workflow_id="w", run_id="r", activity="plan"):
        assert tokens(notes) == [b"1"]
    with worker.note_activity(token=b"2", workflow_id="w", run_id="r", activity="implement"):
        with worker.note_activity(token=b"3", workflow_id="w", run_id="r", activity="implement"):
            assert tokens(notes) == [b"1", b"2", b"3"], "what is in flight beside another is known, too"
        worker.forget_run("r")
        assert tokens(notes) == [b"2"], "a run that ends with one thing has another in flight"
    assert tokens(notes) == [b"2"], "the last one stays: it names the run"
    (note,) = notes.glob("*.json")
    assert note.stat().st_mode & 0o777 == 0o600, "a token completes an activity: nobody else's business"
    worker.forget_run("r")
    worker.forget_run("r")
    assert not note.exists()
    worker.close()
    worker.close()
    assert os.listdir(home.inflight) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("dies_at", ["os.rename", "os.mkdir"])
async def test_a_worker_killed_while_it_makes_itself_known_leaves_nothing(
    dies_at: str, home: Home, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.inflight.mkdir(parents=True)
    script = f"""
import os, sys
from pathlib import Path
from perdure.adapters.system.home import Home
from perdure.adapters.worker import inflight
{dies_at} = lambda *_: os.kill(os.getpid(), 9)
inflight.InFlight(Home(Path(sys.argv[1])))
"""
    died = subprocess.run([sys.executable, "-c", script, str(home.root)], cwd=ROOT, timeout=60)
    assert died.returncode == -9
    assert os.listdir(home.inflight)
    monkeypatch.setattr(inflights, "UNSEEN_S", -1.0)
    async with undertaker(home, await Client.connect(server)) as other:
        async with asyncio.timeout(patient(40)):
            while not {path.stem for path in home.inflight.iterdir()} <= {other.worker, inflights.REPORTING}:
                await asyncio.sleep(0.02)


def test_activities_are_reported_by_task_token_and_never_by_id() -> None:
    """A stale report by id was seen to kill the living next attempt."""
    calls = []
    for file in [*ROOT.glob("*.py"), *(f for top in ("perdure", "activities", "workflows") for f in rglob(top))]:
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "get_async_activity_handle" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get_async_activity_handle":
                calls.append((file.name, len(node.args), [keyword.arg for keyword in node.keywords]))
    assert calls == [("inflight.py", 0, ["task_token"])]


def tokens(notes: Path) -> list[bytes]:
    return sorted(base64.b64decode(json.loads(note.read_bytes())["token"]) for note in notes.glob("*.json"))


def rglob(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))


def dead(home: Home, name: str, *more: str) -> None:
    """What a worker that is gone leaves behind."""
    notes = home.inflight / name
    notes.mkdir(parents=True)
    (home.inflight / f"{name}.lock").touch()
    for run in ("run", *more):
        note = {
            "token": base64.b64encode(b"nobody's").decode(),
            "workflow_id": "w",
            "run_id": str(uuid.uuid4()),
            "activity": "a",
        }
        (notes / f"{run}.json").write_text(json.dumps(note))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@asynccontextmanager
async def forwarding(port: int, to: str) -> AsyncIterator[None]:
    """The server answers at `port` from now on."""
    host, _, target = to.partition(":")
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, back = await asyncio.open_connection(host, int(target))
        pumps.update({asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(upstream, writer))})

    door = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        door.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


GONE = "0" * 32
"""The name of a worker that is dead."""


class Handed:
    """Patient's activity on a queue of its own, in the hands of whoever took it last and did nothing with it."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client, self.queue = client, queue

    async def to(self, worker: str) -> None:
        request = PollActivityTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=self.queue), identity=f"1@here/{worker}"
        )
        assert (await self._client.workflow_service.poll_activity_task_queue(request)).task_token

    async def seen(self) -> PendingActivityInfo:
        described = await self._client.get_workflow_handle(self.queue).describe()
        return described.raw_description.pending_activities[0]


@asynccontextmanager
async def handed(client: Client, *workers: str) -> AsyncIterator[list[Handed]]:
    """One for each of these workers."""
    each = [Handed(client, f"patient-{uuid.uuid4().hex}") for _ in workers]
    async with Worker(client, task_queue=TASK_QUEUE, workflows=[Patient]):
        for one, worker in zip(each, workers, strict=True):
            await client.start_workflow(Patient.run, one.queue, id=one.queue, task_queue=TASK_QUEUE)
            await one.to(worker)
        yield each
        for one in each:
            await client.get_workflow_handle(one.queue).terminate()


@pytest.mark.timeout(60)
async def test_what_a_worker_was_handed_and_had_not_noted_when_it_died_is_handed_out_again(
    home: Home, server: str
) -> None:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    living = InFlight(home)
    assert living.identity.endswith(f"/{living.worker}")
    async with handed(client, GONE, living.worker) as (lost, kept):
        (home.inflight / f"{GONE}.lock").touch()
        async with undertaker(home, client):
            await gone(home.inflight / f"{GONE}.lock")
        await lost.to("another")
        again, untouched = await lost.seen(), await kept.seen()
        assert (again.attempt, again.last_failure.application_failure_info.type) == (2, "WorkerDied")
        assert (untouched.attempt, untouched.last_worker_identity) == (1, f"1@here/{living.worker}")
    living.close()


@pytest.mark.timeout(60)
async def test_a_report_of_what_was_not_noted_that_comes_late_does_not_touch_the_next_attempt(
    home: Home, server: str
) -> None:
    from perdure.adapters.worker.inflight import _report_note

    client = await Client.connect(server, plugins=[perdure_plugin()])
    async with handed(client, GONE) as (lost,):
        [note] = [note async for note in find_handed_out(client, GONE)]
        assert (note["workflow_id"], note["activity"]) == (lost.queue, "implement")
        assert await _report_note(client, note)
        await lost.to("another")
        assert await _report_note(client, note), "the answer is final: there is nothing to report any more"
        assert [note async for note in find_handed_out(client, GONE)] == []
        assert (await lost.seen()).attempt == 2


@pytest.mark.timeout(60)
async def test_a_decision_that_a_dead_worker_had_taken_is_given_back_at_once_and_a_living_ones_is_not(
    home: Home, server: str
) -> None:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    living = InFlight(home)
    ids = {GONE: f"patient-{uuid.uuid4().hex}", living.worker: f"patient-{uuid.uuid4().hex}"}
    for worker, id in ids.items():
        await client.start_workflow(Patient.run, id, id=id, task_queue=TASK_QUEUE, task_timeout=timedelta(minutes=5))
        await client.get_workflow_handle(id).signal("beforehand")  # it stands between scheduled and taken
        assert (await decision(client, worker)).workflow_execution.workflow_id == id
    async with undertaker(home, client):
        (home.inflight / f"{GONE}.lock").touch()
        again = await decision(client, "another")  # the time-out of five minutes has not decided
    assert (again.workflow_execution.workflow_id, again.attempt) == (ids[GONE], 1)
    failed = [event async for event in client.get_workflow_handle(ids[GONE]).fetch_history_events()][4]
    assert failed.workflow_task_failed_event_attributes.failure.message == "its worker died"
    assert len([event async for event in client.get_workflow_handle(ids[living.worker]).fetch_history_events()]) == 4
    for id in ids.values():
        await client.get_workflow_handle(id).terminate()
    living.close()


async def decision(client: Client, worker: str) -> PollWorkflowTaskQueueResponse:
    """The next one that waits, taken by a worker of that name."""
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=TASK_QUEUE), identity=f"1@here/{worker}"
    )
    return await client.workflow_service.poll_workflow_task_queue(request)
