"""`python3 -m durations 90m` writes `1h30m = 5400 s`."""

import sys

from durations import DurationError, format_duration, parse_duration


def main(arguments):
    if not arguments:
        print("usage: python3 -m durations DURATION …", file=sys.stderr)
        return 2
    for text in arguments:
        try:
            value = parse_duration(text)
        except DurationError as error:
            print(f"durations: {error}", file=sys.stderr)
            return 1
        print(f"{format_duration(value)} = {value.total_seconds():g} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
