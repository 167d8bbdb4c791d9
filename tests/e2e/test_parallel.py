"""Many deliveries on one repository at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lab import BUILT, HAPPY, Lab, finished, git, heads, make_target, pulls

PORTS_SHOWN = HAPPY.replace("&& echo written", "&& echo $BACKEND_PORT-$FRONTEND_PORT > ports.txt && sleep 1")


@pytest.mark.timeout(150)
async def test_three_deliveries_at_once_are_three_pull_requests_with_three_port_pairs(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, PORTS_SHOWN, ports=ports) as lab:
        lab.worker()
        ids = [f"calc-{number}" for number in range(3)]
        submitted = await asyncio.gather(*(lab.submit(origin, id=id, **BUILT) for id in ids))
        results = await asyncio.gather(*(finished(one, lab, timeout=120) for one in submitted))
        assert [result.status for result in results] == ["delivered"] * 3, [result.message for result in results]
        assert sorted(pull["head"] for pull in pulls(origin)) == sorted(f"perdure/{id}" for id in ids)
        assert heads(origin).keys() == {"main", *(f"perdure/{id}" for id in ids)}
        pairs = {git(origin, "show", f"perdure/{id}:ports.txt") for id in ids}
        assert len(pairs) == 3
        assert not list(lab.home.ports.glob("*-*")), "ports were not given back"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("many", [5, pytest.param(20, marks=pytest.mark.slow)])
async def test_many_started_at_once_get_a_workspace_each_without_a_git_error(
    many: int, tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, HAPPY, ports=ports) as lab:
        lab.worker()
        config = "version = 1\n[setup]\ncommands = []\n"
        submitted = await asyncio.gather(
            *(lab.submit(origin, id=f"calc-{number}", phases=["build"], config=config) for number in range(many))
        )
        results = await asyncio.gather(*(finished(one, lab, timeout=170) for one in submitted))
        assert [result.status for result in results] == ["completed"] * many, [result.message for result in results]
        assert len({result.head_sha for result in results}) == many
        assert "GitError" not in lab.worker_log()
        assert "Completing activity as failed" not in lab.worker_log()
