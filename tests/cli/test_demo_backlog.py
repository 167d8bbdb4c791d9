"""The demo of a backlog: all eight land, one after a retry, though the worker dies twice; the receipt is counted."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from perdure.demo.demos import is_as_expected
from perdure.models.backlog.state import BacklogProgress, ItemView
from tests.cli.demo_run import Show, show

__all__ = ["show"]


def test_it_is_whole_only_when_all_landed_and_one_of_them_was_blocked_meanwhile() -> None:
    def played(blocked: dict[str, str], **other: str) -> bool:
        items = tuple(ItemView(id=id, phase=phase) for id, phase in ({"total": "landed"} | other).items())
        ended = BacklogProgress(backlog_id="night", run_id="r", repository="/r", status="ended", items=items)
        return is_as_expected(ended, blocked)

    assert played({"invoice": "halves"}, invoice="landed")
    assert not played({}, invoice="landed")
    assert not played({"invoice": "total"}, invoice="landed")
    assert not played({"invoice": "halves"}, invoice="blocked")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eight_items_four_at_a_time_two_kills_and_three_zeros(show: Show) -> None:
    show.start("--backlog", "--fast", "--yes", "--json", apart=True)
    assert show.end(500) == 0, show.told
    progress = json.loads(show.seen)
    assert {view["phase"] for view in progress["items"]} == {"landed"}
    assert re.search(r"^✗ invoice .*by halves", show.told, re.MULTILINE), show.told
    assert re.search(r"^↻ .*backlog retry night halves", show.told, re.MULTILINE), show.told
    assert len(re.findall(r"^✗ worker \d+ killed", show.told, re.MULTILINE)) == 2
    assert "8 of 8 landed · items lost 0 · landed twice 0 · branches without an owner 0" in show.told
    (kept,) = show.tmp.iterdir()
    told = ["git", "-C", str(kept / "durations.git"), "log", "--format=%P|%s", f"main..{progress['branch']}"]
    landed = subprocess.run(told, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert len(landed) == 8
    assert all(len(line.partition("|")[0].split()) == 1 for line in landed), "linear"
    show.check_nothing_runs()
