"""The runs that a home has accepted: known to all its workers, forged by nobody, never more than some megabytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.adapters.worker import origin_record
from perdure.adapters.worker.origin_record import AcceptedRuns


@pytest.mark.timeout(60)
def test_another_worker_of_the_home_knows_what_one_has_accepted(tmp_path: Path) -> None:
    one, other = AcceptedRuns(Home(tmp_path / "home")), AcceptedRuns(Home(tmp_path / "home"))
    assert ("night", "run-1") not in other
    one.add(("night", "run-1"))
    one.add(("night", "run-2"))
    assert all(("night", run) in other for run in ("run-1", "run-2"))
    assert ("nigh", "trun-1") not in other
    assert ("night", "run-1") not in AcceptedRuns(Home(tmp_path / "another"))


@pytest.mark.timeout(60)
def test_a_line_of_another_home_counts_for_nothing(tmp_path: Path) -> None:
    AcceptedRuns(Home(tmp_path / "his")).add(("night", "run-1"))
    ours = Home(tmp_path / "ours")
    AcceptedRuns(ours).add(("day", "run-1"))
    with (ours.root / "accepted-runs").open("ab") as file:
        file.write((tmp_path / "his" / "accepted-runs").read_bytes() + b"torn")
    assert ("night", "run-1") not in AcceptedRuns(ours)
    assert ("day", "run-1") in AcceptedRuns(ours)


@pytest.mark.timeout(60)
def test_the_older_half_goes_where_the_file_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_record, "ACCEPTED_BYTES", 65 * 10)
    accepted, reader = AcceptedRuns(Home(tmp_path)), AcceptedRuns(Home(tmp_path))
    for number in range(11):
        assert ("night", f"run-{number}") not in reader
        accepted.add(("night", f"run-{number}"))
    assert [number for number in range(11) if ("night", f"run-{number}") in AcceptedRuns(Home(tmp_path))] == [
        *range(5, 11)
    ]
    assert ("night", "run-10") in reader
