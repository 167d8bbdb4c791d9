"""SIGKILL for a sandbox, as the kernel sends it for memory: a turn and a test run are done again, and nothing ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, make_target, until
from tests.processes import children_of, name_of

TESTS = "sleep 2; python3 -m unittest -q"


@pytest.mark.timeout(150)
async def test_a_killed_sandbox_is_a_death_of_the_attempt_and_the_delivery_goes_on(tmp_path: Path, ports: int) -> None:
    config = CALC["perdure.toml"].replace("python3 -m unittest -q", TESTS)
    origin = make_target(tmp_path / "calc.git", CALC | {"perdure.toml": config})
    async with Engine.open(tmp_path, HAPPY.replace("sleep 0.5", "sleep 2.5"), ports=ports) as engine:
        worker = engine.worker()
        submitted = await engine.submit(origin, **TESTED)

        def kill(words: str) -> bool:
            """The sandbox in which a command with these words runs."""
            for process in children_of(worker.pid):
                with suppress(psutil.Error):  # it ends while it is looked at
                    parents = [each for each in process.parents() if each.name() == "bwrap"]
                    if parents and process.name() == "bash" and words in " ".join(process.cmdline()):
                        parents[-1].kill()
                        return True
            return False

        await until(lambda: kill("echo written"))
        calls = engine.model_calls()
        await until(lambda: kill("sleep 2; python3"))
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert (result.receipt.worker_deaths, result.receipt.turns_redone) == (0, 1)
        assert [step.attempt for step in result.steps if step.step == "run_tests"] == [1]
        assert engine.model_calls() - calls == 3, "two turns of implement and the review"
        assert [process for process in children_of(worker.pid) if name_of(process) == "bwrap"] == []
