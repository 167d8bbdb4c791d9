"""A crash point kills for real, as often as it was asked to, and never otherwise."""

from __future__ import annotations

import os
import signal

import pytest

from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.home import Home
from perdure.models.crash import CrashPoint
from tests.processes import python
from tests.waiting import patient

PASS = """
import sys
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
crash_point(CrashPoint.AFTER_REPLY)
crash_point(CrashPoint.DURING_TOOL)
"""


@pytest.mark.parametrize(
    ("wanted", "deaths"), [("after-reply", 1), ("after-reply:2", 2), ("after-reply,during-tool", 2), ("after-push", 0)]
)
def test_a_process_dies_at_the_points_named_and_as_often_as_it_owes(home: Home, wanted: str, deaths: int) -> None:
    env = {**os.environ, "PERDURE_HOME": str(home.root), "PERDURE_CRASH_AT": wanted}
    codes = []
    for _ in range(deaths + 1):
        with python(PASS, env=env) as process:
            codes.append(process.wait(patient(30)))
    assert codes == [-signal.SIGKILL] * deaths + [0]


def test_without_the_variable_nothing_happens(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(home.root))
    monkeypatch.delenv("PERDURE_CRASH_AT", raising=False)
    for point in CrashPoint:
        crash_point(point)
    assert not home.root.exists()
