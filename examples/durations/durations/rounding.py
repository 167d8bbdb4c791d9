"""Rounds durations."""

from datetime import timedelta


def round_duration(value, to):
    """The nearest multiple of `to`; halves go away from zero, as people round."""
    if to <= timedelta(0):
        raise ValueError("can only round to something longer than zero")
    times, rest = divmod(abs(value), to)
    nearest = to * (times + (rest * 2 >= to))
    return -nearest if value < timedelta(0) else nearest
