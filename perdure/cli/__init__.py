"""The command line: one file a command group, nothing heavy imported before a command needs it."""

from perdure.cli.app import main

__all__ = ["main"]
