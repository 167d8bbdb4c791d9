"""The headings of `perdure --help`."""

from __future__ import annotations

START = "Start here"
LOOK = "Look"
DECIDE = "Decide"
STEER = "Steer"
HOST = "This host"
ADVANCED = "Advanced"
"""Shown by `--help-advanced` alone: what a person at work on deliveries does not type."""
