"""The same backlog handed in again, with other options: it is come back to, and what did not count is named."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.cli.conftest import Cli, Ran
from tests.temporal_server import server

__all__ = ["server"]

NIGHT = """\
version: 1
parallel: 2
window: 23:00-07:00
items:
  - id: api
    request: Add it
"""


@pytest.mark.timeout(120)
async def test_options_of_a_backlog_that_is_there_are_named_as_not_counted(cli: Cli, server: str) -> None:
    there = Cli(cli.home, cli.cwd, {**cli.env, "TEMPORAL_ADDRESS": server})
    (cli.cwd / "night.yaml").write_text(NIGHT)

    async def typed(*args: str) -> Ran:
        ran: Ran = await asyncio.to_thread(there, "backlog", "start", "night.yaml", "--id", "win", "--detach", *args)
        assert ran.code == 0, ran
        return ran

    assert "2 at a time · begins 23:00-07:00" in (await typed()).out
    again = await typed("--parallel", "8", "--window", "00:00-23:59", "--budget", "5", "--gate", "plan")
    assert "2 at a time · begins 23:00-07:00" in again.out, "that of the one which is there"
    assert (
        "parallel 8 (it has 2), budget $5.00 (it has none), window 00:00-23:59 (it has 23:00-07:00), "
        "gate plan (it has none) did not count"
    ) in again.out.splitlines()
    same = await typed("--json")
    assert json.loads(same.out) == {"backlog_id": "win", "attached": True}
    assert "did not count" not in same.err
