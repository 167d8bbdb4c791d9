"""Room for one more delivery of a repository: who counts, and the words where there is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.concurrency_limit import OtherDelivery, limit_reason

RUNS, WAITS, AHEAD, BEHIND = (
    OtherDelivery("build"),
    OtherDelivery("plan", waits=True),
    OtherDelivery("", waits=True, began_earlier=True),
    OtherDelivery("", waits=True),
)


@pytest.mark.parametrize(
    ("deliveries", "pulls", "others", "opened", "says"),
    [
        (None, None, (RUNS,) * 9, 9, ""),
        (2, None, (RUNS, WAITS, BEHIND), 0, ""),
        (2, None, (RUNS, AHEAD), 0, "2 deliveries of this repository run or are before this one (limit 2)"),
        (1, None, (RUNS,), 0, "1 delivery of this repository runs or is before this one (limit 1)"),
        (None, 3, (), 3, "3 pull requests are open (limit 3)"),
        (None, 1, (), 1, "1 pull request is open (limit 1)"),
        (None, 3, (WAITS,), 1, ""),
        (None, 2, (WAITS,), 1, "1 pull request is open and 1 is in the making (limit 2)"),
        (None, 2, (RUNS, RUNS), 0, "pull requests: 2 are in the making (limit 2)"),
        (None, 1, (OtherDelivery("ship", has_pull_request=True), OtherDelivery("build", is_item=True), BEHIND), 0, ""),
    ],
)
def test_who_runs_or_was_there_before_takes_room(
    deliveries: int | None, pulls: int | None, others: tuple[OtherDelivery, ...], opened: int, says: str
) -> None:
    assert limit_reason(deliveries, pulls, others, opened) == says


@given(st.integers(1, 5), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_line_goes_in_the_order_of_age_as_many_at_once_as_there_is_room_for(
    limit: int, number: int, chance: random.Random
) -> None:
    """Each asks again and again, in any order; who has room goes, some time later it has ended."""
    line, runs, gone = list(range(number)), list[int](), list[int]()
    while line or runs:
        if runs and chance.random() < 0.4:
            gone.append(runs.pop(chance.randrange(len(runs))))
        for asks in sorted(line, key=lambda _: chance.random()):
            others = [
                *(OtherDelivery("build") for _ in runs),
                *(OtherDelivery("", began_earlier=one < asks) for one in line if one != asks),
            ]
            if not limit_reason(limit, None, tuple(others), 0):
                ahead = [one for one in line if one < asks]
                assert len(runs) + len(ahead) < limit, "nobody goes before an older one that there is no room for then"
                line.remove(asks)
                runs.append(asks)
        assert len(runs) <= limit
    assert sorted(gone) == list(range(number))
