"""A home that is larger than its limit loses what ended, the oldest first, and nothing that is needed."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.adapters.worker.home_limit import shrink_home
from perdure.models.limits import HOME_DISK_SHARE
from tests.repositories import make_origin

AGES = {"week": 6, "days": 2, "hours": 0.1, "now": 0}
"""Days ago: what ended or was used then."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With a delivery and a package cache of each age, each of 200 kB, and a delivery that runs on an old cache."""
    home = Home(tmp_path / "home")
    vault = Vault.open_or_create(home, str(make_origin(tmp_path / "o.git")))
    base = vault.fetch()[1]
    for name, days in {**AGES, "running": None}.items():
        workspace = Workspace.create(home, vault, name, base)
        (workspace.path / "large").write_bytes(os.urandom(200_000))
        used = kept_results(home, "packages").make_in_place(name)
        (used / "large").write_bytes(os.urandom(200_000))
        ago = timedelta(days=6 if days is None else days)
        os.utime(used, (time.time() - ago.total_seconds(),) * 2)
        if days is not None:
            workspace.write_record(workspace.record().model_copy(update={"ended_at": datetime.now(UTC) - ago}))
    (home.workspace("running") / "binds.json").write_text('{"cache": "running"}')
    return home


def remaining_names(home: Home) -> tuple[list[str], list[str]]:
    return tuple(sorted(path.name for path in (home.root / at).iterdir()) for at in ("trees", "packages"))  # type: ignore[return-value]


def test_the_oldest_goes_first_until_the_home_is_below_its_limit(home: Home) -> None:
    everything, size = remaining_names(home), size_on_disk(home.root)
    assert shrink_home(home, size) == []
    assert remaining_names(home) == everything
    shrink_home(home, size - 1)
    assert remaining_names(home) == (["days", "hours", "now", "running"],) * 2
    shrink_home(home, size_on_disk(home.root) - 1)
    assert remaining_names(home) == (["hours", "now", "running"],) * 2


def test_what_runs_and_what_has_just_ended_stays_however_small_the_limit_is(home: Home) -> None:
    refs = Workspace.open(home, "week").vault.list_refs("refs/")
    assert shrink_home(home, 0) == []
    assert remaining_names(home) == (["now", "running"],) * 2
    assert Workspace.open(home, "running").find_problems() == []
    assert Workspace.open(home, "week").vault.list_refs("refs/") == refs


def test_the_limit_is_a_share_of_the_disk_unless_it_is_set(home: Home) -> None:
    disk = os.statvfs(home.root)
    assert home.size_limit(None) == pytest.approx(disk.f_blocks * disk.f_frsize * HOME_DISK_SHARE)
    assert home.size_limit(0.5) == 500_000_000
