"""The headings of `perdure --help`."""

from __future__ import annotations

START = "Start here"
LOOK = "Look"
DECIDE = "Decide"
STEER = "Steer"
HOST = "This host"
