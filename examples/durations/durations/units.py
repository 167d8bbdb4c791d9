"""The units of a duration, in seconds."""

WEEK, DAY, HOUR, MINUTE, SECOND = 604800, 86400, 3600, 60, 1

UNITS = {
    **dict.fromkeys(("w", "week", "weeks"), WEEK),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("h", "hr", "hour", "hours"), HOUR),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("s", "sec", "second", "seconds"), SECOND),
}
