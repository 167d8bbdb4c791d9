"""Crash points: where tests make the worker kill itself, in the code that ships. Activities and adapters call them,
most of them between an effect and its report."""

from __future__ import annotations

import os
import signal

from perdure.adapters.system.home import Home
from perdure.models.crash import CrashPoint


def crash_point(point: CrashPoint) -> None:
    """Kill this process with SIGKILL where PERDURE_CRASH_AT names this point and asks for more crashes than there were.

    `PERDURE_CRASH_AT=after-reply` kills once, `after-reply:3` three times; several points are separated by commas. The
    crashes that were made are counted in the home, so that a restarted worker does not crash for ever.
    """
    requested_crashes = os.environ.get("PERDURE_CRASH_AT")
    if not requested_crashes:
        return
    for entry in requested_crashes.split(","):
        name, _, times = entry.partition(":")
        if name == point and _claim_crash(point, int(times or 1)):
            os.kill(os.getpid(), signal.SIGKILL)


def _claim_crash(point: CrashPoint, times: int) -> bool:
    """Record one more crash at this point in the home; return False where `times` crashes have been made."""
    crashes = Home.find().crashes
    crashes.mkdir(parents=True, exist_ok=True)
    for number in range(times):
        try:
            os.close(os.open(crashes / f"{point}.{number}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False
