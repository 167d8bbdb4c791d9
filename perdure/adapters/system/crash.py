"""Crash points: where tests make the worker kill itself, in the code that ships."""

from __future__ import annotations

import os
import signal

from perdure.adapters.system.home import Home
from perdure.models.crash import CrashPoint


def crash_point(point: CrashPoint) -> None:
    """SIGKILL this process if PERDURE_CRASH_AT names this point and this home has not crashed there often enough.

    `PERDURE_CRASH_AT=after-reply` kills once, `after-reply:3` three times; several points are separated by commas.
    """
    wanted = os.environ.get("PERDURE_CRASH_AT")
    if not wanted:
        return
    for entry in wanted.split(","):
        name, _, times = entry.partition(":")
        if name == point and _claim(point, int(times or 1)):
            os.kill(os.getpid(), signal.SIGKILL)


def _claim(point: CrashPoint, times: int) -> bool:
    """Take one of the crashes still owed, so that a restarted worker does not crash for ever."""
    crashes = Home.find().crashes
    crashes.mkdir(parents=True, exist_ok=True)
    for number in range(times):
        try:
            os.close(os.open(crashes / f"{point}.{number}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False
