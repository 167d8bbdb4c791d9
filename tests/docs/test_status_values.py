"""docs/events.md lists every status and every reason that a program can meet."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.models.delivery.result import ProgressStatus, Reason, Status
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import delivery_status

EVENTS = (Path(__file__).parents[2] / "docs/events.md").read_text()


def _listed(name: str) -> list[str]:
    """Return the first column of the table of that head."""
    table = EVENTS.partition(f"| {name} | meaning |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_every_status_and_reason_is_listed_with_its_meaning() -> None:
    assert sorted(_listed("status")) == sorted(ProgressStatus)
    assert sorted(_listed("reason")) == sorted(Reason)


def test_a_status_is_that_of_the_end_or_says_if_it_waits() -> None:
    assert set(ProgressStatus) - set(Status) == {ProgressStatus.RUNNING, ProgressStatus.WAITING}
    assert {str(delivery_status(DeliveryState(status=status, waiting="x"))) for status in Status} == set(Status)
    assert [str(delivery_status(DeliveryState(waiting=waiting))) for waiting in ("", "x")] == ["running", "waiting"]
