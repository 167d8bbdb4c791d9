"""The time at which a delivery or backlog begins: what `--at` and `--every` say. Parsed here for the commands that
submit; the schedule itself is made in `perdure.cli.look.schedules`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.adapters.system.zones import find_zone
from perdure.models.errors import BadInput
from perdure.models.schedule import RecurringTime, SingleTime


@dataclass(frozen=True)
class StartTime:
    """The time at which something begins. `when`: a moment in UTC, or the days and hours; `text`: the same for a
    person, with the zone."""

    when: RecurringTime | datetime
    text: str


def parse_start_time(at: str | None, every: str | None, now: datetime | None = None) -> StartTime | None:
    """Parse `--at` and `--every`; None where neither is given and it begins at once.

    Raises BadInput for both together, for what is no time, a moment in the past, and a time zone that this host does
    not know.
    """
    if at is None and every is None:
        return None
    if at is not None and every is not None:
        raise BadInput("once and again and again were asked for", where="--at and --every", fix="give one of them")
    option_name, fix = ("--at", "--at 23:00") if at is not None else ("--every", '--every "weekdays 23:00"')
    try:
        if every is not None:
            recurring = RecurringTime.parse(every)
            find_zone(recurring.utc_offset_minutes, recurring.zone)
            return StartTime(recurring, recurring.text)
        single = SingleTime.parse(at or "")
        zone = find_zone(single.utc_offset_minutes, single.zone)
        moment = single.next_occurrence(now or datetime.now(UTC), zone)
    except ValueError as error:
        raise BadInput(str(error), where=option_name, fix=fix) from None
    return StartTime(moment, f"{moment.astimezone(zone):%Y-%m-%d %H:%M} {single.zone_text}")
