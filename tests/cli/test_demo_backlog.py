"""The demo of a backlog: six of eight items land though the worker is killed twice, and the receipt is counted."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from perdure.demo.night import whole
from perdure.models.backlog_messages import BacklogProgress, ItemView
from tests.cli.demo_run import Show, show

__all__ = ["show"]


def test_it_is_whole_only_when_every_item_is_where_the_story_says() -> None:
    story = {"total": "landed", "halves": "failed", "invoice": "blocked"}

    def played(**other: str) -> bool:
        items = tuple(ItemView(id=id, phase=phase) for id, phase in (story | other).items())
        return whole(BacklogProgress(backlog_id="night", run_id="r", repository="/r", status="ended", items=items))

    assert played()
    assert not played(total="failed")
    assert not played(halves="landed")
    assert not played(invoice="after")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eight_items_four_at_a_time_two_kills_and_three_zeros(show: Show) -> None:
    show.start("--backlog", "--fast", "--yes", "--json", apart=True)
    assert show.end(500) == 0, show.told
    progress = json.loads(show.seen)
    phases = {view["id"]: view["phase"] for view in progress["items"]}
    assert (phases.pop("halves"), phases.pop("invoice")) == ("failed", "blocked")
    assert set(phases.values()) == {"landed"}
    assert len(re.findall(r"^✗ worker \d+ killed", show.told, re.MULTILINE)) == 2
    assert "6 of 8 landed · items lost 0 · landed twice 0 · branches without an owner 0" in show.told
    assert "(failed)" not in show.told
    (kept,) = show.tmp.iterdir()
    told = ["git", "-C", str(kept / "durations.git"), "log", "--format=%P|%s", f"main..{progress['branch']}"]
    landed = subprocess.run(told, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert len(landed) == 6
    assert all(len(line.partition("|")[0].split()) == 1 for line in landed), "linear"
    show.check_nothing_runs()
