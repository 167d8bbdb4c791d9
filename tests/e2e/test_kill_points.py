"""SIGKILL of the worker at every named point: one branch, one pull request, nothing twice."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perdure.models.crash import AT_A_HOSTED_FORGE, WHERE_SOMEBODY_IS_TOLD, CrashPoint
from tests.lab import CALC, HAPPY, Lab, check_shipped, finished, make_target, sandboxes

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}

REDONE = {CrashPoint.WAITING_FOR_MODEL, CrashPoint.AFTER_REPLY, CrashPoint.DURING_TOOL, CrashPoint.INSIDE_REF_UPDATE}
"""Points inside a turn, before its checkpoint exists: the turn is done again."""

PAID_AGAIN = {CrashPoint.WAITING_FOR_MODEL}
"""The only point where a reply is asked for again: it had not arrived."""


ELSEWHERE = {*AT_A_HOSTED_FORGE, *WHERE_SOMEBODY_IS_TOLD}
"""Points that this delivery does not come by."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", [point for point in CrashPoint if point not in ELSEWHERE])
async def test_a_worker_killed_at_any_named_point_leads_to_exactly_one_pull_request(
    point: CrashPoint, tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_CRASH_AT": point}) as lab:
        lab.kept()
        result = await finished(await lab.submit(origin), lab)
        check_shipped(origin, lab, result, SHIPPED)
        assert sandboxes(lab) == [], "a tool of the killed worker lives on"
        assert result.receipt.worker_deaths == 1
        assert result.receipt.turns_redone == (1 if point in REDONE else 0)
        assert result.receipt.replies_cut == (1 if point in PAID_AGAIN else 0)
        report = await lab.report()
        assert report["repeated"] <= len(PAID_AGAIN & {point}), "a reply that was written down was asked for again"
        assert report["calls"] == 8 + len(PAID_AGAIN & {point})
