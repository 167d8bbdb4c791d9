"""An engine: a home with its own Temporal server, supervised workers, a rehearsal and target repositories.

Everything in it is real: processes that die of real signals, git, HTTP, the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from perdure.adapters.system.files import is_locked, try_lock
from perdure.client import Perdure, Submission
from perdure.local.places import Places, read_running_supervisor, worker_command, worker_environment, worker_script
from perdure.local.processes import wait_until_released
from perdure.local.server import ensure_server, find_server, stop_server
from perdure.models.delivery.result import DeliveryResult
from perdure.plugin import perdure_plugin
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.fork_server import Forked, Kept, fork
from tests.homes import fresh_home
from tests.processes import end_with_this_process, family, send
from tests.repositories import CALC, git, heads, make_target, pulls
from tests.temporal_server import cluster, joined
from tests.waiting import patient, until

__all__ = [
    "BUILT",
    "CALC",
    "FIXES",
    "HAPPY",
    "SCREENPLAYS",
    "TESTED",
    "Engine",
    "check_shipped",
    "finished",
    "git",
    "heads",
    "make_target",
    "pulls",
    "sandboxes",
    "until",
]  # with what every engine's target needs: tests import it from here

SCREENPLAYS = Path(__file__).parent / "screenplays"
HAPPY = (SCREENPLAYS / "add_sub.toml").read_text()
FIXES = (SCREENPLAYS / "add_sub_with_fixes.toml").read_text()

BUILT: dict[str, Any] = {
    "phases": ["build", "ship"],
    "config": "version = 1\n[setup]\ncommands = []\n[ship]\nallow_untested = true\n",
}
"""For `submit`: built and shipped alone, a third of the work, where a test is not about plans, tests or reviews."""

TESTED: dict[str, Any] = {"phases": ["build", "test", "review", "ship"]}
"""Likewise where a verdict is all that the test is about: nobody has to plan for that."""

BUILT_CALLS = 4
"""Of the model, with HAPPY."""


_UNMEASURED = {"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""}


class Engine:
    """One home. `env` is what its workers get on top of the tester's environment.

    measured  Their coverage is: it takes a third of their time, and most engines go the same ways through them.
    """

    def __init__(
        self, root: Path, *, ports: int = 21000, env: dict[str, str] | None = None, measured: bool = False
    ) -> None:
        self.root, self.home = root, fresh_home(root / "home")
        self.env = {
            **({} if measured else _UNMEASURED),
            "PERDURE_HOME": str(self.home.root),
            "PERDURE_SQLITE_SYNCHRONOUS": "1",
            "PERDURE_LOCAL_REPOSITORIES": tempfile.gettempdir(),  # most submit as any client does, without a key
            "PERDURE_PORTS_BACKEND": f"{ports}-{ports + 29}",
            "PERDURE_PORTS_FRONTEND": f"{ports + 30}-{ports + 59}",
            **(env or {}),
        }
        self.rehearsal: Rehearsal | None = None
        self.client: Client
        self.perdure: Perdure
        self._processes: list[subprocess.Popen[bytes] | Forked] = []
        self._kept: list[Kept] = []
        self.log = root / "worker.log"

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        root: Path,
        screenplay: str | Path,
        *,
        ports: int = 21000,
        env: dict[str, str] | None = None,
        measured: bool = False,
        own_server: bool = False,
        server_port: int | None = None,
    ) -> AsyncIterator[Engine]:
        """A home with server and rehearsal, no worker yet; on the way out nothing is left running.

        own_server  Nobody shares it: for tests that end it, or look into its files or its `default` namespace.
        """
        engine = cls(root, ports=ports, env=env, measured=measured)
        os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "1"
        text = screenplay.read_text() if isinstance(screenplay, Path) else textwrap.dedent(screenplay)
        async with Rehearsal(Screenplay.parse(text)) as rehearsal, AsyncExitStack() as served:
            engine.rehearsal = rehearsal
            engine.env |= {"ANTHROPIC_BASE_URL": rehearsal.url, "ANTHROPIC_API_KEY": "rehearsal"}
            if own_server or server_port:
                served.push_async_callback(engine.end_server)
            else:
                await served.enter_async_context(joined(engine.home))
            await engine.start_server(server_port)
            if (address := cluster()) and not own_server:
                engine.env |= {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": engine.client.namespace}
            try:
                yield engine
            finally:
                engine.end_workers()
                await engine.end_supervisor()

    async def end_supervisor(self) -> None:
        """The one that a command has started for a worker of its own; it would stay for fifteen idle minutes."""
        lock = Places(self.home).supervisor_lock
        if is_locked(lock) and (there := read_running_supervisor(self.home)):
            started = family(there.pid)
            send(there.pid, signal.SIGTERM)
            if not await wait_until_released(lock, patient(20)):
                for process in started:
                    send(process.pid, signal.SIGKILL)

    async def start_server(self, port: int | None = None) -> None:
        info = await ensure_server(self.home, port=port, say=lambda _: None)
        if info.started:
            end_with_this_process(info.pid)
        self.client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
        self.perdure = Perdure(self.client)

    async def end_server(self) -> None:
        """At once: an orderly end takes it a second, and nobody reads this database again."""
        if info := await find_server(self.home):
            send(info.pid, signal.SIGKILL)
        await stop_server(self.home)

    def worker(self, **env: str) -> Forked:
        """A worker that nobody restarts."""
        with self.log.open("ab") as log, Path(os.devnull).open() as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            forked = fork(str(worker_script()), env=self.environment(env), cwd=Path.cwd(), files=files)
        self._processes.append(forked)
        return forked

    def program(self, **env: str) -> subprocess.Popen[bytes]:
        """Likewise, as a program of its own from the start: for tests that look at its command line or environment."""
        return self._spawn(worker_command(), env)

    def kept(self, **env: str) -> Kept:
        """A worker that is forked again at once whenever it dies: for tests of what its death does to the work."""
        kept = Kept(lambda: self.worker(**env))
        self._kept.append(kept)
        return kept

    def supervised(self, **env: str) -> subprocess.Popen[bytes]:
        """A worker that is started again whenever it dies, by the product's own supervisor."""
        return self._spawn([sys.executable, "-m", "perdure.local.supervisor"], env)

    def _spawn(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        return worker_environment(self.home, {**os.environ, **self.env, **(env or {})})

    def end_workers(self) -> None:
        """As a deploy would: SIGTERM, and SIGKILL for what does not drain (a test that failed in the middle)."""
        self._let_go()
        for process in self._processes:
            send(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(patient(8))
            except subprocess.TimeoutExpired:
                continue
        self.kill_workers()

    def kill_workers(self) -> None:
        self._let_go()
        for process in self._processes:
            for victim in family(process.pid):
                send(victim.pid, signal.SIGKILL)
            process.wait(patient(10))
        self._processes.clear()

    def _let_go(self) -> None:
        for kept in self._kept:
            kept.let_go()
        self._kept.clear()

    async def submit(
        self, repository: Path | str, request: str = "Add sub", id: str = "calc-sub", **more: Any
    ) -> Submission:
        """With this home's key where a checkout of the host is named, like the command line; else like any client."""
        perdure = Perdure(self.client, self.home.key()) if "source" in more else self.perdure
        return await perdure.submit({"repository": str(repository), "request": request, **more}, id=id)

    def handle(self, id: str = "calc-sub") -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(id)

    def worker_log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def redone(self, id: str = "calc-sub") -> list[tuple[str, str]]:
        """Each activity that was done again, of any run, with why its last attempt failed: `WorkerDied` when that was
        the report of the living, `timeout` when nobody had known better than to wait."""
        found: list[tuple[str, str]] = []
        async for run in self.client.list_workflows(f"WorkflowId = '{id}'"):
            scheduled: dict[int, str] = {}
            async for event in self.client.get_workflow_handle(id, run_id=run.run_id).fetch_history_events():
                if event.HasField("activity_task_scheduled_event_attributes"):
                    scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
                started = event.activity_task_started_event_attributes
                if started.HasField("last_failure"):
                    failure = started.last_failure
                    why = (
                        "timeout" if failure.HasField("timeout_failure_info") else failure.application_failure_info.type
                    )
                    found.append((scheduled[started.scheduled_event_id], why))
        return found

    def model_calls(self) -> int:
        assert self.rehearsal is not None
        return len(self.rehearsal.calls)

    async def report(self) -> dict[str, Any]:
        assert self.rehearsal is not None
        return self.rehearsal.report()


async def finished(submitted: Submission, engine: Engine, timeout: float = 100) -> DeliveryResult:
    """The delivery's end; when it does not come, what the worker said about it."""
    try:
        async with asyncio.timeout(patient(timeout)):
            return await submitted.delivery.result()
    except TimeoutError:
        described = await submitted.delivery.describe()
        raise AssertionError(f"no end after {timeout} s: {described.pending}\n{engine.worker_log()[-4000:]}") from None


def check_shipped(origin: Path, engine: Engine, result: DeliveryResult, files: dict[str, str]) -> None:
    """What holds after any survived fault: one branch, one pull request, each step's commit once, nothing broken."""
    branch = f"perdure/{result.delivery_id}"
    assert result.status == "delivered", (result.message, engine.worker_log()[-3000:])
    assert heads(origin).keys() == {"main", branch}
    assert heads(origin)[branch] == result.head_sha
    opened = pulls(origin)
    assert [pull["head"] for pull in opened] == [branch]
    log = git(origin, "log", "--format=%(trailers:key=Perdure-Step,valueonly,separator=%x2C)", f"main..{branch}")
    steps = [line for line in log.splitlines() if line]
    assert len(steps) == len(set(steps)) > 0, f"a step was committed twice: {steps}"
    for name, text in files.items():
        assert git(origin, "show", f"{branch}:{name}") == text.strip(), name
    vaults = list(engine.home.vaults.glob("*.git"))
    for repository in (origin, *vaults):
        git(repository, "fsck", "--strict", "--connectivity-only")
    assert engine.rehearsal is not None
    assert engine.rehearsal.prefix_breaks == 0
    assert result.receipt.replies_paid_twice == 0


def sandboxes(engine: Engine) -> list[str]:
    """Sandboxes of this home with a living process, dead workers' included: each holds its workspace's lock."""
    held = []
    for path in engine.home.root.glob("workspaces/*/sandbox-*"):
        lock = try_lock(path)
        if lock is None:
            held.append(path.name)
        else:
            os.close(lock)
    return held
