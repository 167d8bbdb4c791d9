"""Where no worker answers, nobody is told to start one that is being started."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.cli.look.watch import WATCH_LOST_S, DeliveryWatcher
from perdure.local.connect import NO_WORKER, WORKER_RESTARTS, WORKER_STARTING, adapt_no_worker_error, no_worker_reason
from perdure.local.places import Places
from perdure.models.errors import BadInput, NoWorker
from perdure.models.limits import WATCH_SILENCE_S


def test_a_home_whose_supervisor_lives_needs_no_worker_from_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    watcher = DeliveryWatcher(None, None, reporter=object())  # type: ignore[arg-type]
    error = NoWorker("no worker answers", where="d", consequence="the work goes on then")
    assert no_worker_reason() == watcher._silence_reason(WATCH_SILENCE_S + 1) == NO_WORKER
    assert adapt_no_worker_error(error).fix == "perdure up --detach starts one; the work goes on then"
    with Places(Home(tmp_path)).supervisor_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert no_worker_reason() == WORKER_STARTING
        assert adapt_no_worker_error(error).fix == f"{WORKER_RESTARTS}; the work goes on then"
        assert adapt_no_worker_error(NoWorker("no worker answers")).fix == WORKER_RESTARTS
        assert adapt_no_worker_error(other := BadInput("no", fix="perdure up --detach")) is other
        assert watcher._silence_reason(WATCH_SILENCE_S + 1) == "", "a takeover takes no longer than that"
        assert watcher._silence_reason(WATCH_LOST_S + 1) == WORKER_STARTING
        monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
        assert no_worker_reason() == NO_WORKER, "those workers are others"
    assert no_worker_reason() == watcher._silence_reason(WATCH_SILENCE_S + 1) == NO_WORKER
