"""Command line `python -m perdure.rehearsal FILE [--port N]`: plays a screenplay for whoever tries an agent by hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perdure.models.errors import PerdureError
from perdure.rehearsal.server import play_file


def main() -> int:
    """Parse the command line and play the screenplay until SIGINT or SIGTERM; return the exit code.

    That is 0, or the code of a PerdureError, which is printed to stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m perdure.rehearsal", description="Play a screenplay over HTTP.")
    parser.add_argument("file", type=Path, help="the screenplay, a TOML file")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    arguments = parser.parse_args()
    try:
        play_file(arguments.file, arguments.port)
    except PerdureError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
