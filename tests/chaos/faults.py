"""The faults: what can happen to the processes, the files and the partners of a delivery at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.service import RPCError

from perdure.adapters.system.directories import remove_path
from tests.chaos.world import World
from tests.engine import until

DEADLY = ("kill worker", "kill fork server", "kill supervisor", "power cut", "dirty worktree", "remove worktrees")
"""Those a worker dies of, or is told to stop by."""

FORGE_OPERATIONS = ("pulls/list", "pulls/create", "pulls/update", "git/push", "git/fetch", "*")
FORGE_FAULTS = ("bad_gateway", "bad_gateway_after", "cut", "cut_after", "slow", "secondary", "rate_limit", "stale")

_T = TypeVar("_T")


async def kill_worker(world: World) -> str:
    pid = await until(world.worker, timeout=60)
    world.signal(pid, signal.SIGKILL)
    return f"worker {pid}"


async def kill_fork_server(world: World) -> str:
    """Its worker is sent SIGTERM by the kernel, and drains."""
    pid = await until(world.fork_server, timeout=60)
    world.signal(pid, signal.SIGKILL)
    return f"fork server {pid}"


async def kill_server(world: World) -> str:
    pid = world.server()
    world.signal(pid, signal.SIGKILL)
    return f"server {pid}"


async def kill_supervisor(world: World) -> str:
    """Its worker is sent SIGTERM by the kernel, and drains."""
    pid = world.supervisor.pid
    world.supervisor.kill()
    await asyncio.sleep(world.rng.uniform(0.0, 1.5))
    world.restart()
    return f"supervisor {pid}"


async def kill_tool(world: World) -> str:
    """The sandbox of a command, its inside or its outside, as an out-of-memory killer would."""
    if not (sandboxes := await _search(world, world.sandboxes)):
        return "missed"
    pid = world.rng.choice(sandboxes)
    await asyncio.sleep(world.rng.uniform(0.0, 0.1))
    world.signal(pid, signal.SIGKILL)
    return f"bwrap {pid} of {len(sandboxes)}"


async def _search(world: World, find: Callable[[], list[_T]]) -> list[_T]:
    """The targets of a fault, as soon as there are any; none where there are none for too long."""
    end = time.monotonic() + world.search_s
    while not (targets := find()) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return targets


async def stop_worker(world: World) -> str:
    """It sleeps, as on a laptop whose lid was closed; in one of eight cases past the heartbeat timeout."""
    pid = await until(world.worker, timeout=60)
    seconds = 33.0 if world.rng.random() < 0.125 else world.rng.uniform(0.2, 6.0)
    return await _stopped(world, pid, seconds)


async def stop_server(world: World) -> str:
    return await _stopped(world, world.server(), world.rng.uniform(0.2, 6.0))


async def _stopped(world: World, pid: int | None, seconds: float) -> str:
    world.signal(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        world.signal(pid, signal.SIGCONT)
    return f"{pid} for {seconds:.1f} s"


async def reset(world: World) -> str:
    """Back to a random decision of the workflow: Temporal's own reset, whatever is in flight."""
    service = world.engine.client.workflow_service
    try:
        described = await world.engine.handle(world.id).describe()
        if described.close_time is not None:
            return "missed"
        tasks = [
            event.event_id
            async for event in world.engine.handle(world.id).fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        if not tasks:
            return "missed"
        event = world.rng.choice(tasks)
        await service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=world.engine.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=world.id, run_id=described.run_id),
                reason="chaos",
                workflow_task_finish_event_id=event,
                request_id=f"chaos-{len(world.struck)}",
            )
        )
    except RPCError as error:  # it ended meanwhile, or has not begun
        return f"missed: {error.message[:80]}"
    return f"to event {event} of {described.run_id[:8]}"


async def cancel(world: World) -> str:
    """Cancelled at once; the harness retries it when it has ended."""
    try:
        await world.engine.perdure.delivery(world.id).cancel()
    except RPCError as error:
        return f"missed: {error.message[:80]}"
    world.cancelled = True
    return "now"


async def power_cut(world: World) -> str:
    """Supervisor, worker and server at once, and files of the worktree as a disk without sync leaves them."""
    server, worker = world.server(), world.worker()
    world.supervisor.kill()
    world.signal(worker, signal.SIGKILL)
    world.signal(server, signal.SIGKILL)
    await asyncio.to_thread(world.supervisor.wait, 10)
    await _gone(world)
    damage = _damage(world)
    world.restart()
    return damage


async def dirty_worktree(world: World) -> str:
    """The worker dies, and before the next one starts somebody or something was at the worktree."""
    worker = await until(world.worker, timeout=60)  # one that is just being started would outlive this
    with _nobody_restarts(world):
        world.signal(worker, signal.SIGKILL)
        await _gone(world)
        return _damage(world)


async def remove_worktrees(world: World) -> str:
    """The worker dies, and all that lies in the place of worktrees with it."""
    worker = await until(world.worker, timeout=60)
    if not await _search(world, world.worktrees):
        return "missed"
    with _nobody_restarts(world):
        world.signal(worker, signal.SIGKILL)
        await _gone(world)
        removed = world.worktrees()
        for tree in removed:
            remove_path(tree)
    return ", ".join(tree.name for tree in removed)


async def worktree_vanishes(world: World) -> str:
    """While a worker is at it."""
    for tree in world.worktrees():
        os.rename(tree, world.root / f"vanished-{len(world.struck)}")
        return tree.name
    return "missed"


async def forge(world: World) -> str:
    if world.github is None:
        return "missed"
    said = []
    for _ in range(world.rng.randint(1, 3)):
        operation, kind = world.rng.choice(FORGE_OPERATIONS), world.rng.choice(FORGE_FAULTS)
        world.github.faults.add(operation, kind, times=world.rng.randint(1, 2), retry_after=1.0)
        said.append(f"{kind} of {operation}")
    return ", ".join(said)


FAULTS: dict[str, tuple[int, Callable[[World], Awaitable[str]]]] = {
    "kill worker": (6, kill_worker),
    "kill fork server": (1, kill_fork_server),
    "kill server": (2, kill_server),
    "kill supervisor": (2, kill_supervisor),
    "kill tool": (2, kill_tool),
    "stop worker": (3, stop_worker),
    "stop server": (1, stop_server),
    "reset": (2, reset),
    "cancel": (2, cancel),
    "power cut": (2, power_cut),
    "dirty worktree": (2, dirty_worktree),
    "remove worktrees": (1, remove_worktrees),
    "worktree vanishes": (1, worktree_vanishes),
    "forge": (3, forge),
}
"""Name → how often beside the others, and what it does; what that returns goes into the record."""


@contextmanager
def _nobody_restarts(world: World) -> Iterator[None]:
    world.signal(world.supervisor.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        world.signal(world.supervisor.pid, signal.SIGCONT)


async def _gone(world: World) -> None:
    """Every process of a worker or sandbox: what is left of the disk is at rest then."""
    await until(lambda: world.worker() is None and not world.inside(), timeout=30)


def _damage(world: World) -> str:
    """To one worktree that there is: a file emptied, added or removed, all of it removed, or git's locks left."""
    trees = [path for path in world.worktrees() if path.is_dir()]
    if not trees:
        return "no worktree"
    tree = world.rng.choice(trees)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and ".git" not in path.relative_to(tree).parts)
    how = world.rng.choice(("emptied", "added", "removed", "all removed", "locks"))
    if how == "added" or (how in ("emptied", "removed") and not files):
        (tree / f"stray-{len(world.struck)}.txt").write_text("nobody asked for this\n")
        return "stray file"
    if how == "all removed":
        shutil.rmtree(tree)
        return how
    if how == "locks":
        return _locks(world)
    file = world.rng.choice(files)
    file.write_bytes(b"") if how == "emptied" else file.unlink()
    return f"{file.relative_to(tree)} {how}"


def _locks(world: World) -> str:
    """Files left by a git that dies while it writes."""
    left: list[Path] = []
    for directory in sorted(world.engine.home.root.glob("vaults/*.git/worktrees/*")):
        for name in world.rng.sample(("index.lock", "HEAD.lock", "config.worktree.lock", "logs/HEAD.lock"), 2):
            path = directory / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
            left.append(path)
    return "locks: " + ", ".join(path.name for path in left)


async def strike(world: World, kind: str) -> None:
    struck = world.note(kind)
    try:
        struck.detail = await FAULTS[kind][1](world)
    finally:
        struck.ended = time.monotonic()


def random_kinds(rng: random.Random, number: int) -> list[str]:
    """So many kinds of faults, as often as each comes beside the others."""
    return rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()], k=number)


async def storm(world: World, kinds: Sequence[str], calm_s: float) -> None:
    """These faults in turn, each some time after the model was asked again, or at any moment."""
    for kind in kinds:
        asked = world.engine.model_calls()
        patience = world.rng.choice((0.0, 3.0, 20.0, 20.0))
        end = time.monotonic() + patience
        while world.engine.model_calls() == asked and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await asyncio.sleep(world.rng.uniform(0.0, calm_s))
        await strike(world, kind)
