"""Where no worker answers, nobody is told to start one that is being started."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.cli.host.workers import COMES, NOBODY, STARTING, absent, unanswered
from perdure.cli.look.watch import WATCH_LOST_S, Watcher
from perdure.local.places import Places
from perdure.models.errors import BadInput, NoWorker
from perdure.models.limits import WATCH_SILENCE_S


def test_a_home_whose_supervisor_lives_needs_no_worker_from_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    watcher = Watcher(None, None, teller=object())  # type: ignore[arg-type]
    error = NoWorker("no worker answers", where="d", then="the work goes on then")
    assert absent() == watcher._silent(WATCH_SILENCE_S + 1) == NOBODY
    assert unanswered(error).fix == "perdure up --detach starts one; the work goes on then"
    with Places(Home(tmp_path)).supervisor_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert absent() == STARTING
        assert unanswered(error).fix == f"{COMES}; the work goes on then"
        assert unanswered(NoWorker("no worker answers")).fix == COMES
        assert unanswered(other := BadInput("no", fix="perdure up --detach")) is other
        assert watcher._silent(WATCH_SILENCE_S + 1) == "", "a takeover takes no longer than that"
        assert watcher._silent(WATCH_LOST_S + 1) == STARTING
        monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
        assert absent() == NOBODY, "those workers are others"
    assert absent() == watcher._silent(WATCH_SILENCE_S + 1) == NOBODY
