"""SIGKILL of the worker at every named point, and of a sandbox: one branch, one pull request, nothing twice."""

from __future__ import annotations

import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure.models.crash import CrashPoint
from tests.engine import CALC, HAPPY, TESTED, Engine, check_shipped, finished, make_target, sandboxes, until
from tests.processes import children_of, name_of

AT_A_HOSTED_FORGE = (CrashPoint.AFTER_COMMENT, CrashPoint.AFTER_ARTIFACTS)
"""Points that only a delivery to a forge with issues and accounts comes by."""

IN_AN_EMPTY_REPOSITORY = (CrashPoint.AFTER_FIRST_COMMIT,)
"""Points that only a delivery comes by whose repository has no commit yet."""

WHERE_SOMEBODY_IS_TOLD = (CrashPoint.AFTER_NOTICE,)
"""Points that only a delivery comes by whose host has addresses to tell."""

WHERE_A_BACKLOG_LANDS = (CrashPoint.DURING_REBASE, CrashPoint.AFTER_REBASE, CrashPoint.AFTER_LANDING)
"""Points that only a delivery comes by that is an item of a backlog."""

WHERE_A_BASE_MOVES = (CrashPoint.DURING_FOLLOW, CrashPoint.AFTER_FOLLOW, CrashPoint.AFTER_RETARGET)
"""Points that only a backlog comes by whose base moves, or whose stack is merged while it runs."""

WHERE_IT_IS_LONG = (CrashPoint.DURING_COMPACTION,)
"""Points that only a delivery comes by whose conversation is made shorter: tests/e2e/test_history.py."""

WHERE_SEVERAL_BUILD = (CrashPoint.AFTER_TASKS, CrashPoint.AFTER_ATTEMPTS)
"""Points that only a delivery comes by whose plan is built by several, its tasks or the whole of it: test_specialists,
test_attempts."""


WITH_A_TEST = HAPPY.replace(
    "return a - b\\\\n' >> calc.py",
    "return a - b\\\\n' >> calc.py && printf 'import unittest\\\\nfrom calc import sub\\\\n\\\\n\\\\n"
    "class SubTest(unittest.TestCase):\\\\n    def test_subtracts(self):\\\\n        self.assertEqual(sub(3, 2), 1)"
    "\\\\n' > tests/test_sub.py",
)
LINE = "1/1 of main's own tests pass on the change · 1 new test fails without it · canaries caught"

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}

REDONE = {CrashPoint.WAITING_FOR_MODEL, CrashPoint.AFTER_REPLY, CrashPoint.DURING_TOOL, CrashPoint.INSIDE_REF_UPDATE}
"""Points inside a turn, before its checkpoint exists: the turn is done again."""

PAID_AGAIN = {CrashPoint.WAITING_FOR_MODEL}
"""The only point where a reply is asked for again: it had not arrived."""


ELSEWHERE = {
    *AT_A_HOSTED_FORGE,
    *IN_AN_EMPTY_REPOSITORY,
    *WHERE_A_BACKLOG_LANDS,
    *WHERE_A_BASE_MOVES,
    *WHERE_SOMEBODY_IS_TOLD,
    *WHERE_SEVERAL_BUILD,
    *WHERE_IT_IS_LONG,
}
"""Points that this delivery does not come by."""

NOT_BEGUN = {CrashPoint.HANDED_OUT}
"""The only point where nobody has written down yet that a worker works on this delivery."""

TOGETHER = (
    (
        CrashPoint.DURING_PREPARE,
        CrashPoint.WAITING_FOR_MODEL,
        CrashPoint.INSIDE_REF_UPDATE,
        CrashPoint.INSIDE_COMMIT,
        CrashPoint.DURING_PROOF,
        CrashPoint.DURING_CANARIES,
        CrashPoint.AFTER_PUSH,
    ),
    (
        CrashPoint.HANDED_OUT,
        CrashPoint.AFTER_REPLY,
        CrashPoint.AFTER_SNAPSHOT,
        CrashPoint.DURING_TOOL,
        CrashPoint.DURING_TESTS,
        CrashPoint.DURING_BASE_TESTS,
        CrashPoint.AFTER_PULL_REQUEST,
    ),
)
"""Points that one delivery survives, all of them, each time with a worker of its own; no turn dies a third time."""


def _points() -> list[Any]:
    alone = [point for point in CrashPoint if point not in ELSEWHERE]
    assert sorted(point for points in TOGETHER for point in points) == sorted(alone), "every point is somewhere"
    return [
        *(pytest.param(points, id="+".join(points)) for points in TOGETHER),
        *(pytest.param((point,), id=f"only-{point}", marks=pytest.mark.slow) for point in alone),
    ]


@pytest.mark.always
@pytest.mark.timeout(240)
@pytest.mark.parametrize("points", _points())
async def test_a_worker_killed_at_any_named_point_leads_to_exactly_one_pull_request(
    points: tuple[CrashPoint, ...], tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, WITH_A_TEST, ports=ports, env={"PERDURE_CRASH_AT": ",".join(points)}) as engine:
        engine.kept()
        result = await finished(await engine.submit(origin), engine, timeout=180)
        check_shipped(origin, engine, result, SHIPPED)
        assert sorted(path.stem for path in engine.home.crashes.iterdir()) == sorted(points), "each point was come by"
        redone = await engine.redone()
        assert {why for _, why in redone} == {"WorkerDied"}, f"a time-out decided, not the living: {redone}"
        assert sandboxes(engine) == [], "a tool of a killed worker lives on"
        (judged,) = (record.summary for record in result.steps if record.step == "run_tests")
        assert (result.tests.status, result.tests.experiment, judged) == ("green", LINE, f"2 green · {LINE}")
        assert not engine.home.trials("calc-sub").exists(), "checkouts of a killed experiment are left"
        again = len(PAID_AGAIN.intersection(points))
        assert result.receipt.worker_deaths == len({*points} - NOT_BEGUN)
        assert result.receipt.turns_redone == len(REDONE.intersection(points))
        assert result.receipt.replies_cut == again
        report = await engine.report()
        assert report["repeated"] <= again, "a reply that was written down was asked for again"
        assert report["calls"] == 8 + again


TESTS = "sleep 2; python3 -m unittest -q"


@pytest.mark.timeout(150)
async def test_a_killed_sandbox_is_a_death_of_the_attempt_and_the_delivery_goes_on(tmp_path: Path, ports: int) -> None:
    config = CALC["perdure.toml"].replace("python3 -m unittest -q", TESTS)
    origin = make_target(tmp_path / "calc.git", CALC | {"perdure.toml": config})
    async with Engine.open(tmp_path, HAPPY.replace("sleep 0.5", "sleep 2.5"), ports=ports) as engine:
        worker = engine.worker()
        submitted = await engine.submit(origin, **TESTED)

        def kill(words: str, first: bool = False) -> bool:
            """The sandbox in which a command with these words runs, or its first process alone."""
            for process in children_of(worker.pid):
                with suppress(psutil.Error):  # it ends while it is looked at
                    parents = [each for each in process.parents() if each.name() == "bwrap"]
                    if len(parents) > 1 and process.name() == "bash" and words in " ".join(process.cmdline()):
                        parents[0 if first else -1].kill()
                        return True
            return False

        await until(lambda: kill("echo written"))
        calls = engine.model_calls()
        await until(lambda: kill("sleep 2; python3"))
        await until(lambda: kill("sleep 2; python3", first=True))
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert (result.receipt.worker_deaths, result.receipt.turns_redone) == (0, 1)
        assert [step.attempt for step in result.steps if step.step == "run_tests"] == [1]
        assert (result.tests.status, result.tests.flaky, result.tests.killed_runs) == ("green", 0, 1)
        assert engine.model_calls() - calls == 3, "two turns of implement and the review"
        assert [process for process in children_of(worker.pid) if name_of(process) == "bwrap"] == []
