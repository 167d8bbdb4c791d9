"""The surroundings of a delivery under faults: a home with server and supervisor, the model's twin, a forge."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
from temporalio.service import RPCError

from perdure.local import web_ui_proxy
from perdure.local.identity import find_free_ports
from tests.chaos.stories import Story
from tests.engine import Engine, git, make_target
from tests.engine_with_github import TOKEN
from tests.processes import family, send
from tests.twins.github import GitHubTwin
from tests.waiting import patient

PATIENCE_S = 240.0
"""For anything that the harness waits for: twenty times what it takes on a busy machine."""

WEB_UI_PROXY = str(web_ui_proxy.__file__)
"""The word by which the process before the Web UI is known. It lives as long as the server does."""


@dataclass
class Struck:
    """One fault: when it began and ended (time.monotonic), its kind, and what exactly it hit."""

    kind: str
    detail: str
    began: float
    ended: float = 0.0


@dataclass
class World:
    """`origin`: the bare repository that the pull request is opened in; `base`: its main before; `struck`: the faults,
    in order; `search_s`: seconds a fault waits for its target, then it has missed; `id`: of the delivery or backlog;
    `story`: of a delivery."""

    engine: Engine
    rng: random.Random
    origin: Path
    base: str
    id: str
    supervisor: subprocess.Popen[bytes]
    story: Story | None = None
    github: GitHubTwin | None = None
    struck: list[Struck] = field(default_factory=list)
    cancelled: bool = False
    search_s: float = 4.0

    @property
    def root(self) -> Path:
        return self.engine.root

    def worker(self) -> int | None:
        """The process id of the supervised worker that lives, from the process table."""
        server = self.fork_server()
        return _worker_below(server) if server else None

    def fork_server(self) -> int | None:
        """The process id of the process that forks workers, likewise."""
        return _worker_below(self.supervisor.pid)

    def server(self) -> int | None:
        """The process id of this home's Temporal server, likewise."""
        for process in psutil.process_iter(["cmdline", "cwd"]):
            command = process.info["cmdline"] or []
            if "start-dev" in command and process.info["cwd"] == str(self.engine.home.root):
                return int(process.pid)
        return None

    def sandboxes(self) -> list[int]:
        """Processes of bubblewrap below the worker."""
        worker, found = self.worker(), []
        for process in family(worker)[1:] if worker else []:
            with suppress(psutil.Error):
                if process.name() == "bwrap" and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(int(process.pid))
        return found

    def worktrees(self) -> list[Path]:
        """What lies in the place of worktrees, by name."""
        return sorted(self.engine.home.root.glob("trees/*"))

    def inside(self) -> list[int]:
        """Processes that work in this home: workers, their gits and sandboxes. Not what lives on beside a dead worker:
        the server and what stands before its Web UI, the supervisor, what forks its workers, and the page."""
        others = {os.getpid(), self.server(), self.supervisor.pid, self.fork_server()}
        processes = mentions(str(self.engine.home.root), besides={WEB_UI_PROXY, "perdure.page"})
        return [process.pid for process in processes if process.pid not in others]

    def restart(self) -> None:
        """Another supervisor, after the one before was killed."""
        self.supervisor.wait(patient(10))
        self.supervisor = self.engine.supervised()

    def signal(self, pid: int | None, number: signal.Signals) -> bool:
        if pid is None:
            return False
        send(pid, number)
        return True

    def note(self, kind: str, detail: str = "") -> Struck:
        self.struck.append(Struck(kind, detail, time.monotonic()))
        return self.struck[-1]


def mentions(path: str, besides: Set[str]) -> list[psutil.Process]:
    """Processes whose command line, environment or directory names a path; zombies aside, and those that have one of
    these words in their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and path in " ".join(_words(process)):
                found += [process] if besides.isdisjoint(process.cmdline()) else []
    return found


def _words(process: psutil.Process) -> list[str]:
    words = list(process.cmdline())
    with suppress(psutil.Error, OSError):
        words.append(process.cwd())
    with suppress(psutil.Error, OSError):
        words += process.environ().values()
    return words


def _worker_below(parent: int) -> int | None:
    for process in _children(parent):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and "worker.py" in " ".join(process.cmdline()):
                return int(process.pid)
    return None


def _children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children())
    except psutil.Error:
        return []


_T = TypeVar("_T")


async def answered(ask: Callable[[], Awaitable[_T]]) -> _T:
    """The server's answer, asked for again while it is away."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(patient(20)):
                return await ask()
        except (RPCError, TimeoutError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.3)


@asynccontextmanager
async def opened(root: Path, story: Story, screenplay: str, rng: random.Random, ports: int) -> AsyncIterator[World]:
    """Nothing is submitted yet. On the way out all is ended in order, as a person would end it."""
    origin, github = make_target(root / "calc.git"), None
    async with AsyncExitStack() as stack:
        env: dict[str, str] = {}
        if story.github:
            github = await stack.enter_async_context(GitHubTwin(root / "github", token=TOKEN))
            github.add_repository("me/calc", source=origin)
            github.add_issue("me/calc", "Add sub", "There is add, there is no sub.")
            env = {"PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": TOKEN}
            origin = root / "github" / "me" / "calc.git"
        id = "calc-issue-1" if github else "calc-sub"
        engine = await stack.enter_async_context(chaos_engine(root, screenplay, ports, env))
        yield World(engine, rng, origin, git(origin, "rev-parse", "main"), id, engine.supervised(), story, github)


def chaos_engine(
    root: Path, screenplay: str, ports: int, env: dict[str, str] | None = None
) -> AbstractAsyncContextManager[Engine]:
    """Its server's port is not the one that everybody tries first: this server is killed, and another home's would take
    it meanwhile."""
    return Engine.open(root, screenplay, ports=ports, env=env, server_port=find_free_ports().grpc)
