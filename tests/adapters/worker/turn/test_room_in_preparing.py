"""Setups and test commands wait for a place on the host, and say so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import Bench, in_activity

from activities import run_tests as tests
from perdure.adapters.sandbox.base import CommandSlots
from perdure.adapters.system.files import try_lock
from perdure.adapters.worker import attempt
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestInput


@pytest.mark.timeout(120)
async def test_a_test_command_waits_while_another_worker_has_the_only_place(bench: Bench, tmp_path: Path) -> None:
    facts: dict[str, Any] = {}
    attempt.current_facts.set(facts)
    bench.host.command_slots = CommandSlots(tmp_path / "room", 1)
    held = try_lock(tmp_path / "room" / "0")
    assert held is not None
    work = TestInput(delivery="calc-sub", contract=bench.prepared.contract, commit=bench.prepared.head, attempt=1)
    testing = asyncio.create_task(in_activity(tests.RunTestsActivity(bench.host).run_tests, work))
    while "waiting for one of 1 places" not in facts.get("doing", ""):
        assert not testing.done()
        await asyncio.sleep(0.02)
    os.close(held)
    assert (await testing).status is TestsStatus.GREEN
