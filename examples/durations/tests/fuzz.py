"""Looks for durations that do not survive being written and read again: `python3 -m tests.fuzz --seconds 5`."""

import argparse
import random
import sys
import time
from datetime import timedelta

from durations import DurationError, format_duration, parse_duration

MOST = 10 * 365 * 86400


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=20_240_229)
    chosen = parser.parse_args()
    numbers, tried, end = random.Random(chosen.seed), 0, time.monotonic() + chosen.seconds
    while time.monotonic() < end:
        value = timedelta(seconds=numbers.randint(-MOST, MOST))
        text = format_duration(value)
        try:
            back = parse_duration(text)
        except DurationError as error:
            back = error
        if back != value:
            print(f"{value!r} was written {text!r} and read as {back!r}")
            return 1
        tried += 1
    print(f"{tried} durations written and read again, all the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
