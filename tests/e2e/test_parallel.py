"""Many deliveries on one repository at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lab import BUILT, HAPPY, Lab, finished, git, heads, make_target, pulls

PORTS_SHOWN = HAPPY.replace("&& echo written", "&& echo $BACKEND_PORT-$FRONTEND_PORT > ports.txt && sleep 1")


@pytest.mark.timeout(180)
async def test_three_deliveries_at_once_are_three_pull_requests_with_three_port_pairs_and_no_git_error(
    tmp_path: Path, ports: int
) -> None:
    await at_once(3, tmp_path, ports)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_so_are_twenty(tmp_path: Path, ports: int) -> None:
    await at_once(20, tmp_path, ports)


async def at_once(many: int, tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, PORTS_SHOWN, ports=ports) as lab:
        lab.worker()
        ids = [f"calc-{number}" for number in range(many)]
        submitted = await asyncio.gather(*(lab.submit(origin, id=id, **BUILT) for id in ids))
        results = await asyncio.gather(*(finished(one, lab, timeout=170) for one in submitted))
        assert [result.status for result in results] == ["delivered"] * many, [result.message for result in results]
        assert len({result.head_sha for result in results}) == many
        assert sorted(pull["head"] for pull in pulls(origin)) == sorted(f"perdure/{id}" for id in ids)
        assert heads(origin).keys() == {"main", *(f"perdure/{id}" for id in ids)}
        pairs = {git(origin, "show", f"perdure/{id}:ports.txt") for id in ids}
        assert len(pairs) == many
        assert not list(lab.home.ports.glob("*-*")), "ports were not given back"
        assert "GitError" not in lab.worker_log()
        assert "Completing activity as failed" not in lab.worker_log()
