"""When a worker that died is started again."""

from __future__ import annotations

from perdure.local.supervisor import RestartPauses


def test_four_deaths_in_a_row_cost_no_pause() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(now, lived=0.5) for now in range(4)] == [0, 0, 0, 0]


def test_the_fifth_within_ten_seconds_does_and_pauses_double_to_thirty_seconds() -> None:
    pauses = RestartPauses()
    now, seen = 0.0, []
    for _ in range(12):
        pause = pauses.after_death(now, lived=1)
        seen.append(pause)
        now += pause + 1
    assert seen == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_deaths_three_seconds_apart_cost_no_pause() -> None:
    pauses = RestartPauses()
    assert {pauses.after_death(now, lived=3) for now in range(0, 300, 3)} == {0}


def test_a_worker_that_lived_for_ten_seconds_clears_the_pause() -> None:
    pauses = RestartPauses()
    for now in range(6):
        pauses.after_death(now, lived=1)
    assert pauses.after_death(60, lived=10) == 0
    assert pauses.after_death(61, lived=1) == 0


def test_workers_that_were_killed_could_start_and_wait_for_a_second_at_most() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(2.0 * now, lived=1, killed=True) for now in range(12)] == [0] * 4 + [1] * 8


def test_workers_that_were_killed_at_work_cost_no_pause_however_often() -> None:
    pauses = RestartPauses()
    assert {pauses.after_death(2.0 * now, lived=2, killed=True) for now in range(40)} == {0}
