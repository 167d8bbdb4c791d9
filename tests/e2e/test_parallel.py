"""Many deliveries on one repository at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.engine import BUILT, HAPPY, Engine, finished, git, heads, make_target, pulls
from tests.processes import family

MB = 1_000_000
PORTS_SHOWN = HAPPY.replace("&& echo written", "&& echo $BACKEND_PORT-$FRONTEND_PORT > ports.txt && sleep 1")


@pytest.mark.timeout(180)
async def test_three_deliveries_at_once_are_three_pull_requests_with_three_port_pairs_and_no_git_error(
    tmp_path: Path, ports: int
) -> None:
    await at_once(3, tmp_path, ports)


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_so_are_fifty_and_their_worker_needs_no_more_than_400_mb(tmp_path: Path, ports: int) -> None:
    first = 26000 + 10 * (ports - 21000) // 60
    more = {"PERDURE_PORTS_BACKEND": f"{first}-{first + 99}", "PERDURE_PORTS_FRONTEND": f"{first + 100}-{first + 199}"}
    worker, everything = await at_once(50, tmp_path, ports, within=1400, **more)
    print(f"at most {worker / MB:.0f} MB the worker, {everything / MB:.0f} MB with all that it started")
    assert worker < 400 * MB


async def at_once(many: int, tmp_path: Path, ports: int, within: float = 170, **env: str) -> tuple[int, int]:
    """The most bytes that were seen of the worker, and of it with all its children."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, PORTS_SHOWN, ports=ports, env=env) as engine:
        measuring = asyncio.create_task(largest(engine.worker().pid))
        ids = [f"calc-{number}" for number in range(many)]
        submitted = await asyncio.gather(*(engine.submit(origin, id=id, **BUILT) for id in ids))
        results = await asyncio.gather(*(finished(one, engine, timeout=within) for one in submitted))
        assert [result.status for result in results] == ["delivered"] * many, [result.message for result in results]
        assert len({result.head_sha for result in results}) == many
        assert sorted(pull["head"] for pull in pulls(origin)) == sorted(f"perdure/{id}" for id in ids)
        assert heads(origin).keys() == {"main", *(f"perdure/{id}" for id in ids)}
        pairs = {git(origin, "show", f"perdure/{id}:ports.txt") for id in ids}
        assert len(pairs) == many
        assert not list(engine.home.ports.glob("*-*")), "ports were not given back"
        assert "GitError" not in engine.worker_log()
        assert "Completing activity as failed" not in engine.worker_log()
        measuring.cancel()
        return await measuring


async def largest(pid: int) -> tuple[int, int]:
    """Until it is cancelled. Pages that a child shares with the worker it was forked from count once."""
    own = all_of_it = 0
    with suppress(asyncio.CancelledError):
        while True:
            whole = 0
            for process in family(pid):
                with suppress(psutil.Error):
                    own = max(own, process.memory_info().rss if process.pid == pid else 0)
                    whole += process.memory_full_info().pss
            all_of_it = max(all_of_it, whole)
            await asyncio.sleep(1)
    return own, all_of_it
