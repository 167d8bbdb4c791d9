"""Exactly one writer: the newest attempt, whoever had the workspace before it and however that one ended."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker import lease as leases
from perdure.adapters.worker.lease import SUPERSEDED, Leases
from perdure.models.errors import Superseded
from tests.processes import line, python
from tests.waiting import patient

HOLDER = """
import asyncio, sys
from pathlib import Path
from perdure.adapters.system.home import Home
from perdure.adapters.worker.lease import Leases

async def main():
    async with Leases(Home(Path(sys.argv[1]))).acquire("d") as lease:
        print("held", lease.generation, lease.proved, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_PROOF_S", 0.4)


async def test_one_after_the_other_each_gets_a_proved_lease_of_a_higher_generation(home: Home) -> None:
    registry = Leases(home)
    async with registry.acquire("d") as first:
        first.check()
    async with registry.acquire("d") as second:
        second.check()
        assert second.generation == first.generation + 1
        assert first.proved
        assert second.proved
        with pytest.raises(Superseded):
            first.check()
    assert registry._held == {}


async def test_the_next_lease_of_the_same_process_knows_where_the_worktree_was_left(home: Home) -> None:
    registry = Leases(home)
    async with registry.acquire("d") as first:
        first.leave_at("checkpoint")
    async with registry.acquire("d") as second:
        assert second.left_at == "checkpoint"
    async with registry.acquire("d") as third:
        assert third.left_at == "", "the second has not said where it left it"
        third.leave_at("another")
    async with Leases(home).acquire("d"):
        pass
    async with registry.acquire("d") as after_another_worker:
        assert after_another_worker.left_at == ""
        after_another_worker.leave_at("checkpoint")

    async def fail_after_leaving() -> None:
        async with registry.acquire("d") as failing:
            assert failing.left_at == "checkpoint"
            failing.leave_at("checkpoint")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail_after_leaving()
    async with registry.acquire("d") as last:
        assert last.left_at == "", "who failed may have left something"


async def test_a_takeover_cancels_the_writer_before_and_waits_for_its_threads(home: Home) -> None:
    registry, events = Leases(home), []
    go = asyncio.Event()

    async def writer() -> None:
        async with registry.acquire("d"):
            go.set()
            try:
                await in_thread(lambda: (__import__("time").sleep(0.3), events.append("thread ended")))
            except asyncio.CancelledError as cancelled:
                events.append(cancelled.args[0])
                raise

    task = asyncio.create_task(writer())
    await go.wait()
    async with registry.acquire("d") as lease:
        events.append("taken over")
        assert lease.proved
    assert events == ["thread ended", SUPERSEDED, "taken over"]
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.usefixtures("impatient")
async def test_a_writer_that_cannot_be_shown_to_be_gone_leaves_the_lease_unproved(home: Home) -> None:
    registry, go, end = Leases(home), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        async with registry.acquire("d") as lease:
            go.set()
            while not end.is_set():
                try:
                    await end.wait()
                except asyncio.CancelledError:
                    continue
            with pytest.raises(Superseded):
                lease.check()

    task = asyncio.create_task(stubborn())
    await go.wait()
    async with registry.acquire("d") as lease:
        assert not lease.proved
        lease.check()
        async with registry.acquire("d", "d~1") as elsewhere:
            assert elsewhere.proved, "another directory is nobody else's"
    end.set()
    await task


async def test_a_worker_killed_by_sigkill_holds_nothing(home: Home) -> None:
    with python(HOLDER, home.root) as holder:
        assert line(holder) == "held 1 True"
        holder.kill()
        holder.wait(patient(10))
        async with Leases(home).acquire("d") as lease:
            assert (lease.generation, lease.proved) == (2, True)


@pytest.mark.usefixtures("impatient")
async def test_a_worker_that_sleeps_still_holds_its_directory_and_a_dead_one_does_not(home: Home) -> None:
    with python(HOLDER, home.root) as holder:
        assert line(holder) == "held 1 True"
        holder.send_signal(signal.SIGSTOP)
        async with Leases(home).acquire("d") as lease:
            assert not lease.proved
        holder.kill()
        holder.wait(patient(10))
        async with Leases(home).acquire("d") as lease:
            assert lease.proved


async def test_of_many_at_once_the_newest_ends_with_the_workspace_and_nobody_waits_for_the_overtaken(
    home: Home,
) -> None:
    registry, inside, most, ended = Leases(home), 0, 0, []

    async def attempt(number: int) -> None:
        nonlocal inside, most
        try:
            async with registry.acquire("d") as lease:
                inside += 1
                most = max(most, inside)
                try:
                    assert lease.proved
                    await asyncio.sleep(0.2)
                    lease.check()
                    ended.append(lease.generation)
                finally:
                    inside -= 1
        except (Superseded, asyncio.CancelledError):
            return

    tasks = [asyncio.create_task(attempt(number)) for number in range(6)]
    async with asyncio.timeout(leases.LEASE_PROOF_S):
        await asyncio.gather(*tasks)
    assert most == 1
    assert ended == [6]
    assert registry._held == {}


async def test_an_attempt_overtaken_while_it_waits_gives_up_at_once(home: Home) -> None:
    with python(HOLDER, home.root) as holder:
        assert line(holder) == "held 1 True"
        waiting = asyncio.create_task(_take(Leases(home)))
        await asyncio.sleep(0.2)
        leases._raise_generation(home.workspace("d") / "generation")
        async with asyncio.timeout(patient(2)):
            with pytest.raises(Superseded):
                await waiting


async def test_an_attempt_cancelled_while_it_waits_for_sandboxes_keeps_no_lock(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's sandbox holds its lock: the proof takes a while, and the attempt is cancelled meanwhile."""
    directory = home.workspace("d")
    directory.mkdir(parents=True)
    sandbox = try_lock(directory / "sandbox-tree")
    assert sandbox is not None
    monkeypatch.setattr(leases, "LEASE_PROOF_S", 0.5)
    task = asyncio.create_task(_take(Leases(home)))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free = try_lock(directory / "lease-tree")
    assert free is not None, "the lease outlived its attempt"
    os.close(free)
    async with Leases(home).acquire("d") as lease:
        assert not lease.proved, "a sandbox's processes may still write"
    os.close(sandbox)


async def test_a_generation_file_that_was_emptied_counts_from_one(home: Home) -> None:
    directory: Path = home.workspace("d")
    directory.mkdir(parents=True)
    (directory / "generation").write_text("")
    async with Leases(home).acquire("d") as lease:
        assert lease.generation == 1


async def _take(registry: Leases) -> None:
    async with registry.acquire("d"):
        await asyncio.sleep(60)
