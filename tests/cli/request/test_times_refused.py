"""`--at` and `--every` as they are typed: refused in three lines; and what is said of times that were missed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.cli.look.schedules import schedule_rows
from perdure.client import ScheduleInfo
from perdure.client.schedules import next_start
from tests.cli.conftest import Cli

NIGHT = "version: 1\nitems:\n  - {id: api, request: Add it}\n"


@pytest.mark.parametrize(
    ("args", "what", "where"),
    [
        (("--at", "tonight"), "is no time", "--at"),
        (("--at", "2020-01-01 23:00"), "2020-01-01 23:00 UTC is past: it is", "--at"),
        (("--at", "23:00 Europe/Berln"), "no time zone Europe/Berln (did you mean Europe/Berlin?)", "--at"),
        (("--every", "wekdays 23:00"), "'wekdays' is no day (did you mean weekdays?)", "--every"),
        (("--every", "weekdays 23:00 Mars"), "no time zone Mars", "--every"),
        (("--every", "weekdays 23:00", "--at", "23:00"), "once and again and again", "--at and --every"),
    ],
)
@pytest.mark.parametrize(
    "command", [("deliver", "Add sub"), ("run", "test", "--branch", "topic"), ("backlog", "start", "night.yaml")]
)
def test_a_time_that_cannot_be_is_refused_before_anything_is_started(
    cli: Cli, command: tuple[str, ...], args: tuple[str, ...], what: str, where: str
) -> None:
    (cli.cwd / "night.yaml").write_text(NIGHT)
    ran = cli(*command, *args)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err
    assert f"where: {where}" in ran.err
    assert not (cli.home / "server").exists()


def test_what_was_missed_is_said() -> None:
    one = ScheduleInfo(
        id="night",
        what="backlog",
        when="weekdays 23:00 UTC",
        about="2 items: api, page",
        next=datetime(2026, 11, 24, 23, tzinfo=UTC),
        paused=False,
        note="",
        last="",
        outcome="",
        started=0,
        skipped=0,
        missed=2,
    )
    _, line, missed = schedule_rows([one], None, datetime(2026, 11, 24, 21, 48, tzinfo=UTC))
    assert "2026-11-24 23:00 UTC, in 1h 12m" in line
    assert missed == "! night: 2 times missed, Temporal was down for an hour or more"


def test_a_time_that_was_missed_is_not_what_begins_next() -> None:
    missed, tomorrow = datetime(2026, 11, 22, 23, tzinfo=UTC), datetime(2026, 11, 23, 23, tzinfo=UTC)
    morning = datetime(2026, 11, 23, 7, tzinfo=UTC)
    assert next_start([missed, tomorrow], morning) == tomorrow
    assert next_start([missed], morning) is None, "one time alone is over then"
    assert next_start([missed], missed) == missed, "it is made up for"
