"""Reads and writes durations the way people do."""

from durations.parse import DurationError, parse_duration
from durations.rounding import round_duration
from durations.write import format_duration

__all__ = ["DurationError", "format_duration", "parse_duration", "round_duration"]
