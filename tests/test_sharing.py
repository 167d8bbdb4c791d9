"""Each worker of a run begins with its part of the long tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import shares


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 9))
def test_every_test_is_run_once(ranks: list[int], workers: int) -> None:
    assert sorted(shares(ranks, workers)) == list(range(len(ranks)))


def test_each_workers_piece_begins_with_its_part_of_the_long_ones_and_ends_with_neighbours() -> None:
    ranks = [2, 0, 2, 1, 2, 2, 0, 2, 1, 2, 2]
    order = shares(ranks, 2)
    assert [ranks[at] for at in order] == [0, 1, 2, 2, 2, 0, 1, 2, 2, 2, 2], "five, then six: as worksteal cuts them"
    assert order == [1, 3, 0, 2, 4, 6, 8, 5, 7, 9, 10]


def test_alone_the_long_ones_are_first() -> None:
    assert shares([2, 1, 0, 2], 1) == [2, 1, 0, 3]
